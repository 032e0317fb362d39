/* front.h - the doorkeepers of TLS: a thread that accepts connections, takes the encryption off, and hands what is
 * inside to the loop as an ordinary stream socket.
 *
 * Whoever gets the socket serves it as if the client had come without TLS; the address of the client comes with it. */
#pragma once

#include "core/ev/ev.h"
#include "server/tls/identity.h"

#include <netinet/in.h>

struct tls_front;

union tls_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct tls_front_settings {
    const int *listeners; /* TCP sockets that listen already; borrowed for the front's life */
    size_t nlisteners;
    unsigned conns_max;      /* connections whose handshake is done */
    unsigned handshakes_max; /* handshakes under way; for one more, the oldest of them is given up */
    uint64_t handshake_ms;   /* from accept to the end of the handshake */
    uint64_t write_ms;       /* without a byte taken by the client, once the server has closed its side */
    const char *plain;       /* sent to a client that speaks HTTP without TLS; borrowed */
    /* In the loop of `ev`: a handshake is done. The descriptor is taken; closing it ends the connection. */
    void (*on_conn)(void *arg, int fd, const union tls_addr *from);
    void *arg;
};

/* The identity is taken, also on failure. */
int tls_front_new(struct ev *ev, const struct tls_front_settings *set, struct tls_identity *id, struct tls_front **ret,
                  struct err *err);
void tls_front_set_identity(struct tls_front *f, struct tls_identity *id); /* for connections from now on; taken */
void tls_front_stop_accepting(struct tls_front *f);                        /* accepts no more */
/* Ends all of it. What the server had written is still sent, if the clients take it within two seconds. */
void tls_front_free(struct tls_front *f);
DEFINE_AUTO(tls_front, tls_front_free);

struct tls_front_stats {
    uint64_t accepted;   /* connections */
    uint64_t handshakes; /* of them, done */
    uint64_t resumed;    /* of those, with a ticket of an earlier one */
    uint64_t failed;     /* wrong in any way: version, certificate, garbage, gone */
    uint64_t timed_out;  /* not done in time, or given up for newer ones */
    uint64_t plain;      /* spoke HTTP without TLS */
    uint64_t open;       /* now, with those that are in the handshake */
};
void tls_front_stats(const struct tls_front *f, struct tls_front_stats *ret);
