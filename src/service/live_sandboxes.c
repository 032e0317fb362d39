/* Reads the CPU counters of live sandboxes and sends them to the store, and ends the live work of a
 * tenant that is suspended or has used up its budget.
 *
 * A counter is one file of the kernel, read in a few microseconds; an unchanged counter is not
 * sent. The store adds only the difference above the highest value so far, so a reading that
 * arrives twice, or after the end, changes nothing. */
#include "service/sandbox_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/ephemeral_sandbox.h"
#include "service/live_sandboxes.h"
#include "service/usage_batch.h"
#include "store/usage.h"

#include <stdlib.h>

#define LEFTOVER_TICK_US (100 * 1000u)  /* in one tick, without an execution: a program was left running */
#define LEFTOVER_TOTAL_US (500 * 1000u) /* in all ticks together: a program that works slowly */

uint64_t sandbox_read_cpu_us(struct sandbox *sb)
{
    uint64_t ns = sb->handle ? sandbox_handle_cpu_ns(sb->handle) : SANDBOX_USAGE_UNKNOWN;

    if (ns != SANDBOX_USAGE_UNKNOWN && ns / NS_PER_US > sb->cpu_us) {
        budget_add_cpu(sb->services->budgets, sb->quota, ns / NS_PER_US - sb->cpu_us);
        sb->cpu_us = ns / NS_PER_US;
    }
    return sb->cpu_us;
}

static void live_sandboxes_on_committed(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot store CPU usage; the next sample includes it: %s", err->msg);
}

void live_sandboxes_commit_cpu(struct live_sandboxes *l, const char *owner)
{
    struct store_cpu_reading *notes = mem_new_array(struct store_cpu_reading, registry_count(l->registry) + 1);
    uint64_t now = clock_real_ms();
    size_t n = 0;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));) {
        bool theirs = str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner);

        if (!theirs || (sb->state != SANDBOX_STATE_RUNNING && sb->state != SANDBOX_STATE_PAUSED) ||
            sandbox_read_cpu_us(sb) <= sb->committed_cpu_us)
            continue;
        notes[n] = (struct store_cpu_reading){ .cpu_us = sb->cpu_us, .at_ms = now };
        memcpy(notes[n].sandbox, sb->id, sizeof(notes[n].sandbox));
        (void)str_copy(notes[n].created_by, sizeof(notes[n].created_by), sandbox_cpu_user(sb));
        sb->committed_cpu_us = sb->cpu_us;
        n++;
    }
    if (n)
        store_usage_record_cpu(l->store, notes, n, live_sandboxes_on_committed, NULL);
    free(notes);
    usage_batch_flush(l->ephemerals->usage);
}

static int live_sandboxes_compare_age(const void *a, const void *b)
{
    const struct live_sandbox *x = a, *y = b;

    return x->created_ms != y->created_ms ? (x->created_ms < y->created_ms ? -1 : 1) : strcmp(x->id, y->id);
}

size_t live_sandboxes_list(const struct live_sandboxes *l, const char *owner, struct live_sandbox *ret, size_t max)
{
    size_t n = 0;

    for (const struct sandbox *sb = NULL; n < max && (sb = registry_next(l->registry, sb));) {
        if (!str_eq(owner, STORE_ANY_OWNER) && !str_eq(owner, sb->owner))
            continue;
        if (sb->state != SANDBOX_STATE_RUNNING && sb->state != SANDBOX_STATE_PAUSED)
            continue;
        ret[n] = (struct live_sandbox){ .paused = sb->state == SANDBOX_STATE_PAUSED,
                                        .created_ms = sb->created_ms,
                                        .executions = sandbox_running_executions(sb),
                                        .cpu_millis = sb->spec.limits.v[LIMIT_CPU],
                                        .memory_bytes = sb->spec.limits.v[LIMIT_MEMORY],
                                        .pids = sb->spec.limits.v[LIMIT_PIDS] };
        memcpy(ret[n].id, sb->id, sizeof(ret[n].id));
        memcpy(ret[n].owner, sb->owner, sizeof(ret[n].owner));
        n++;
    }
    if (n > 1)
        qsort(ret, n, sizeof(*ret), live_sandboxes_compare_age);
    return n;
}

/* Whether a program runs in the sandbox without an execution: at least 1 % of a CPU since the last
 * reading. The first reading does not count, because it contains the start of the sandbox. */
static bool live_sandboxes_grows(struct sandbox *sb, uint64_t since_ns)
{
    uint64_t before = sb->cpu_us;

    return before && (sandbox_read_cpu_us(sb) - before) * NS_PER_US * 100 >= since_ns;
}

bool live_sandboxes_sample(void *arg, uint64_t since_ns)
{
    struct live_sandboxes *l = arg;
    bool moved = false;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));)
        moved |= live_sandboxes_grows(sb, since_ns);
    live_sandboxes_commit_cpu(l, STORE_ANY_OWNER);
    return moved;
}

