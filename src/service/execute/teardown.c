/* Sandboxes that were used and have to go, or go back to a pool that recycles. Ending one costs as much of the
 * processors as a run does, and nobody waits for it: while others wait for their answers, those that ended by
 * themselves stand in a line. So a burst is answered first and cleared away behind.
 *
 * 1. Nobody stands in the line for longer than TEARDOWN_HOLD_NS if there is anything else to do, and behind a burst
 * they go a few at a time, so that who comes next finds the jailer free. What all of them can hold of memory is
 * therefore what the processors can fill in that time.
 * 2. One that stands in the line has given its place to the next, unless the line is long already: a burst leaves at
 *    most so many sandboxes behind.
 * 3. Whatever did not end by itself goes at once. */
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

/* The pool that lent it was asked whether it wants it back. */
static void teardown_on_pool_answer(void *arg)
{
    teardown_destroy(arg);
}

static bool teardown_ended_normally(const struct run *r)
{
    return r->has_receipt && r->receipt.ended_by == ENDED_EXIT && !r->has_error && !r->stop_requested &&
           !r->interrupt_sent;
}

static void teardown_start(struct run *r)
{
    bool full = r->has_receipt && !r->receipt.full_filesystems_why && r->receipt.full_filesystems;

    if (!r->sandbox.handle || sandbox_handle_is_lost(r->sandbox.handle) || r->executor->is_stopping ||
        !ephemeral_sandbox_return_to_pool(&r->sandbox, &r->spec, teardown_ended_normally(r), full,
                                          teardown_on_pool_answer))
        teardown_destroy(r);
}

static void teardown_on_removed(void *arg)
{
    teardown_start(arg);
}

/* Its box is lost, or ended by itself: whoever takes it away need not be waited for. */
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

/* Until when the first of the line stays there; 0: it need not. */
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

    if (!r->sandbox.handle || !r->has_receipt || r->stop_requested || r->interrupt_sent) {
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
