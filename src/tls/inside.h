/* inside.h - what the files of this room share. Those that include it know OpenSSL, the others do not. */
#pragma once

#include "tls/front.h"

#include <openssl/ssl.h>
#include <stdatomic.h>

#define RECORD_MAX (16 * 1024) /* bytes that one record of TLS can hold */

/* Figures that the thread counts and the loop reads. */
struct counters {
    _Atomic uint64_t accepted, handshakes, resumed, failed, late, plain, open;
};

/* One thread's half of a front: what relays need of it. */
struct relays {
    struct ev *ev;
    const struct tls_front_settings *set;
    struct counters *counters;
    struct relay *all;
    struct relay *oldest, *newest; /* in the handshake */
    unsigned handshaking;
    int handover; /* pipe to the loop: struct handed */
    void (*on_gone)(void *arg);
    void *arg;
    unsigned char scratch[RECORD_MAX];
};

struct handed {
    int fd;
    union tls_addr from;
};

/* identity.c */
SSL *tls_identity_session(const struct tls_identity *id);
void tls_identity_turn(struct tls_identity *id); /* a new key for tickets */

/* relay.c: takes the descriptor. */
void relay_start(struct relays *all, int fd, const union tls_addr *from, const struct tls_identity *id);
void relay_give_up(struct relay *r);
