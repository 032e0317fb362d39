/* wsock.h - a WebSocket to somebody's server, as its client. libcurl connects, over TLS or a Unix socket too.
 *
 * Opening it waits until the handshake is through, so it is for programs that have nothing else to do meanwhile. From
 * then on it lives in the loop: on_message for each message, on_closed once and last; wsock_free at any time, also from
 * inside of either. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct wsock;

struct wsock_ops {
    void (*on_message)(void *arg, const char *text, size_t len);     /* NUL-terminated */
    void (*on_closed)(void *arg, unsigned code, const char *reason); /* 1006: the connection broke */
};

struct wsock_spec {
    const char *url; /* http:// or https:// */
    const char *unix_socket;
    const char *cacert;            /* file of the authority to trust; NULL: those of this machine */
    const char *const *headers;    /* "Name: value", NULL-terminated, or NULL */
    const char *protocol;          /* that the server has to agree on */
    uint64_t handshake_timeout_ns; /* until the handshake has to be through; 0: 20 seconds */
};

/* *ret_status and *ret_body tell what was answered when it was not 101; otherwise status is 0. */
int wsock_open(struct ev *ev, const struct wsock_spec *spec, const struct wsock_ops *ops, void *arg, struct wsock **ret,
               int *ret_status, struct buf *ret_body, struct err *err);
void wsock_free(struct wsock *s);
DEFINE_AUTO(wsock, wsock_free);
void wsock_send(struct wsock *s, const char *text, size_t len);
size_t wsock_unsent_bytes(const struct wsock *s); /* bytes that the server has not taken yet */
