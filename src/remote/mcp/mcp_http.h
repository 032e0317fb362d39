/* mcp_http.h - HTTP exchanges with one MCP server (Streamable HTTP): one request, and the messages in
 * its response, which is JSON or a stream of events.
 *
 * The server is not trusted: redirects are not followed, a response of another content type is an
 * error, and every size is bounded. An exchange ends when the response ends. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#define MCP_HTTP_BYTES_MAX (64u * 1024u * 1024u) /* of all bytes of one exchange, with its resumptions */
#define MCP_HTTP_SILENT_MAX (9u * 1024u * 1024u) /* bytes of a stream until an event is complete: also comments */
#define MCP_HTTP_OWN_HEADERS_MAX 16u             /* headers of the user in each request */

struct mcp_http;
struct mcp_exchange;

struct mcp_http_spec {
    const char *url;
    const char *const *headers; /* "Name: value" of the user, NULL-terminated, or NULL; copied */
    const char *unix_socket;    /* connect to it whatever the host in the URL is; NULL: TCP */
    const char *cacert;         /* as in fetch.h */
};

int mcp_http_new(struct ev *ev, const struct mcp_http_spec *spec, struct mcp_http **ret, struct err *err);
void mcp_http_free(struct mcp_http *h); /* ends its exchanges; no callback follows */

struct mcp_exchange_ops {
    void (*on_open)(void *arg, int status); /* the head of a response arrived; may be NULL */
    /* The text of one message. May end the exchange. */
    void (*on_message)(void *arg, const char *text, size_t len);
    /* The end; the exchange is freed after it. `status` is 0 if there was no response. An error:
     * the response was refused or broke off. */
    void (*on_end)(void *arg, int status, const struct err *err);
};

struct mcp_exchange_spec {
    const char *method;
    const char *body; /* JSON text, or NULL */
    size_t body_len;
    const char *headers; /* lines, each NUL-terminated; copied */
    size_t header_count;
    uint32_t silence_ms; /* as in fetch.h */
    /* A stream of events that ends is resumed with GET and Last-Event-ID if an event had an id; the
     * caller ends the exchange when it has what it needs. */
    bool is_resumable;
};

int mcp_exchange_start(struct mcp_http *h, const struct mcp_exchange_spec *spec, const struct mcp_exchange_ops *ops,
                       void *arg, struct mcp_exchange **ret, struct err *err);
/* Ends the exchange and closes its connection; no callback follows. May be called in on_message. */
void mcp_exchange_cancel(struct mcp_exchange *x);
/* The header Mcp-Session-Id of the response, in on_message and on_end. NULL: absent. */
const char *mcp_exchange_session(const struct mcp_exchange *x);
int mcp_exchange_status(const struct mcp_exchange *x);
