/* The queue and the table of runs.
 *
 * Who comes when there is room begins at once; the others wait in the line of their tenant, and places are given to the
 * lines in turn (service/fair_queue.h). Of the sandboxes that are left behind, only so many count no more (teardown.c):
 * no burst leaves any number of them. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#define EXECUTOR_MAX_HOLD_NS (UINT64_C(366) * 86400 * NS_PER_S) /* a place is given back, never taken */
#define OUTPUT_BYTES (256 * MIB)
#define CACHE_AGE_MS (3600 * 1000u)

struct executor *executor_new(const struct executor_settings *set)
{
    struct executor *e = mem_new(struct executor);

    e->settings = *set;
    if (!e->settings.running_max)
        e->settings.running_max = 64;
    if (!e->settings.waiting_max)
        e->settings.waiting_max = 512;
    if (!e->settings.wait_ms)
        e->settings.wait_ms = 30000;
    if (!e->settings.output_bytes)
        e->settings.output_bytes = OUTPUT_BYTES;
    if (!e->settings.cache_age_ms)
        e->settings.cache_age_ms = CACHE_AGE_MS;
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
    err_set(&why, ERR_BUSY, "the server is being stopped");
    for (struct run *r = e->runs, *next; r; r = next) {
        const struct run_ops *ops = r->ops;

        next = r->next;
        r->ops = NULL;
        if (ops && r->state != RUN_DONE)
            ops->on_end(r->arg, &why, NULL);
        ephemeral_sandbox_end(&r->sandbox);
    }
    teardown_flush(e);
    manager_flush_ephemeral_usage(e->settings.manager);
}

void executor_stats(const struct executor *e, struct executor_stats *ret)
{
    *ret = e->stats;
    ret->cache_bytes = result_cache_bytes(e->cache);
    ret->cache_entries = result_cache_entries(e->cache);
    ret->waiting = e->nwaiting;
    for (const struct run *r = e->runs; r; r = r->next) {
        ret->running += r->state > RUN_WAITING && r->state < RUN_DONE;
        ret->ending += r->state == RUN_DONE;
    }
}

/* The time in which half of the queue is served at the pace of late. */
uint64_t executor_retry_ms(const struct executor *e)
{
    uint64_t rounds = e->settings.waiting_max / (2 * e->settings.running_max) + 1;
    uint64_t ms = rounds * e->mean_run_ns / NS_PER_MS;

    return ms < 1000 ? 1000 : min_u64(ms, 60000);
}
