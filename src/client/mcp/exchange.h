/* exchange.h - one HTTP exchange with an MCP server: a request, and an answer that is one JSON
 * document or a stream of events. */
#pragma once

#include "client/client.h"
#include "remote/mcp/jsonrpc.h"

#define EXCHANGE_ID_MAX 256u

struct exchange;

struct exchange_spec {
    const char *method;
    const char *path;
    const char *const *headers; /* "Name: value", NULL-terminated, besides those for content types; or NULL */
    const char *body;           /* borrowed until the end; NULL: none */
    size_t len;
    uint32_t silence_ms; /* gives up after this time without a byte; 0: never */
};

struct exchange_result {
    const struct err *err; /* NULL: the answer is complete */
    int status;            /* 0: there was no answer */
    bool is_stream;        /* its events were reported */
    const char *body;      /* of an answer that is not a stream, NUL-terminated; "" if empty */
    size_t len;
    const char *session; /* header Mcp-Session-Id; NULL: absent */
    const char *last_id; /* of the last event; "": none */
    uint32_t retry_ms;   /* wanted by the server before a reconnection; 0: not stated */
};

struct exchange_ops {
    /* One event's data. False: ignore the rest. */
    bool (*on_event)(void *arg, const char *data, size_t len);
    /* Called once, last, unless exchange_cancel() was called. The exchange is gone when it
     * returns. */
    void (*on_end)(void *arg, const struct exchange_result *result);
};

int exchange_start(struct client *c, const struct exchange_spec *spec, const struct exchange_ops *ops, void *arg,
                   struct exchange **ret, struct err *err);
void exchange_cancel(struct exchange *x); /* closes the connection; NULL is accepted */
void exchange_hold(struct exchange *x, bool hold);
