/* front.h - the TLS front: a thread that accepts connections, removes the encryption, and passes
 * the plain bytes to the server's loop as an ordinary stream socket.
 *
 * The server uses the socket as if the client had connected without TLS; the address of the client
 * is passed with it. */
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
    const int *listeners; /* TCP sockets that already listen; borrowed for the front's lifetime */
    size_t nlisteners;
    unsigned conns_max;      /* connections whose handshake is complete */
    unsigned handshakes_max; /* handshakes in progress; one more aborts the oldest of them */
    uint64_t handshake_ms;   /* ms from accept to the end of the handshake */
    uint64_t write_ms;       /* ms in which the client reads no byte after the server has closed its side */
    const char *plain;       /* response to a client that speaks HTTP without TLS; borrowed */
    /* Called in the loop of `ev` when a handshake is complete. Takes the descriptor; closing it
     * ends the connection. */
    void (*on_conn)(void *arg, int fd, const union tls_addr *from);
    void *arg;
};

/* Takes the identity, even on failure. */
int tls_front_new(struct ev *ev, const struct tls_front_settings *set, struct tls_identity *id, struct tls_front **ret,
                  struct err *err);
void tls_front_set_identity(struct tls_front *f, struct tls_identity *id); /* for new connections; takes the identity */
void tls_front_stop_accepting(struct tls_front *f);                        /* existing connections continue */
/* Ends all connections. Bytes that the server has written are still sent if the clients read them
 * within two seconds. */
void tls_front_free(struct tls_front *f);
DEFINE_AUTO(tls_front, tls_front_free);

struct tls_front_stats {
    uint64_t accepted;   /* connections */
    uint64_t handshakes; /* completed handshakes */
    uint64_t resumed;    /* handshakes that resumed an earlier session with a ticket */
    uint64_t failed;     /* failed handshakes: version, certificate, invalid bytes, disconnected */
    uint64_t timed_out;  /* handshakes that timed out or were aborted for newer ones */
    uint64_t plain;      /* clients that spoke HTTP without TLS */
    uint64_t open;       /* open connections, including those in the handshake */
};
void tls_front_stats(const struct tls_front *f, struct tls_front_stats *ret);
