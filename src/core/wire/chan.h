/* chan.h - frames over a transport in an event loop.
 *
 * Sending never blocks: packets that the socket does not accept are queued and sent when it is
 * writable. When the queue passes the high-water mark, chan_full() returns true and the owner must
 * stop producing (the stream windows make that possible). A peer whose queue still grows to the
 * hard limit does not read its replies, and loses the channel.
 *
 * Receiving passes each valid frame to on_frame. An invalid packet, a descriptor on a channel that
 * does not accept descriptors, or end of file calls on_end once; after that the channel is dead.
 * When the peer disconnects, the frames it sent before are still delivered, and on_end comes after
 * them. Sending never calls back: on_end and on_drain are called by the loop. Callbacks may call
 * chan_done(), but must not free the memory of the channel (use ev_defer). */
#pragma once

#include "core/base/fd.h"
#include "core/ev/ev.h"
#include "core/wire/transport.h"

#define CHAN_HIGH (1024u * 1024u)
#define CHAN_HARD (8u * CHAN_HIGH)

struct chan_ops {
    /* The callee owns the `nfds` descriptors in `fds`. The payload of `f` is valid only during the
     * call. */
    void (*on_frame)(void *arg, const struct frame *f, int *fds, size_t nfds);
    void (*on_end)(void *arg, const struct err *why); /* why->id is ERR_LOST at end of file */
    void (*on_drain)(void *arg);                      /* the queue fell below the high-water mark; may be NULL */
};

struct chan {
    struct ev *ev;
    struct transport transport;
    struct ev_io io;     /* reads, and writes unless `writer` is used */
    struct ev_io writer; /* of a transport with a descriptor of its own for writing */
    const struct chan_ops *ops;
    void *arg;
    bool fds_allowed;
    bool is_sole_holder; /* set by the owner: no other process holds this end; closing shuts the socket down */
    bool dead;
    bool paused;
    bool was_full;                   /* on_drain is to be called */
    struct chan_packet *head, *tail; /* queued packets */
    size_t queued;                   /* memory used by the queued packets, in bytes */
    struct err send_error;           /* id is set when sending failed permanently; on_end will follow */
    struct ev_defer after_failure, more;
};

/* Takes ownership of fd, a socket, also on failure, and makes it non-blocking. A SOCK_SEQPACKET
 * socket passes descriptors, a stream socket does not: sending some on it ends the channel. */
int chan_init(struct chan *c, struct ev *ev, int fd, bool fds_allowed, const struct chan_ops *ops, void *arg,
              struct err *err);
/* The same over two pipes, or any two descriptors that are read and written as byte streams. */
int chan_init_pair(struct chan *c, struct ev *ev, int in, int out, bool fds_allowed, const struct chan_ops *ops,
                   void *arg, struct err *err);
void chan_done(struct chan *c); /* on_end is not called; a zeroed or finished channel is accepted */
/* The kernel duplicates fds; the caller still owns and closes them. Does nothing on a dead channel.
 */
void chan_send(struct chan *c, const struct frame *f);
void chan_send_fds(struct chan *c, const struct frame *f, const int *fds, size_t nfds);
bool chan_full(const struct chan *c);
bool chan_idle(const struct chan *c); /* nothing queued */
/* True if data or a disconnect has arrived for which on_frame or on_end was not called yet. So a
 * caller that has seen an effect of a peer can check whether the peer's earlier frames are still
 * unread. */
bool chan_pending(const struct chan *c);
void chan_pause(struct chan *c, bool paused); /* pause or continue reading */
