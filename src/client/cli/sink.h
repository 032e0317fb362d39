/* sink.h - a descriptor that output is written to without ever blocking the loop.
 *
 * What cannot be written now waits in the sink, and `on_change` says when it has become empty
 * again; the owner stops feeding it in between, so what waits is never more than what was under
 * way. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

enum sink_mode {
    SINK_NEW,    /* nothing was written yet, so nobody looked what kind of file it is */
    SINK_PLAIN,  /* never blocks for long: regular files, /dev/null */
    SINK_OWN,    /* a non-blocking open file of our own */
    SINK_SOCKET, /* written with MSG_DONTWAIT */
    SINK_SHARED, /* a descriptor that others share and that must stay blocking: asked before every small write */
};

struct sink {
    struct ev *ev;
    int fd;
    enum sink_mode mode;
    struct ev_io io;
    struct buf pending;
    bool broken; /* the reader is gone, or the disk is full: everything further is dropped */
    int error;   /* errno of the write that broke it */
    void (*on_change)(void *arg);
    void *arg;
};

void sink_init(struct sink *s, struct ev *ev, int fd, void (*on_change)(void *arg), void *arg);
void sink_done(struct sink *s);
/* Takes all of it. Afterwards sink_has_pending() or s->broken may have become true. */
void sink_write(struct sink *s, const void *data, size_t len);
bool sink_has_pending(const struct sink *s);