static void live_sandboxes_read_cpu(void *arg, const struct tenant_quota *q)
{
    struct live_sandboxes *l = arg;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));)
        if (q ? sb->quota == q : sb->quota->budget != NULL)
            (void)sandbox_read_cpu_us(sb);
    for (struct ephemeral_sandbox *g = l->ephemerals->list; g; g = g->next)
        if (q ? g->quota == q : g->quota->budget != NULL)
            (void)ephemeral_sandbox_read_cpu_us(g);
}

static void live_sandboxes_commit_usage(void *arg, const struct tenant_quota *q)
{
    live_sandboxes_commit_cpu(arg, q->tenant);
}

/* A sandbox in creation may still fail, and a metric must never decrease. */
static bool live_sandboxes_is_counted(const struct sandbox *sb)
{
    return budget_span_is_running(&sb->span) && sb->state != SANDBOX_STATE_CREATING;
}

void live_sandboxes_usage_totals(struct live_sandboxes *l, struct manager_usage_totals *ret)
{
    uint64_t now = clock_real_ms(), alive = 0;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));)
        if (live_sandboxes_is_counted(sb)) {
            (void)sandbox_read_cpu_us(sb); /* which adds it to the sums */
            alive += budget_span_observed_ms(l->budgets, &sb->span, now);
        }
    for (struct ephemeral_sandbox *g = l->ephemerals->list; g; g = g->next) {
        (void)ephemeral_sandbox_read_cpu_us(g);
        alive += budget_span_is_running(&g->span) ? budget_span_observed_ms(l->budgets, &g->span, now) : 0;
    }
    budgets_totals(l->budgets, ret);
    ret->used[STORE_BUDGET_SANDBOX_TIME] += alive;
}

/* --- stops --- */

/* Sandboxes that are still to be adopted are ended at their adoption. */
void live_sandboxes_stop_suspended(void *arg, const struct tenant_quota *q)
{
    const struct live_sandboxes *l = arg;
    struct err why;
    auto_free struct sandbox **all = registry_snapshot(l->registry);

    for (struct sandbox **sb = all; *sb; sb++)
        if ((*sb)->quota == q && (*sb)->state != SANDBOX_STATE_LOADED)
            sandbox_end_suspended(*sb);
    err_set(&why, ERR_TENANT_SUSPENDED, "the tenant %s was suspended or removed", q->tenant);
    ephemeral_sandboxes_stop(l->ephemerals, q->tenant, ENDED_KILLED, &why);
    pools_drop_owner(l->pools, q->tenant);
}

static void live_sandboxes_stop_executions(struct sandbox *sb, const struct err *why)
{
    bool left = sb->over_budget_cpu_us && !sb->nexecutions;

    if (left && (sb->cpu_us > sb->over_budget_cpu_us + LEFTOVER_TICK_US ||
                 sb->cpu_us > sb->budget_stop_cpu_us + LEFTOVER_TOTAL_US)) {
        sandbox_end(sb, ENDED_BUDGET, why);
        return;
    }
    if (!left)
        sb->budget_stop_cpu_us = sb->cpu_us;
    sb->over_budget_cpu_us = sb->cpu_us + 1;
    sandbox_kill_executions_over_budget(sb);
}

static void live_sandboxes_stop_over_budget(void *arg, const struct tenant_quota *q, bool end_sandboxes,
                                            const struct err *why)
{
    const struct live_sandboxes *l = arg;
    auto_free struct sandbox **all = registry_snapshot(l->registry);

    for (struct sandbox **p = all; *p; p++) {
        struct sandbox *sb = *p;

        if (sb->quota != q || (sb->state != SANDBOX_STATE_RUNNING && sb->state != SANDBOX_STATE_PAUSED))
            continue;
        if (end_sandboxes)
            sandbox_end(sb, ENDED_BUDGET, why);
        else
            live_sandboxes_stop_executions(sb, why);
    }
    ephemeral_sandboxes_stop(l->ephemerals, q->tenant, ENDED_BUDGET, why);
}

/* Programs that were left running before are forgotten. */
static void live_sandboxes_on_budget_renewed(void *arg, const struct tenant_quota *q)
{
    const struct live_sandboxes *l = arg;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));)
        if (sb->quota == q)
            sb->over_budget_cpu_us = 0;
}

const struct budgets_ops live_sandboxes_budgets_ops = { .read_cpu = live_sandboxes_read_cpu,
                                                        .commit_usage = live_sandboxes_commit_usage,
                                                        .stop = live_sandboxes_stop_over_budget,
                                                        .on_renewed = live_sandboxes_on_budget_renewed,
                                                        .now_ms = clock_real_ms };
