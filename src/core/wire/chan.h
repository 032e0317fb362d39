/* chan.h - frames over a SOCK_SEQPACKET socket inside an ev loop.
 *
 * Sending never blocks: what the socket does not take is queued and goes out when it is writable. The queue has a high
 * mark; chan_full() says it was passed and the owner must stop producing (windows make sure that it can). A peer that
 * lets the queue grow to the hard mark all the same does not read its answers, and loses the channel.
 *
 * Receiving hands each valid frame to on_frame; a packet that is no frame, a descriptor on a channel that expects none,
 * or end of file calls on_end once, and the channel is dead from then on. When the other side is gone, what it said
 * before is still delivered, and on_end comes after it. Sending never calls back: on_end and on_drain come from the
 * loop. Callbacks may call chan_done(), but not free the memory that holds the channel (ev_defer that). */
#pragma once

#include "core/base/fd.h"
#include "core/ev/ev.h"
#include "core/wire/frame.h"

#define CHAN_HIGH (1024u * 1024u)
#define CHAN_HARD (8u * CHAN_HIGH)

struct chan_ops {
    /* fds are the descriptors that came along, `nfds` of them; the callee owns them. The payload is borrowed: it is
     * gone when the call returns. */
    void (*on_frame)(void *arg, const struct frame *f, int *fds, size_t nfds);
    void (*on_end)(void *arg, const struct err *why); /* why->id is ERR_LOST at a plain end of file */
    void (*on_drain)(void *arg);                      /* the queue fell under the high mark again; may be NULL */
};

struct chan {
    struct ev *ev;
    struct ev_io io;
    const struct chan_ops *ops;
    void *arg;
    bool fds_allowed;
    bool is_sole_holder; /* set by the owner: nobody else holds this end, so its last word hangs up */
    bool dead;
    bool paused;
    bool was_full;                   /* on_drain is owed */
    struct chan_packet *head, *tail; /* queued packets */
    size_t queued;                   /* bytes that they take in memory */
    struct err send_error;           /* id is set when sending failed for good; on_end is to follow */
    struct ev_defer after_failure;
};

/* Takes ownership of fd, also when it fails, and makes it non-blocking. */
int chan_init(struct chan *c, struct ev *ev, int fd, bool fds_allowed, const struct chan_ops *ops, void *arg,
              struct err *err);
void chan_done(struct chan *c); /* on_end is not called; a zeroed or finished channel is accepted */
/* fds are duplicated by the kernel; the caller still owns and closes them. Nothing happens on a dead channel. */
void chan_send(struct chan *c, const struct frame *f);
void chan_send_fds(struct chan *c, const struct frame *f, const int *fds, size_t nfds);
bool chan_full(const struct chan *c);
bool chan_idle(const struct chan *c); /* nothing queued */
/* Something arrived, or the other side is gone, and on_frame or on_end has yet to say so. What a peer sent before it
 * caused something that we have already seen is not missed by asking this. */
bool chan_pending(const struct chan *c);
void chan_pause(struct chan *c, bool paused); /* stop or go on reading */
