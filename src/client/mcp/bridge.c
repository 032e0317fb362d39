/* Lines in, messages out; the order in which messages are sent; the end.
 *
 * Messages are sent as they arrive, in parallel, except that later ones wait for `initialize` and
 * `notifications/initialized`: a file of requests can be piped into the bridge.
 *
 * At the end of the input the bridge finishes what was asked while its output has a reader. Streams
 * that the client only listens to do not count. */
#include "client/mcp/bridge_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define OUTPUT_HIGH_MARK (4 * MIB)
#define CLOSE_NS (5 * NS_PER_S)

void bridge_write_error(struct bridge *b, const json_t *id, int64_t code, const char *text, const char *data)
{
    auto_buf out = { 0 };

    jsonrpc_write_error(&out, id, code, text, data);
    line_writer_add(b->writer, out.data, out.len);
}

/* --- input --- */

/* A request of the era of single requests is cancelled by closing its connection. */
static bool bridge_cancel_message(struct bridge *b, const struct jsonrpc_message *rpc)
{
    const json_t *id = json_object_get(rpc->params, "requestId");
    struct bridge_message *m = id ? bridge_message_find(b, id) : NULL;

    if (!m)
        return b->link.version == NULL; /* nothing to cancel */
    if (!m->version && m->state != BRIDGE_MESSAGE_WAITING) {
        m->is_cancelled = true;
        return false;
    }
    bridge_message_free(m);
    return true;
}

static void bridge_on_line(void *arg, const char *line, size_t len)
{
    struct bridge *b = arg;
    struct jsonrpc_message rpc;
    struct err err = { 0 };
    int code;

    if (len == 0)
        return;
    if (jsonrpc_parse(line, len, &rpc, &code, &err) < 0)
        bridge_write_error(b, rpc.id, code, err.msg, NULL);
    else if (rpc.kind != JSONRPC_NOTIFICATION || !str_eq(rpc.method, "notifications/cancelled") ||
             !bridge_cancel_message(b, &rpc))
        bridge_message_add(b, &rpc, line, len);
    jsonrpc_message_done(&rpc);
}

static void bridge_on_too_long(void *arg)
{
    auto_free char *text = str_printf("the message is larger than %llu bytes", JSONRPC_MESSAGE_MAX);

    bridge_write_error(arg, NULL, JSONRPC_PARSE_ERROR, text, NULL);
}

static void bridge_on_input_end(void *arg)
{
    struct bridge *b = arg;

    b->input_ended = true;
    bridge_pump_later(b);
}

/* --- output --- */

static void bridge_on_pressure(void *arg, bool high)
{
    struct bridge *b = arg;

    b->is_held = high;
    line_reader_hold(b->reader, high);
    for (struct bridge_message *m = b->messages; m; m = m->next)
        if (m->exchange)
            exchange_hold(m->exchange, high);
    if (b->listener.exchange)
        exchange_hold(b->listener.exchange, high);
    bridge_pump_later(b);
}

static void bridge_on_written(void *arg)
{
    struct bridge *b = arg;

    if (b->is_stopping && b->link.state == BRIDGE_LINK_CLOSED)
        ev_stop(b->settings.ev);
    bridge_pump_later(b);
}

static void bridge_on_output_closed(void *arg)
{
    bridge_stop(arg);
}

/* --- messages --- */

static bool bridge_is_awaited(const struct bridge *b)
{
    for (const struct bridge_message *m = b->messages; m; m = m->next)
        if (m->rpc.kind != JSONRPC_REQUEST ||
            (bridge_message_is_awaited(m) && !str_eq(m->rpc.method, "subscriptions/listen")))
            return true;
    return false;
}

static void bridge_send_waiting(struct bridge *b)
{
    for (struct bridge_message *m = b->messages, *next; m; m = next) {
        next = m->next;
        if (m->state != BRIDGE_MESSAGE_WAITING)
            continue;
        if (b->link.state != BRIDGE_LINK_READY) {
            bridge_link_open(b);
            return; /* bridge_link_open() may free messages */
        }
        if (b->barrier && b->barrier != m)
            return;
        if (bridge_message_is_barrier(m))
            b->barrier = m;
        bridge_message_send(m);
    }
}

static void bridge_pump(void *arg)
{
    struct bridge *b = arg;

    if (b->is_stopping)
        return;
    bridge_send_waiting(b);
    if (b->input_ended && !bridge_is_awaited(b) && line_writer_waiting(b->writer) == 0)
        bridge_stop(b);
}

void bridge_pump_later(struct bridge *b)
{
    ev_defer(b->settings.ev, &b->pump_defer, bridge_pump, b);
}

/* --- life --- */

struct bridge *bridge_new(const struct bridge_settings *set)
{
    static const struct line_reader_ops input = { .on_line = bridge_on_line,
                                                  .on_too_long = bridge_on_too_long,
                                                  .on_end = bridge_on_input_end };
    static const struct line_writer_ops output = { .on_pressure = bridge_on_pressure,
                                                   .on_written = bridge_on_written,
                                                   .on_closed = bridge_on_output_closed };
    struct bridge *b = mem_new(struct bridge);

    b->settings = *set;
    b->mirror = mirror_new();
    b->writer = line_writer_new(set->ev, set->out, OUTPUT_HIGH_MARK, &output, b);
    b->reader = line_reader_new(set->ev, set->in, JSONRPC_MESSAGE_MAX, &input, b);
    return b;
}

void bridge_free(struct bridge *b)
{
    if (!b)
        return;
    while (b->messages)
        bridge_message_free(b->messages);
    bridge_listener_stop(b);
    bridge_link_done(&b->link);
    line_reader_free(b->reader);
    line_writer_free(b->writer);
    mirror_free(b->mirror);
    ev_defer_clear(b->settings.ev, &b->pump_defer);
    ev_timer_clear(b->settings.ev, &b->end_timer);
    free(b->last_version);
    free(b);
}

void bridge_run(struct bridge *b)
{
    ev_run(b->settings.ev);
}

static void bridge_on_end_timer(void *arg)
{
    struct bridge *b = arg;

    ev_stop(b->settings.ev);
}

void bridge_finish(struct bridge *b)
{
    b->link.state = BRIDGE_LINK_CLOSED;
    if (line_writer_waiting(b->writer) == 0)
        ev_stop(b->settings.ev);
}

void bridge_stop(struct bridge *b)
{
    if (b->is_stopping)
        return;
    b->is_stopping = true;
    line_reader_hold(b->reader, true);
    while (b->messages)
        bridge_message_free(b->messages);
    bridge_listener_stop(b);
    ev_timer_set(b->settings.ev, &b->end_timer, ev_now(b->settings.ev) + CLOSE_NS, bridge_on_end_timer, b);
    bridge_link_close(b);
}
