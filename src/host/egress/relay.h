/* relay.h - carries bytes between two connected sockets, in both directions.
 *
 * A direction holds memory only while its receiver is slower than its sender, and then at most
 * RELAY_BUFFER bytes; its sender is not read meanwhile. The end of one direction is passed on as
 * the end of that direction only. */
#pragma once

#include "core/ev/ev.h"
#include "host/egress/shares.h"

#define RELAY_BUFFER (64u * 1024u)
/* A connection without any bytes for this long ends. An answer may take its time: models compute
 * for minutes before the first byte. */
#define RELAY_IDLE_NS (3600 * NS_PER_S)

enum relay_verdict { RELAY_MORE, RELAY_PASS, RELAY_REFUSE };
enum relay_end {
    RELAY_FINISHED, /* both directions have ended */
    RELAY_BROKEN,   /* one side reset its connection */
    RELAY_IDLE,
    RELAY_REFUSED, /* inspect() refused */
    RELAY_STOPPED, /* on_bytes() returned false */
};

struct relay_ops {
    /* The first bytes of the client, all that have arrived. They are kept until PASS, at most
     * RELAY_BUFFER of them. NULL: pass everything. `ended`: no more will arrive. */
    enum relay_verdict (*inspect)(void *arg, const uint8_t *data, size_t n, bool ended);
    /* After bytes were passed on. False ends the relay. */
    bool (*on_bytes)(void *arg, size_t sent, size_t received);
    /* Once. The callee may free the relay. Both descriptors have left the loop. */
    void (*on_end)(void *arg, enum relay_end why);
};

struct relay;
/* Shared by all relays of one loop. */
struct relay_shared {
    struct ev *ev;
    struct shares *shares;
    uint8_t *scratch; /* RELAY_BUFFER bytes */
};

/* Borrows both descriptors, which must be non-blocking and in no loop. `first` are bytes of the
 * client that were read already. Calls back only from the loop. Fails without descriptors of
 * epoll. */
int relay_new(struct relay_shared *shared, struct share_tenant *tenant, int client, int server, const void *first,
              size_t nfirst, const struct relay_ops *ops, void *arg, struct relay **ret, struct err *err);
void relay_free(struct relay *r); /* on_end is not called; NULL is accepted */
