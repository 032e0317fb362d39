/* A response is either one JSON document, which is collected, or a stream of events, which is read
 * as it arrives. A response with an error status is collected too, because an MCP server explains
 * the error in the body.
 *
 * Invariants:
 * 1. An exchange is never freed while libcurl or the reader of events is on the stack, so
 *    on_message may cancel it.
 * 2. All bytes of an exchange count against one bound, so a stream that never ends is cut, also if
 *    it has nothing but comments. */
#include "remote/mcp/mcp_http.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"
#include "remote/mcp/jsonrpc.h"
#include "remote/mcp/sse.h"

#include <strings.h>

#define RETRY_MS 1000u /* before a resumption if the server names no time */
#define RETRY_MS_MIN 50u
#define RETRY_MS_MAX 300000u /* a longer time of the server is cut to this */
#define RESUME_TRIES_MAX 5u  /* with neither a message nor a new id in between */
#define HEADERS_MAX 64u      /* lines of one request; those of a tool are bounded by MCP_TOOL_HEADERS_MAX */
#define ERROR_BODY_MAX (64 * KIB)

struct mcp_http {
    struct ev *ev;
    struct fetch *fetch;
    char *url, *unix_socket, *cacert;
    struct buf headers; /* of the user: NUL-terminated lines */
    size_t header_count;
    struct mcp_exchange *exchanges;
};

enum mcp_body { MCP_BODY_NONE, MCP_BODY_JSON, MCP_BODY_EVENTS, MCP_BODY_REFUSED };

struct mcp_exchange {
    struct mcp_exchange *next;
    struct mcp_http *http;
    const struct mcp_exchange_ops *ops;
    void *arg;
    struct fetch_call *call; /* NULL: between two connections, or ended */
    struct sse *sse;
    struct buf headers; /* of the request: NUL-terminated lines */
    size_t header_count;
    uint32_t silence_ms;
    bool is_resumable, is_ended;
    int status;
    enum mcp_body body;
    struct buf text;            /* MCP_BODY_JSON */
    size_t bytes;               /* received, with all resumptions */
    size_t bytes_without_event; /* received since the last event */
    unsigned tries;             /* resumptions since the last message or new id */
    char *last_id;              /* of a stream that ended; NULL: none */
    char *session;              /* header Mcp-Session-Id; NULL: absent */
    uint32_t retry_ms;
    struct err err; /* why the response was refused; id 0: it was not */
    struct ev_timer resume_timer;
    struct ev_defer end_defer;
};

/* --- the end of an exchange --- */

static void mcp_exchange_destroy(struct mcp_exchange *x)
{
    fetch_cancel(x->call);
    sse_free(x->sse);
    ev_timer_clear(x->http->ev, &x->resume_timer);
    ev_defer_clear(x->http->ev, &x->end_defer);
    buf_done(&x->headers);
    buf_done(&x->text);
    free(x->last_id);
    free(x->session);
    free(x);
}

static void mcp_exchange_free(struct mcp_exchange *x)
{
    list_remove(&x->http->exchanges, x);
    mcp_exchange_destroy(x);
}

static void mcp_exchange_on_freed(void *arg)
{
    mcp_exchange_free(arg);
}

void mcp_exchange_cancel(struct mcp_exchange *x)
{
    if (!x || x->is_ended)
        return;
    x->is_ended = true;
    fetch_cancel(take_ptr(&x->call));
    ev_timer_clear(x->http->ev, &x->resume_timer);
    ev_defer(x->http->ev, &x->end_defer, mcp_exchange_on_freed, x);
}

static void mcp_exchange_on_end(void *arg)
{
    struct mcp_exchange *x = arg;
    bool failed = x->err.id != ERR_NONE;

    if (!x->is_ended) {
        x->is_ended = true;
        x->ops->on_end(x->arg, x->status, failed ? &x->err : NULL);
    }
    mcp_exchange_free(x);
}

/* Ends it with the error in x->err, if any, in a callback of its own. */
static void mcp_exchange_end(struct mcp_exchange *x)
{
    ev_defer(x->http->ev, &x->end_defer, mcp_exchange_on_end, x);
}

/* --- one response --- */

static void mcp_exchange_refuse(struct mcp_exchange *x)
{
    x->body = MCP_BODY_REFUSED;
    if (x->call)
        fetch_cancel(take_ptr(&x->call));
    mcp_exchange_end(x);
}

static bool mcp_exchange_on_event(void *arg, const struct sse_event *e)
{
    struct mcp_exchange *x = arg;

    x->bytes_without_event = 0;
    if (e->len > 0)
        x->tries = 0;
    if (e->len > 0 && str_eq(e->type, "message"))
        x->ops->on_message(x->arg, e->data, e->len);
    return !x->is_ended;
}

static bool mcp_exchange_has_type(const char *type, const char *wanted)
{
    size_t n = strlen(wanted);

    return type && strncasecmp(type, wanted, n) == 0 && (!type[n] || strchr("; \t", type[n]));
}

