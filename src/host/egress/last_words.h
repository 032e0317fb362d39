/* last_words.h - ends a connection with a reason that its client understands.
 *
 * The client sees the answer and not a reset: the sending side is closed after it, and what the
 * client still sends is discarded for a short time. */
#pragma once

#include "core/base/buf.h"
#include "host/egress/client_hello.h"
#include "host/egress/egress_conn.h"

struct http_refusal {
    unsigned status;     /* 400, 403, 502, 504, ... */
    const char *code;    /* of the JSON body */
    const char *reason;  /* printable ASCII */
    const char *fix;     /* "": none */
    const char *subject; /* "HOST:PORT" that was refused; "": none */
};
/* A whole response. The reason phrase is "Egress denied: SUBJECT, REASON" with 403: half of all
 * clients print nothing else. */
void http_refusal_write(const struct http_refusal *r, bool is_head, struct buf *out);

/* Each takes the connection over and ends it. */
void last_words_say(struct egress_conn *c, const void *data, size_t n);
void last_words_refuse_http(struct egress_conn *c, const struct http_refusal *r, bool is_head);
/* Waits for the client's first bytes to know its protocol: an alert to TLS, a response to HTTP, and
 * a reset to anything else or to silence. */
void last_words_refuse_any(struct egress_conn *c, enum tls_alert alert, const struct http_refusal *r);
/* True if the bytes may begin a request of HTTP. */
bool last_words_is_http(const char *data, size_t n);
