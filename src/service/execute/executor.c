/* The queue and the table of runs.
 *
 * A run starts immediately if a slot is free. Otherwise it waits in the line of its tenant, and
 * slots are assigned to the lines round-robin (core/ev/fair_queue.h). A sandbox that waits for its
 * teardown does not hold a slot, but the number of such sandboxes is limited (teardown.c). */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <assert.h>

#define EXECUTOR_MAX_HOLD_NS (UINT64_C(366) * 86400 * NS_PER_S) /* slots are always released, never expired */

struct executor *executor_new(const struct executor_settings *set)
{
    struct executor *e = mem_new(struct executor);

    e->settings = *set;
    assert(set->running_max && set->waiting_max && set->wait_ms && set->output_bytes && set->cache_age_ms);
    teardown_init(e);
    fair_queue_init(&e->queue, set->ev, e->settings.running_max, e->settings.wait_ms * NS_PER_MS, EXECUTOR_MAX_HOLD_NS);
    e->cache = result_cache_new(e->settings.cache_bytes, e->settings.cache_age_ms);
    return e;
}

void executor_finish(struct executor *e)
{
    struct err why;

    if (!e)
        return;
    e->is_stopping = true;
    err_set(&why, ERR_BUSY, "the server is stopping; try again when it has restarted");
    for (struct run *r = e->runs, *next; r; r = next) {
        const struct run_ops *ops = r->ops;

        next = r->next;
        r->ops = NULL;
        if (ops)
            ops->on_end(r->arg, &why, NULL);
        ephemeral_sandbox_end(&r->sandbox);
    }
    teardown_flush(e);
    ephemeral_sandboxes_flush_usage(e->settings.ephemerals);
}

void executor_stats(const struct executor *e, struct executor_stats *ret)
{
    *ret = e->stats;
    ret->cache_bytes = result_cache_bytes(e->cache);
    ret->cache_entries = result_cache_entries(e->cache);
    ret->waiting = e->nwaiting;
    for (const struct run *r = e->runs; r; r = r->next) {
        ret->running += r->state > EXECUTION_WAITING && r->state < EXECUTION_ENDED;
        ret->ending += r->state == EXECUTION_ENDED;
    }
}

/* The time in which half of the queue is served at the recent rate. */
uint64_t executor_retry_ms(const struct executor *e)
{
    uint64_t rounds = e->settings.waiting_max / (2 * e->settings.running_max) + 1;
    uint64_t ms = rounds * e->mean_run_ns / NS_PER_MS;

    return ms < 1000 ? 1000 : min_u64(ms, 60000);
}
