/* The body is sent by a callback that cannot rewind. libcurl would otherwise repeat a request by
 * itself when a kept connection breaks before the answer, and a command would run twice. */
#include "client/mcp/exchange.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"
#include "remote/mcp/sse.h"

#include <strings.h>

#define EXCHANGE_HEADERS_MAX 64u

struct exchange {
    struct fetch_call *call;
    const struct exchange_ops *ops;
    void *arg;
    const char *body; /* rest of the request's body */
    size_t left;
    struct buf answer;
    struct sse *sse; /* NULL: no event stream */
    int status;
    bool is_truncated; /* the answer was larger than a message may be */
    struct err err;
};

static bool exchange_on_event(void *arg, const struct sse_event *e)
{
    struct exchange *x = arg;

    return e->len == 0 || x->ops->on_event(x->arg, e->data, e->len); /* an event without data only carries an id */
}

static void exchange_on_head(void *arg, int status)
{
    struct exchange *x = arg;
    const char *type = fetch_header(x->call, "Content-Type");

    x->status = status;
    if (status < 300 && type && strncasecmp(type, "text/event-stream", 17) == 0)
        x->sse = sse_new(JSONRPC_MESSAGE_MAX, exchange_on_event, x);
}

static void exchange_on_data(void *arg, const void *data, size_t len)
{
    struct exchange *x = arg;

    if (x->err.id != ERR_NONE || x->is_truncated)
        return;
    if (x->sse)
        (void)sse_feed(x->sse, data, len, &x->err);
    else if (x->answer.len + len > JSONRPC_MESSAGE_MAX)
        x->is_truncated = true;
    else
        buf_add(&x->answer, data, len);
}

static ssize_t exchange_on_read(void *arg, void *to, size_t room)
{
    struct exchange *x = arg;
    size_t n = min_size(room, x->left);

    memcpy(to, x->body, n);
    x->body += n;
    x->left -= n;
    return (ssize_t)n;
}

static void exchange_free(struct exchange *x)
{
    sse_free(x->sse);
    buf_done(&x->answer);
    free(x);
}

static void exchange_on_done(void *arg, const struct err *err)
{
    struct exchange *x = arg;
    struct exchange_result r = { .status = x->status, .is_stream = x->sse != NULL, .last_id = "" };

    if (err && x->err.id == ERR_NONE)
        x->err = *err;
    if (x->is_truncated)
        err_set(&x->err, ERR_PROTOCOL, "the answer of the server is larger than %llu bytes", JSONRPC_MESSAGE_MAX);
    r.err = x->err.id != ERR_NONE ? &x->err : NULL;
    r.body = x->answer.data ? x->answer.data : "";
    r.len = x->answer.len;
    r.session = fetch_header(x->call, "Mcp-Session-Id");
    if (x->sse) {
        r.last_id = sse_last_id(x->sse);
        (void)sse_retry_ms(x->sse, &r.retry_ms);
    }
    x->ops->on_end(x->arg, &r);
    exchange_free(x);
}

int exchange_start(struct client *c, const struct exchange_spec *spec, const struct exchange_ops *ops, void *arg,
                   struct exchange **ret, struct err *err)
{
    static const struct fetch_ops receive = { .on_head = exchange_on_head,
                                              .on_data = exchange_on_data,
                                              .on_done = exchange_on_done };
    static const struct fetch_ops send = { .on_head = exchange_on_head,
                                           .on_data = exchange_on_data,
                                           .on_done = exchange_on_done,
                                           .on_read = exchange_on_read };
    const char *headers[EXCHANGE_HEADERS_MAX + 3];
    size_t n = 0;

    headers[n++] = str_eq(spec->method, "GET") ? "Accept: text/event-stream"
                                               : "Accept: application/json, text/event-stream";
    if (spec->body)
        headers[n++] = "Content-Type: application/json";
    for (const char *const *h = spec->headers; h && *h && n < EXCHANGE_HEADERS_MAX; h++)
        headers[n++] = *h;
    headers[n] = NULL;
    struct exchange *x = mem_new(struct exchange);
    x->ops = ops;
    x->arg = arg;
    x->body = spec->body;
    x->left = spec->len;
    const struct fetch_spec fetch = {
        .method = spec->method, .headers = headers, .upload = spec->len, .silence_ms = spec->silence_ms
    };
    if (client_fetch(c, spec->path, &fetch, spec->body ? &send : &receive, x, &x->call, err) < 0) {
        exchange_free(x);
        return -1;
    }
    *ret = x;
    return 0;
}

void exchange_cancel(struct exchange *x)
{
    if (!x)
        return;
    fetch_cancel(x->call);
    exchange_free(x);
}

void exchange_hold(struct exchange *x, bool hold)
{
    fetch_hold(x->call, hold);
}
