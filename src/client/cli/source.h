/* source.h - standard input on its way into a program, read only as fast as the program takes
 * it. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct source {
    struct ev *ev;
    int fd;
    struct ev_io io;
    struct ev_defer again; /* for files, which epoll does not watch because they are always ready */
    bool file;
    bool ended;
    bool full;                                               /* the program takes no more for now */
    size_t filled, sent;                                     /* of buf: read, and passed on */
    size_t (*take)(void *arg, const void *data, size_t len); /* returns how much it took */
    void (*end)(void *arg);
    void *arg;
    char buf[64 * KIB];
};

void source_start(struct source *s, struct ev *ev, int fd, size_t (*take)(void *, const void *, size_t),
                  void (*end)(void *), void *arg);
void source_resume(struct source *s); /* the program takes more now */
void source_stop(struct source *s);
