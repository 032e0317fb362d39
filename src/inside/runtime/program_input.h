/* program_input.h - one direction into a program: its standard input, or the socket of a language
 * kernel.
 *
 * Bytes are written as the program reads them, and credit is returned to the host at that rate. */
#pragma once

#include "core/base/buf.h"
#include "inside/runtime/runtime_stream.h"

enum program_input_kind { PROGRAM_INPUT_PIPE, PROGRAM_INPUT_TERMINAL, PROGRAM_INPUT_SOCKET };

struct program_input {
    struct runtime_stream *stream;
    enum program_input_kind kind;
    int fd; /* -1: absent or closed */
    struct ev_io io;
    struct buf buf;
    bool ended;        /* the host has sent its last byte */
    uint8_t last_byte; /* last byte written; 0: none */
};

int program_input_watch(struct program_input *in, struct err *err); /* after stream, kind and fd are set */
void program_input_take(struct program_input *in, const struct frame *f);
void program_input_close(struct program_input *in);