static void mcp_exchange_on_head(void *arg, int status)
{
    struct mcp_exchange *x = arg;
    const char *type = fetch_header(x->call, "content-type"), *session = fetch_header(x->call, "mcp-session-id");

    x->status = status;
    free(x->session);
    x->session = session ? str_dup(session) : NULL;
    if (status >= 300 && status < 400) {
        err_set(&x->err, ERR_MCP_REFUSED,
                "the server answered with a redirect (%d), which is not followed; give its "
                "final URL",
                status);
        x->body = MCP_BODY_REFUSED;
    } else if (mcp_exchange_has_type(type, "application/json")) {
        x->body = MCP_BODY_JSON;
    } else if (status < 300 && mcp_exchange_has_type(type, "text/event-stream")) {
        x->body = MCP_BODY_EVENTS;
        sse_free(x->sse);
        x->sse = sse_new(JSONRPC_MESSAGE_MAX, mcp_exchange_on_event, x);
    }
    if (x->ops->on_open)
        x->ops->on_open(x->arg, status);
}

/* The server sends a body without a type that MCP knows. An error status explains enough without
 * it. */
static void mcp_exchange_check_type(struct mcp_exchange *x)
{
    const char *type = fetch_header(x->call, "content-type");

    if (x->status >= 300)
        return;
    err_set(&x->err, ERR_MCP_PROTOCOL, "the response has %s%.60s; MCP needs application/json or text/event-stream",
            type ? "the content type " : "no content type", type ? type : "");
    str_strip_control_chars(x->err.msg);
}

static void mcp_exchange_on_data(void *arg, const void *data, size_t len)
{
    struct mcp_exchange *x = arg;
    size_t max = (size_t)(x->status >= 300 ? ERROR_BODY_MAX : JSONRPC_MESSAGE_MAX);

    if (x->is_ended || x->body == MCP_BODY_REFUSED)
        return;
    x->bytes += len;
    x->bytes_without_event += len;
    if (x->body == MCP_BODY_NONE) {
        mcp_exchange_check_type(x);
    } else if (x->body == MCP_BODY_JSON) {
        if (x->text.len + len > max)
            err_set(&x->err, ERR_MCP_LIMIT, "the response is larger than %zu bytes", max);
        else
            buf_add(&x->text, data, len);
    } else {
        (void)sse_feed(x->sse, data, len, &x->err);
        if (x->is_ended)
            return;
        if (x->err.id != ERR_NONE)
            x->err.id = ERR_MCP_LIMIT;
        else if (x->bytes > MCP_HTTP_BYTES_MAX)
            err_set(&x->err, ERR_MCP_LIMIT, "the stream of one response is larger than %u bytes", MCP_HTTP_BYTES_MAX);
        else if (x->bytes_without_event > MCP_HTTP_SILENT_MAX)
            err_set(&x->err, ERR_MCP_LIMIT, "the stream has more than %u bytes without a complete event",
                    MCP_HTTP_SILENT_MAX);
    }
    if (x->err.id != ERR_NONE)
        mcp_exchange_refuse(x);
}

static void mcp_exchange_resume(void *arg);

/* Keeps the id and the time of the stream that ended; false: it cannot be resumed. */
static bool mcp_exchange_plan_resume(struct mcp_exchange *x)
{
    uint32_t retry = RETRY_MS;

    if (!x->is_resumable || x->body != MCP_BODY_EVENTS)
        return false;
    if (*sse_last_id(x->sse) && (!x->last_id || !str_eq(x->last_id, sse_last_id(x->sse)))) {
        x->tries = 0; /* the server counts on: it has nothing to send yet */
        free(x->last_id);
        x->last_id = str_dup(sse_last_id(x->sse));
    }
    if (!x->last_id || ++x->tries > RESUME_TRIES_MAX)
        return false;
    (void)sse_retry_ms(x->sse, &retry);
    x->retry_ms = retry < RETRY_MS_MIN ? RETRY_MS_MIN : retry < RETRY_MS_MAX ? retry : RETRY_MS_MAX;
    ev_timer_set(x->http->ev, &x->resume_timer, ev_now(x->http->ev) + x->retry_ms * NS_PER_MS, mcp_exchange_resume, x);
    return true;
}

static void mcp_exchange_on_done(void *arg, const struct err *err)
{
    struct mcp_exchange *x = arg;

    x->call = NULL;
    if (x->is_ended)
        return;
    if (x->body != MCP_BODY_REFUSED && mcp_exchange_plan_resume(x))
        return;
    if (err && x->err.id == ERR_NONE) {
        x->err = *err;
        if (x->err.id == ERR_UNREACHABLE || x->err.id == ERR_CUT_OFF)
            x->err.id = x->status ? ERR_MCP_ENDED : ERR_MCP_UNREACHABLE;
    }
    if (x->body == MCP_BODY_JSON && x->err.id == ERR_NONE && x->text.len > 0)
        x->ops->on_message(x->arg, x->text.data, x->text.len);
    if (!x->is_ended)
        mcp_exchange_on_end(x);
}

/* --- requests --- */

