/* When the jailer is lost, its sandboxes are lost too. The engine reports the loss to each sandbox
 * before it reports it here, so by then every sandbox is already ending, and all that is left to do
 * is to reconnect. */
#include "service/jailer_link.h"

#include "core/base/backoff.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdio.h>

#define BACKOFF_MIN (100 * NS_PER_MS)
#define BACKOFF_MAX (5 * NS_PER_S)

struct jailer_link {
    struct ev *ev;
    struct jailer_link_ops ops;
    struct engine *engine;
    struct ev_timer timer;
    struct backoff backoff;
    struct ev_defer free_engine_defer;
    uint64_t connections;
    char why_lost[160];
};

static void jailer_link_connect(struct jailer_link *l);

static void jailer_link_free_engine(void *arg)
{
    engine_free(arg);
}

static void jailer_link_on_timer(void *arg)
{
    jailer_link_connect(arg);
}

static void jailer_link_lost(void *arg, const struct err *why)
{
    struct jailer_link *l = arg;

    log_warn("no connection to the jailer: %s", why->msg);
    snprintf(l->why_lost, sizeof(l->why_lost), "no connection to the jailer: %.120s", why->msg);
    l->ops.on_lost(l->ops.arg);
    if (l->engine)
        ev_defer(l->ev, &l->free_engine_defer, jailer_link_free_engine, take_ptr(&l->engine));
    ev_timer_set(l->ev, &l->timer, ev_now(l->ev) + backoff_next(&l->backoff), jailer_link_on_timer, l);
}

static const struct engine_ops jailer_link_engine_ops = { .on_lost = jailer_link_lost };

static int jailer_link_new_engine(struct jailer_link *l, struct err *err)
{
    int jailer = -1, monitor = -1;

    if (l->ops.connect(l->ops.connect_arg, &jailer, &monitor, err) < 0)
        return -1;
    if (engine_new(l->ev, jailer, &jailer_link_engine_ops, l, &l->engine, err) < 0) {
        fd_close(&jailer);
        fd_close(&monitor);
        return -1;
    }
    if (monitor < 0)
        engine_connect_monitor(l->engine);
    else if (engine_set_monitor(l->engine, monitor, err) < 0)
        log_warn("no connection to the monitor: %s", err->msg); /* receipts then say that denials were not counted */
    if (l->ops.egress_socket)
        engine_connect_egress(l->engine, l->ops.egress_socket);
    return 0;
}

static void jailer_link_connect(struct jailer_link *l)
{
    struct err err = { 0 };

    if (jailer_link_new_engine(l, &err) < 0) {
        jailer_link_lost(l, &err);
        return;
    }
    l->connections++;
    backoff_reset(&l->backoff);
    l->ops.on_connected(l->ops.arg);
}

struct jailer_link *jailer_link_new(struct ev *ev, const struct jailer_link_ops *ops)
{
    struct jailer_link *l = mem_new(struct jailer_link);

    *l = (struct jailer_link){ .ev = ev, .ops = *ops, .backoff = { .min_ns = BACKOFF_MIN, .max_ns = BACKOFF_MAX } };
    return l;
}

void jailer_link_start(struct jailer_link *l)
{
    jailer_link_connect(l);
}

void jailer_link_free(struct jailer_link *l)
{
    if (!l)
        return;
    ev_timer_clear(l->ev, &l->timer);
    if (l->free_engine_defer.on) {
        ev_defer_clear(l->ev, &l->free_engine_defer);
        engine_free(l->free_engine_defer.arg);
    }
    engine_free(l->engine);
    free(l);
}

struct engine *jailer_link_engine(const struct jailer_link *l)
{
    return l->engine;
}

const char *jailer_link_why_lost(const struct jailer_link *l)
{
    return l->why_lost;
}

uint64_t jailer_link_connections(const struct jailer_link *l)
{
    return l->connections;
}
