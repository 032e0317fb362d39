/* tls_internal.h - internal interface of the TLS front. Only files that include it know OpenSSL. */
#pragma once

#include "server/tls/front.h"

#include <openssl/ssl.h>
#include <stdatomic.h>

#define TLS_RECORD_MAX (16 * 1024) /* maximum payload of a TLS record */

/* Counters that the thread updates and the server's loop reads. */
struct tls_counters {
    _Atomic uint64_t accepted, handshakes, resumed, failed, timed_out, plain, open;
};

/* The part of a front that its relays use; owned by the thread. */
struct tls_relay_set {
    struct ev *ev;
    const struct tls_front_settings *set;
    struct tls_counters *counters;
    struct tls_relay *first;
    struct tls_relay *oldest, *newest; /* list of relays in the handshake */
    unsigned handshaking;
    int handover_fd; /* pipe to the server's loop; carries struct tls_handover */
    void (*on_relay_freed)(void *arg);
    void *arg;
    unsigned char scratch[TLS_RECORD_MAX];
};

struct tls_handover {
    int fd;
    union tls_addr from;
};

/* identity.c */
SSL *tls_identity_session(const struct tls_identity *id);
void tls_identity_rotate_ticket_key(struct tls_identity *id); /* a new key for tickets */

/* relay.c: takes the descriptor. */
void tls_relay_start(struct tls_relay_set *all, int fd, const union tls_addr *from, const struct tls_identity *id);
void tls_relay_abort(struct tls_relay *r);