static const struct fetch_ops exchange_fetch_ops = { mcp_exchange_on_head, mcp_exchange_on_data, mcp_exchange_on_done,
                                                     NULL };

static size_t mcp_http_put_lines(const char **lines, size_t n, const struct buf *from, size_t count)
{
    const char *p = from->data;

    for (size_t i = 0; i < count && n < HEADERS_MAX; i++, p += strlen(p) + 1)
        lines[n++] = p;
    return n;
}

static int mcp_exchange_connect(struct mcp_exchange *x, const char *method, const char *body, size_t len,
                                const char *extra, struct err *err)
{
    const char *lines[HEADERS_MAX + 4];
    struct mcp_http *h = x->http;
    size_t n = 0;

    lines[n++] = str_eq(method, "GET") ? "Accept: text/event-stream" : "Accept: application/json, text/event-stream";
    if (body)
        lines[n++] = "Content-Type: application/json";
    if (extra)
        lines[n++] = extra;
    n = mcp_http_put_lines(lines, n, &h->headers, h->header_count);
    n = mcp_http_put_lines(lines, n, &x->headers, x->header_count);
    lines[n] = NULL;
    const struct fetch_spec spec = { .method = method,
                                     .url = h->url,
                                     .unix_socket = h->unix_socket,
                                     .cacert = h->cacert,
                                     .headers = lines,
                                     .body = body,
                                     .body_len = len,
                                     .silence_ms = x->silence_ms };
    x->status = 0;
    x->body = MCP_BODY_NONE;
    x->bytes_without_event = 0;
    return fetch_start(h->fetch, &spec, &exchange_fetch_ops, x, &x->call, err);
}

static void mcp_exchange_resume(void *arg)
{
    struct mcp_exchange *x = arg;
    auto_free char *id = str_printf("Last-Event-ID: %s", x->last_id);

    str_strip_control_chars(id);
    if (mcp_exchange_connect(x, "GET", NULL, 0, id, &x->err) < 0)
        mcp_exchange_end(x);
}

int mcp_exchange_start(struct mcp_http *h, const struct mcp_exchange_spec *spec, const struct mcp_exchange_ops *ops,
                       void *arg, struct mcp_exchange **ret, struct err *err)
{
    struct mcp_exchange *x = mem_new(struct mcp_exchange);

    x->http = h;
    x->ops = ops;
    x->arg = arg;
    x->silence_ms = spec->silence_ms;
    x->is_resumable = spec->is_resumable;
    const char *p = spec->headers;
    for (size_t i = 0; i < spec->header_count; i++, p += strlen(p) + 1)
        buf_add(&x->headers, p, strlen(p) + 1);
    x->header_count = spec->header_count;
    list_push(&h->exchanges, x);
    if (mcp_exchange_connect(x, spec->method, spec->body, spec->body_len, NULL, err) < 0) {
        mcp_exchange_free(x);
        return -1;
    }
    *ret = x;
    return 0;
}

const char *mcp_exchange_session(const struct mcp_exchange *x)
{
    return x->session;
}

int mcp_exchange_status(const struct mcp_exchange *x)
{
    return x->status;
}

/* --- lifecycle --- */

int mcp_http_new(struct ev *ev, const struct mcp_http_spec *spec, struct mcp_http **ret, struct err *err)
{
    struct fetch *fetch = NULL;
    size_t count = 0;

    if (!str_starts(spec->url, "http://") && !str_starts(spec->url, "https://"))
        return err_set(err, ERR_INVALID, "URL '%.100s': the scheme is not http or https; write http:// or https://",
                       spec->url);
    for (const char *const *l = spec->headers; l && *l; l++, count++)
        if (!strchr(*l, ':') || strpbrk(*l, "\r\n"))
            return err_set(err, ERR_INVALID, "header '%.40s': it is not on one line with a colon; write 'Name: value'",
                           *l);
    if (count > MCP_HTTP_OWN_HEADERS_MAX)
        return err_set(err, ERR_INVALID, "%zu headers are given; use at most %u", count, MCP_HTTP_OWN_HEADERS_MAX);
    if (fetch_new(ev, &fetch, err) < 0)
        return -1;
    struct mcp_http *h = mem_new(struct mcp_http);
    h->ev = ev;
    h->fetch = fetch;
    h->url = str_dup(spec->url);
    h->unix_socket = spec->unix_socket ? str_dup(spec->unix_socket) : NULL;
    h->cacert = spec->cacert ? str_dup(spec->cacert) : NULL;
    for (const char *const *l = spec->headers; l && *l; l++, h->header_count++)
        buf_add(&h->headers, *l, strlen(*l) + 1);
    *ret = h;
    return 0;
}

void mcp_http_free(struct mcp_http *h)
{
    if (!h)
        return;
    for (struct mcp_exchange *x; (x = h->exchanges);) {
        h->exchanges = x->next;
        mcp_exchange_destroy(x);
    }
    fetch_free(h->fetch);
    buf_done(&h->headers);
    free(h->url);
    free(h->unix_socket);
    free(h->cacert);
    free(h);
}
