/* http_front_internal.h - what the three files of the HTTP front share: http_front.c reads and
 * writes the client, http_request.c decides and starts a request, http_answer.c reads the
 * origin. */
#pragma once

#include "core/http1/body.h"
#include "core/http1/write.h"
#include "host/egress/http_front.h"
#include "host/egress/http_target.h"
#include "host/egress/last_words.h"
#include "host/egress/origin.h"
#include "host/egress/secret_way.h"

struct http_exchange { /* one request and its response */
    struct buf head;   /* the head of the request as it came; `request` points into it */
    struct http1_request request;
    char method[32];
    struct egress_secret *secret; /* NULL: none is added */
    bool may_upgrade;
    struct buf to_origin; /* not written yet */
    struct http1_body body;
    bool is_sent; /* all of the request was read from the client */

    struct buf answer_head; /* while it is incomplete */
    size_t answer_seen;
    bool has_answer, has_bytes;
    struct http1_body answer_body;
    struct secret_body secret_body; /* with a secret, after the head */
    bool keep_client, keep_origin;
};

struct http_front {
    struct egress_conn *conn;
    enum http_front_mode mode;
    struct http_target bound;
    struct ev_io io;
    struct buf in; /* of the client, not parsed yet */
    size_t in_seen;
    struct buf out; /* for the client */
    bool client_ended;
    size_t held; /* bytes counted in shares */
    uint64_t active_at, head_at /* first byte of an incomplete head; 0: none */;
    struct ev_timer timer, retry_timer;
    struct ev_defer start_defer, end_defer;
    void (*on_end)(struct http_front *f); /* not NULL: the front ends in this turn */

    struct http_exchange *x; /* NULL: between requests */
    struct upstream_open *open;
    struct ev_timer open_timer; /* above the rate of new connections */
    bool has_opened;            /* the first one counts as the client's */
    struct origin *origin;      /* NULL: not connected */
    struct http_target origin_target;
    const struct egress_secret *origin_secret;
    bool origin_is_open;   /* the handshake of TLS is over */
    bool origin_is_reused; /* for a second request: it may have been closed meanwhile */
};

static inline struct egress_proxy *http_front_proxy(const struct http_front *f)
{
    return f->conn->sandbox->proxy;
}

/* http_front.c. After one of the ends nothing more is read or written by the front. */
void http_front_close(struct http_front *f);
void http_front_abort(struct http_front *f);  /* the client sees a reset */
void http_front_finish(struct http_front *f); /* sends what is in `out` first */
void http_front_refuse(struct http_front *f, unsigned status, const char *code, const char *reason, const char *fix);
void http_front_end_by(struct http_front *f, void (*on_end)(struct http_front *));
void http_front_send(struct http_front *f, const void *data, size_t n);
bool http_front_must_wait(struct http_front *f); /* before a read: the tenant has had its share */
void http_front_pump(struct http_front *f);      /* does what is possible now; call it last */

/* http_request.c */
bool http_request_read(struct http_front *f); /* false: more bytes are needed, or the front has ended */
void http_request_pass_body(struct http_front *f, const char *data, size_t n, size_t *ret_n);
void http_request_flush(struct http_front *f);
int http_request_write(struct http_front *f, struct err *err); /* its head, for the origin */
void http_request_open(
    struct http_front *f); /* opens a connection to the origin of the request, or uses the open one */
bool http_request_is_allowed(const struct http_front *f);
void http_exchange_free(struct http_exchange *x); /* NULL is accepted */

/* http_answer.c */
void http_answer_on_origin(void *arg, unsigned events);
void http_answer_drop_origin(struct http_front *f);
void http_answer_fail(struct http_front *f, unsigned status, const char *code, const char *reason);
