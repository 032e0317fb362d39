/* The stream on which a server reports changes of its tools, and on which a legacy server may
 * ask questions: subscriptions/listen of a modern server, GET of a legacy one; over stdio a
 * legacy server needs none. A legacy server loses a question that it asks before its stream is
 * open, so calls wait for the stream, but not long. A stream that ends is opened again after a
 * back-off, unless the server has none. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/str.h"

#define LISTEN_OPEN_NS (250 * NS_PER_MS) /* until calls start without the stream */
#define LISTEN_WAIT_MIN_NS (1 * NS_PER_S)
#define LISTEN_WAIT_MAX_NS (60 * NS_PER_S)

static void mcp_listen_open(void *arg);

static void mcp_listen_report(struct mcp_client *c)
{
    void (*on_listening)(struct mcp_client *) = take_ptr(&c->on_listening);

    if (on_listening)
        on_listening(c);
}

void mcp_listen_retry(struct mcp_client *c)
{
    mcp_listen_report(c);
    if (c->state != MCP_CLIENT_READY)
        return;
    c->listen_wait_ns = c->listen_wait_ns ? min_u64(c->listen_wait_ns * 2, LISTEN_WAIT_MAX_NS) : LISTEN_WAIT_MIN_NS;
    ev_timer_set(c->ev, &c->listen_timer, ev_now(c->ev) + c->listen_wait_ns, mcp_listen_open, c);
}

static void mcp_listen_on_open(void *arg, int status UNUSED)
{
    mcp_listen_report(arg);
}

static void mcp_listen_on_message(void *arg, const char *text, size_t len)
{
    struct mcp_client *c = arg;

    c->listen_wait_ns = 0;
    mcp_incoming(c, NULL, text, len);
}

static void mcp_listen_on_end(void *arg, int status, const struct err *err UNUSED)
{
    struct mcp_client *c = arg;

    c->listen = NULL;
    if (status < 400)
        mcp_listen_retry(c);
    else
        mcp_listen_report(c); /* 405: the server has no such stream */
}

static void mcp_listen_open(void *arg)
{
    static const struct mcp_exchange_ops ops = { mcp_listen_on_open, mcp_listen_on_message, mcp_listen_on_end };
    struct mcp_client *c = arg;
    auto_buf headers = { 0 };
    size_t count = 0;

    if (c->era == MCP_ERA_MODERN) {
        mcp_listen_report(c); /* first, because a call starts only when the server is open */
        mcp_client_call_start_internal(c, MCP_LISTEN, 0, NULL);
        return;
    }
    if (!c->http || c->listen || c->state == MCP_CLIENT_CLOSED) {
        mcp_listen_report(c);
        return;
    }
    mcp_header_add(&headers, "MCP-Protocol-Version", c->version);
    count++;
    if (c->session) {
        mcp_header_add(&headers, "Mcp-Session-Id", c->session);
        count++;
    }
    const struct mcp_exchange_spec spec = { .method = "GET", .headers = headers.data, .header_count = count };
    if (mcp_exchange_start(c->http, &spec, &ops, c, &c->listen, NULL) < 0)
        mcp_listen_retry(c);
}

static void mcp_listen_on_slow(void *arg)
{
    mcp_listen_report(arg);
}

void mcp_listen_start(struct mcp_client *c, void (*on_listening)(struct mcp_client *c))
{
    const json_t *tools = json_object_get(c->capabilities, "tools");
    bool is_watching = c->watches_tools && json_is_true(json_object_get(tools, "listChanged"));
    bool is_answering = c->era == MCP_ERA_LEGACY && (c->answers_elicitation || c->answers_sampling || c->answers_roots);

    c->on_listening = on_listening;
    if (!is_watching && !is_answering) {
        mcp_listen_report(c);
        return;
    }
    ev_timer_set(c->ev, &c->listen_timer, ev_now(c->ev) + LISTEN_OPEN_NS, mcp_listen_on_slow, c);
    mcp_listen_open(c);
}

void mcp_listen_stop(struct mcp_client *c)
{
    c->on_listening = NULL;
    mcp_exchange_cancel(take_ptr(&c->listen));
    ev_timer_clear(c->ev, &c->listen_timer);
}
