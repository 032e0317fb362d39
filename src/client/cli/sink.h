/* sink.h - writes output to a descriptor without ever blocking the loop.
 *
 * Bytes that cannot be written yet wait in the sink, and `on_change` reports when it has become
 * empty again. The owner stops writing in between (back-pressure), so the sink holds at most the
 * bytes in flight. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

enum sink_mode {
    SINK_NEW,    /* nothing written yet; the type of file is unknown */
    SINK_PLAIN,  /* never blocks for long: regular files, /dev/null */
    SINK_OWN,    /* our own non-blocking open file description */
    SINK_SOCKET, /* written with MSG_DONTWAIT */
    SINK_SHARED, /* shared with other processes, so it must stay blocking: poll before every small write */
};

struct sink {
    struct ev *ev;
    int fd;
    enum sink_mode mode;
    struct ev_io io;
    struct buf pending;
    bool broken; /* the reader is gone or the disk is full: all further output is dropped */
    int error;   /* errno of the write that broke it */
    void (*on_change)(void *arg);
    void *arg;
};

void sink_init(struct sink *s, struct ev *ev, int fd, void (*on_change)(void *arg), void *arg);
void sink_done(struct sink *s);
/* Accepts all bytes. Afterwards sink_has_pending() or s->broken may be true. */
void sink_write(struct sink *s, const void *data, size_t len);
bool sink_has_pending(const struct sink *s);
