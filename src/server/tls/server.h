/* server.h - TLS for a server: loads the certificate, renews it while connections continue, and
 * runs the front that uses it. */
#pragma once

#include "server/tls/front.h"

struct tls_server;

struct tls_server_settings {
    struct pem_paths paths;          /* files that this process reads itself; borrowed */
    int source;                      /* socket of a process that reads the files (struct pem_source), taken; -1: none */
    struct tls_front_settings front; /* borrowed as described in front.h; the listening sockets are taken */
};

/* Fails if the first certificate cannot be obtained or used. An expired certificate is used with an
 * error in the log: clients will report it too, and the owner can still use the Unix socket. */
int tls_server_new(struct ev *ev, const struct tls_server_settings *set, struct tls_server **ret, struct err *err);
/* Reads the certificate again. If it is unusable or expired, that is logged and the previous one
 * stays in use. Changes of the files are detected without this call. */
void tls_server_reload(struct tls_server *t);
void tls_server_stop_accepting(struct tls_server *t); /* existing connections continue */
void tls_server_free(struct tls_server *t);
DEFINE_AUTO(tls_server, tls_server_free);

/* Appends metrics in the Prometheus text format. */
void tls_server_metrics(const struct tls_server *t, struct buf *out);

/* Whether the log must warn about a certificate that ends at not_after: not yet, soon, or already
 * expired. */
enum tls_expiry { TLS_EXPIRES_LATER, TLS_EXPIRES_SOON, TLS_EXPIRED };
enum tls_expiry tls_expiry_of(uint64_t not_after_ms, uint64_t now_ms);
