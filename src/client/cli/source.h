/* source.h - forwards standard input to a program, with back-pressure: it reads only as fast as the
 * program accepts. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct source {
    struct ev *ev;
    int fd;
    struct ev_io io;
    struct ev_defer again; /* reads regular files, which epoll cannot watch */
    bool file;
    bool ended;
    bool full;                                               /* the program accepts no more at present */
    size_t filled, sent;                                     /* bytes of buf: read; accepted by `take` */
    size_t (*take)(void *arg, const void *data, size_t len); /* returns the number of bytes accepted */
    void (*end)(void *arg);
    void *arg;
    char buf[64 * KIB];
};

void source_start(struct source *s, struct ev *ev, int fd, size_t (*take)(void *, const void *, size_t),
                  void (*end)(void *), void *arg);
void source_resume(struct source *s); /* the program accepts more again */
void source_stop(struct source *s);
