/* server.h - TLS for a server: the certificate from where it comes, renewed while connections go on, and the front
 * that uses it. */
#pragma once

#include "server/tls/front.h"

struct tls_server;

struct tls_server_settings {
    struct pem_paths paths;          /* to read by ourselves; borrowed */
    int source;                      /* or a socket to somebody who reads them (struct pem_source), taken; -1: none */
    struct tls_front_settings front; /* borrowed as front.h says; the listening sockets are taken */
};

/* Fails when the first certificate cannot be had or used. One that is out of date is used, and complained about: the
 * clients will say the same, and the owner can still come in over the Unix socket. */
int tls_server_new(struct ev *ev, const struct tls_server_settings *set, struct tls_server **ret, struct err *err);
/* Reads the certificate again. What cannot be used, or is out of date, is complained about in the log, and the one
 * before stays. Changes of the files are noticed without being told. */
void tls_server_reload(struct tls_server *t);
void tls_server_stop_accepting(struct tls_server *t); /* accepts no more */
void tls_server_free(struct tls_server *t);
DEFINE_AUTO(tls_server, tls_server_free);

/* In the text format of Prometheus. */
void tls_server_metrics(const struct tls_server *t, struct buf *out);

/* What the log should say about a certificate that ends at not_after: nothing, soon, or already. */
enum tls_expiry { TLS_EXPIRES_LATER, TLS_EXPIRES_SOON, TLS_EXPIRED };
enum tls_expiry tls_expiry_of(uint64_t not_after_ms, uint64_t now_ms);
