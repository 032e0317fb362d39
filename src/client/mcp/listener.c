/* The GET stream of the era of sessions. It is opened again when it ends, after the time that the
 * server wants or with back-off, and continues after its last event. */
#include "client/mcp/bridge_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define LISTENER_WAIT_MS 1000u
#define LISTENER_WAIT_MAX_MS 30000u

static void bridge_listener_open(void *arg);

static bool bridge_listener_on_event(void *arg, const char *data, size_t len)
{
    struct bridge *b = arg;

    b->listener.wait_ms = LISTENER_WAIT_MS;
    bridge_forward(b, data, len);
    return true;
}

static void bridge_listener_on_end(void *arg, const struct exchange_result *r)
{
    struct bridge *b = arg;
    struct bridge_listener *l = &b->listener;

    l->exchange = NULL;
    if (!r->err && (r->status >= 400 || !r->is_stream)) { /* none, or the session is lost: the next request opens it */
        l->is_refused = true;
        return;
    }
    if (*r->last_id)
        (void)str_copy(l->last_id, sizeof(l->last_id), r->last_id);
    uint32_t wait = r->retry_ms ? r->retry_ms : l->wait_ms;
    l->wait_ms = (uint32_t)min_u64(l->wait_ms * 2u, LISTENER_WAIT_MAX_MS);
    ev_timer_set(b->settings.ev, &l->timer, ev_now(b->settings.ev) + wait * NS_PER_MS, bridge_listener_open, b);
}

static void bridge_listener_open(void *arg)
{
    static const struct exchange_ops ops = { .on_event = bridge_listener_on_event, .on_end = bridge_listener_on_end };
    struct bridge *b = arg;
    struct bridge_listener *l = &b->listener;
    auto_free char *last = l->last_id[0] ? str_printf("Last-Event-ID: %s", l->last_id) : NULL;
    const char *headers[5] = { 0 };
    size_t n = 0;
    struct err err;

    if (b->link.session)
        headers[n++] = b->link.session;
    if (b->link.version)
        headers[n++] = b->link.version;
    if (last)
        headers[n++] = last;
    const struct exchange_spec spec = { .method = "GET", .path = BRIDGE_PATH, .headers = headers };
    if (exchange_start(b->settings.client, &spec, &ops, b, &l->exchange, &err) < 0)
        report_note("%.200s", err.msg);
    else if (b->is_held)
        exchange_hold(l->exchange, true);
}

/* A server without session ids has nothing to send. */
void bridge_listener_start(struct bridge *b)
{
    struct bridge_listener *l = &b->listener;

    if (!b->link.session || l->exchange || l->is_refused || b->is_stopping)
        return;
    l->wait_ms = LISTENER_WAIT_MS;
    bridge_listener_open(b);
}

void bridge_listener_stop(struct bridge *b)
{
    struct bridge_listener *l = &b->listener;

    exchange_cancel(take_ptr(&l->exchange));
    ev_timer_clear(b->settings.ev, &l->timer);
    l->last_id[0] = '\0';
    l->is_refused = false;
}
