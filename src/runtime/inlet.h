/* inlet.h - one direction into a program: its standard input, or a kernel's side of its channel.
 *
 * Bytes are written as the program takes them, and credit goes back to the host at that pace. */
#pragma once

#include "base/buf.h"
#include "runtime/stream.h"

enum inlet_kind { INLET_PIPE, INLET_TERMINAL, INLET_SOCKET };

struct inlet {
    struct stream *s;
    enum inlet_kind kind;
    int fd; /* -1: there is none, or it was closed */
    struct ev_io io;
    struct buf buf;
    bool ended;   /* the host has sent its last byte */
    uint8_t last; /* last byte given to a terminal */
};

int inlet_watch(struct inlet *in, struct err *err); /* when s, kind and fd are set */
void inlet_take(struct inlet *in, const struct frame *f);
void inlet_close(struct inlet *in);
