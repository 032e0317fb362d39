/* tls_upstream.h - TLS to an origin server, as a client, over a connected descriptor.
 *
 * Works like a non-blocking socket: the owner is called when it can read or write, and leaves bytes
 * unread as long as it has no room for them. The server must prove the name by a certificate that
 * the system's authorities, or those of the given file, have signed. TLS 1.2 or newer; ALPN
 * http/1.1. The process ignores SIGPIPE. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"

/* The authorities; shared by all connections. Those of the system are read when the first
 * connection is made. */
struct tls_authorities;
/* ca_file: PEM file with certificates to trust in addition; NULL or "": none. */
int tls_authorities_new(const char *ca_file, struct tls_authorities **ret, struct err *err);
void tls_authorities_free(struct tls_authorities *a);
DEFINE_AUTO(tls_authorities, tls_authorities_free);

enum tls_upstream_event {
    TLS_UPSTREAM_OPEN = 1,     /* once: the handshake is complete */
    TLS_UPSTREAM_READABLE = 2, /* tls_upstream_read() may return bytes, the end, or an error */
    TLS_UPSTREAM_WRITABLE = 4,
    TLS_UPSTREAM_FAILED = 8, /* once, in place of OPEN: tls_upstream_failure() says why */
};
/* `events` is a set of tls_upstream_event. Never called inside a call of this module, and not
 * before OPEN or FAILED. The owner may free the connection in it. */
typedef void tls_upstream_fn(void *arg, unsigned events);

enum tls_upstream_io {
    TLS_UPSTREAM_BAD = -1,
    TLS_UPSTREAM_AGAIN = 0, /* nothing to read, or no room to write, at this time */
    TLS_UPSTREAM_OK = 1,    /* *ret_n bytes, at least one */
    TLS_UPSTREAM_END = 2,   /* the server ended its side with close_notify */
};

struct tls_upstream;
/* Takes the descriptor, which must be non-blocking (also if it fails), and starts the handshake.
 * `host` is the name to prove, normalised. The owner sets a time limit itself. `a` must live
 * longer. */
int tls_upstream_new(struct ev *ev, struct tls_authorities *a, int fd, const char *host, tls_upstream_fn *fn, void *arg,
                     struct tls_upstream **ret, struct err *err);
void tls_upstream_free(struct tls_upstream *u); /* closes without waiting */
DEFINE_AUTO(tls_upstream, tls_upstream_free);

/* Which of READABLE and WRITABLE the owner wants to be called for, as long as they are true; at the
 * start none. */
void tls_upstream_want(struct tls_upstream *u, unsigned events);
/* BAD with ERR_CUT_OFF: the connection ended without close_notify, so the end may be another's. */
enum tls_upstream_io tls_upstream_read(struct tls_upstream *u, void *to, size_t room, size_t *ret_n, struct err *err);
enum tls_upstream_io tls_upstream_write(struct tls_upstream *u, const void *data, size_t n, size_t *ret_n,
                                        struct err *err);
/* Sends close_notify and ends the sending side; reading may continue. */
void tls_upstream_shutdown(struct tls_upstream *u);
const struct err *tls_upstream_failure(const struct tls_upstream *u);
