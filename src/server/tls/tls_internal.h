/* tls_internal.h - what the files of this room share. Those that include it know OpenSSL, the others do not. */
#pragma once

#include "server/tls/front.h"

#include <openssl/ssl.h>
#include <stdatomic.h>

#define TLS_RECORD_MAX (16 * 1024) /* bytes that one record of TLS can hold */

/* Figures that the thread counts and the loop reads. */
struct tls_counters {
    _Atomic uint64_t accepted, handshakes, resumed, failed, timed_out, plain, open;
};

/* One thread's half of a front: what relays need of it. */
struct tls_relay_set {
    struct ev *ev;
    const struct tls_front_settings *set;
    struct tls_counters *counters;
    struct tls_relay *first;
    struct tls_relay *oldest, *newest; /* in the handshake */
    unsigned handshaking;
    int handover_fd; /* pipe to the loop: struct tls_handover */
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
