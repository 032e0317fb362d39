/* The queue and the table of runs.
 *
 * Who comes when there is room begins at once; the others wait in the line of their tenant, and places are given to the
 * lines in turn (sandbox/turns.h). Of the sandboxes that are left behind, only so many count no more (graves.c): no
 * burst leaves any number of them. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/mem.h"

#define KEEP_NS (UINT64_C(366) * 86400 * NS_PER_S) /* a place is given back, never taken */
#define OUTPUT_BYTES (256 * MIB)
#define CACHE_AGE_MS (3600 * 1000u)

struct executor *executor_new(const struct executor_settings *set)
{
    struct executor *e = mem_new(struct executor);

    e->set = *set;
    if (!e->set.running_max)
        e->set.running_max = 64;
    if (!e->set.waiting_max)
        e->set.waiting_max = 512;
    if (!e->set.wait_ms)
        e->set.wait_ms = 30000;
    if (!e->set.output_bytes)
        e->set.output_bytes = OUTPUT_BYTES;
    if (!e->set.cache_age_ms)
        e->set.cache_age_ms = CACHE_AGE_MS;
    graves_init(e);
    turns_init(&e->turns, set->ev, e->set.running_max, e->set.wait_ms * NS_PER_MS, KEEP_NS);
    e->cache = cache_new(e->set.cache_bytes, e->set.cache_age_ms);
    return e;
}

void executor_finish(struct executor *e)
{
    struct err why;

    if (!e)
        return;
    e->finished = true;
    err_set(&why, ERR_BUSY, "the server is being stopped");
    for (struct run *r = e->runs, *next; r; r = next) {
        const struct run_ops *ops = r->ops;

        next = r->next;
        r->ops = NULL;
        if (ops && r->state != RUN_OVER)
            ops->on_end(r->arg, &why, NULL);
        guest_end(&r->guest);
    }
    graves_finish(e);
    manager_guests_finish(e->set.manager);
}

void executor_stats(const struct executor *e, struct executor_stats *ret)
{
    *ret = e->stats;
    ret->cache_bytes = cache_bytes(e->cache);
    ret->cache_entries = cache_entries(e->cache);
    for (const struct run *r = e->runs; r; r = r->next) {
        ret->waiting += r->state == RUN_WAITING && !r->cached;
        ret->running += r->state > RUN_WAITING && r->state < RUN_OVER;
        ret->ending += r->state == RUN_OVER;
    }
}

/* The time in which half of the queue is served at the pace of late. */
uint64_t executor_retry_ms(const struct executor *e)
{
    uint64_t rounds = e->set.waiting_max / (2 * e->set.running_max) + 1;
    uint64_t ms = rounds * e->mean_ns / NS_PER_MS;

    return ms < 1000 ? 1000 : min_u64(ms, 60000);
}
