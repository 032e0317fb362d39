/* transport.h - how the frames of a channel cross a descriptor.
 *
 * Two kinds exist. A SOCK_SEQPACKET socket carries one frame in each packet and can pass
 * descriptors. A byte stream (a Unix stream socket, or two pipes) carries frames one after another
 * and nothing else: with it, a runtime can be reached through the standard input and output of any
 * program that relays bytes.
 *
 * Nothing here blocks or calls back. Failures are -1 with errno; EAGAIN means later. */
#pragma once

#include "core/base/fd.h"
#include "core/wire/frame.h"

struct transport_ops;
struct transport {
    const struct transport_ops *ops;
    int in, out; /* out == in for a socket; -1: closed */
    /* A byte stream: the bytes from `at` to `end` were read and are not delivered. NULL before the
     * first read. */
    uint8_t *inbox;
    size_t at, end;
};

/* Takes both descriptors, also on failure, and makes them non-blocking. out == in: a socket, whose
 * type decides which kind it is. Writing to a pipe needs SIGPIPE to be ignored. */
int transport_init(struct transport *t, int in, int out, struct err *err);
void transport_close(struct transport *t, bool hang_up); /* hang_up: no other process holds this end */
bool transport_passes_fds(const struct transport *t);

/* Returns how many bytes were accepted: all or none in packets, any number in a stream. */
ssize_t transport_send(struct transport *t, struct iovec *iov, size_t niov, const int *fds, size_t nfds);
/* Returns the length of one packet, which holds a whole frame unless the peer is wrong, and sets
 * *packet to it, valid until the next call for any transport. 0: the peer has closed. */
ssize_t transport_receive(struct transport *t, const uint8_t **packet, int *fds, size_t *nfds);
/* A whole frame was read already, so no event of the loop will announce it. */
bool transport_has_frame(const struct transport *t);
bool transport_pending(const struct transport *t); /* transport_receive would not fail with EAGAIN */
