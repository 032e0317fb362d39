/* wsock.h - a WebSocket client. libcurl connects, also over TLS or a Unix socket.
 *
 * Opening blocks until the handshake is complete, so it is for programs that have nothing else
 * to do meanwhile. After that the connection runs in the loop: on_message for each message,
 * on_closed once and last; wsock_free at any time, also from inside of either. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct wsock;

struct wsock_ops {
    void (*on_message)(void *arg, const char *text, size_t len);     /* NUL-terminated */
    void (*on_closed)(void *arg, unsigned code, const char *reason); /* 1006: the connection was lost */
};

struct wsock_spec {
    const char *url; /* http:// or https:// */
    const char *unix_socket;
    const char *cacert;            /* file of the certificate authority to trust; NULL: those of this host */
    const char *const *headers;    /* "Name: value", NULL-terminated, or NULL */
    const char *protocol;          /* subprotocol that the server must accept */
    uint64_t handshake_timeout_ns; /* timeout of the handshake; 0: 20 seconds */
};

/* *ret_status and *ret_body receive the response if its status was not 101; otherwise
 * *ret_status is 0. */
int wsock_open(struct ev *ev, const struct wsock_spec *spec, const struct wsock_ops *ops, void *arg, struct wsock **ret,
               int *ret_status, struct buf *ret_body, struct err *err);
void wsock_free(struct wsock *s);
DEFINE_AUTO(wsock, wsock_free);
void wsock_send(struct wsock *s, const char *text, size_t len);
size_t wsock_unsent_bytes(const struct wsock *s); /* bytes that the server has not taken yet */
