/* Deferred teardown of used sandboxes: destroy them, or return them to a pool that recycles. A
 * teardown costs as much CPU time as a run, and no client waits for it. So while requests are
 * queued, sandboxes whose program ended normally wait in a queue: a burst is answered first and
 * cleaned up afterwards.
 *
 * 1. While the executor is busy, no sandbox waits longer than TEARDOWN_HOLD_NS. After a burst at
 *    most TEARDOWN_IN_PROGRESS_MAX are destroyed at the same time, so that the next request finds
 *    the jailer free. So the memory they hold is limited by what the CPUs can fill in that time.
 * 2. A run in this queue has released its executor slot, unless more than TEARDOWN_PENDING_MAX are
 *    waiting: this limits the number of sandboxes that a burst leaves.
 * 3. A sandbox whose program did not end normally is destroyed immediately. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#define TEARDOWN_PENDING_MAX 256u
#define TEARDOWN_IN_PROGRESS_MAX 16u
#define TEARDOWN_HOLD_NS (500 * NS_PER_MS)

static void teardown_pump(struct executor *e);

static void teardown_finish(struct run *r)
{
    struct executor *e = r->executor;

    if (r->counted_in_flight)
        e->teardown.in_progress--;
    run_free(r);
    teardown_pump(e);
}

static void teardown_on_destroyed(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (err && err->id != ERR_MISSING && err->id != ERR_LOST)
        log_warn("sandbox %s: %s", sandbox_handle_id(r->sandbox.handle), err->msg);
    teardown_finish(r);
}

static void teardown_destroy(struct run *r)
{
    if (r->sandbox.handle && !sandbox_handle_is_lost(r->sandbox.handle))
        sandbox_handle_destroy(r->sandbox.handle, teardown_on_destroyed, r);
    else
        teardown_finish(r);
}

/* The pool has taken the sandbox back or refused it. */
static void teardown_on_pool_answer(void *arg)
{
    teardown_destroy(arg);
}

static bool teardown_ended_normally(const struct run *r)
{
    return r->has_receipt && r->receipt.ended_by == ENDED_EXIT && !r->has_error && !r->stop_requested &&
           !r->kernel.was_interrupted;
}

static void teardown_start(struct run *r)
{
    bool full = r->has_receipt && !r->receipt.full_filesystems_why && r->receipt.full_filesystems;

    if (!r->sandbox.handle || sandbox_handle_is_lost(r->sandbox.handle) || r->executor->is_stopping ||
        !ephemeral_sandbox_return_to_pool(&r->sandbox, teardown_ended_normally(r), full, teardown_on_pool_answer))
        teardown_destroy(r);
}

static void teardown_on_removed(void *arg)
{
    teardown_start(arg);
}

/* The sandbox is lost or has ended: its teardown needs no delay. */
void teardown_remove(struct run *r)
{
    struct teardown_queue *g = &r->executor->teardown;
    struct run **at = &g->first;

    if (!r->in_teardown_queue)
        return;
    while (*at != r)
        at = &(*at)->next_teardown;
    *at = r->next_teardown;
    if (!*at)
        g->last = at;
    g->waiting--;
    r->in_teardown_queue = false;
    ev_defer(r->executor->settings.ev, &r->end_defer, teardown_on_removed, r);
}

static void teardown_on_timer(void *arg)
{
    teardown_pump(arg);
}

/* When the hold of the first entry ends; 0: now. */
static uint64_t teardown_hold_until_ns(const struct executor *e)
{
    const struct teardown_queue *g = &e->teardown;
    bool busy = fair_queue_is_busy(&e->queue) && g->waiting <= TEARDOWN_PENDING_MAX && !e->is_stopping;

    return busy ? g->first->ended_ns + TEARDOWN_HOLD_NS : 0;
}

static void teardown_pump(struct executor *e)
{
    struct teardown_queue *g = &e->teardown;
    uint64_t now = ev_now(e->settings.ev);

    while (g->first && g->in_progress < TEARDOWN_IN_PROGRESS_MAX) {
        struct run *r = g->first;
        uint64_t until = teardown_hold_until_ns(e);

        if (until > now) {
            ev_timer_set(e->settings.ev, &g->timer, until, teardown_on_timer, e);
            return;
        }
        g->first = r->next_teardown;
        if (!g->first)
            g->last = &g->first;
        g->waiting--;
        g->in_progress++;
        r->in_teardown_queue = false;
        r->counted_in_flight = true;
        teardown_start(r);
    }
}

void teardown_init(struct executor *e)
{
    e->teardown.last = &e->teardown.first;
}

void teardown_flush(struct executor *e)
{
    teardown_pump(e);
}

void teardown_done(struct executor *e)
{
    ev_timer_clear(e->settings.ev, &e->teardown.timer);
    teardown_init(e);
    e->teardown.first = NULL;
}

void teardown_add(struct run *r)
{
    struct executor *e = r->executor;
    struct teardown_queue *g = &e->teardown;

    if (!r->sandbox.handle || !r->has_receipt || r->stop_requested || r->kernel.was_interrupted) {
        teardown_start(r);
        return;
    }
    r->in_teardown_queue = true;
    r->next_teardown = NULL;
    *g->last = r;
    g->last = &r->next_teardown;
    if (++g->waiting <= TEARDOWN_PENDING_MAX)
        fair_queue_release(&r->slot);
    teardown_pump(e);
}
