/* Invariant: from ephemeral_sandbox_admit to ephemeral_sandbox_end an ephemeral sandbox is in the
 * list of all. Its lifetime and CPU time count as live until ephemeral_sandbox_end moves them to
 * the sums of ended ones. */
#include "service/ephemeral_sandbox.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "sandbox/limit_hits.h"
#include "service/execution_internal.h"
#include "service/usage_batch.h"

void ephemeral_sandboxes_flush_usage(struct ephemeral_sandboxes *all)
{
    usage_batch_flush_last(all->usage);
}

void ephemeral_sandboxes_done(struct ephemeral_sandboxes *all)
{
    for (struct ephemeral_sandbox *g = all->list; g; g = g->next)
        g->state = EPHEMERAL_OVER; /* its owner may still end it */
}

/* --- one ephemeral sandbox --- */

static void ephemeral_sandbox_set_state(struct ephemeral_sandbox *g, enum ephemeral_state state)
{
    static const char *const names[] = { "none", "admitted", "live", "released", "over" };

    log_debug("ephemeral sandbox %s: %s -> %s", g->handle ? sandbox_handle_id(g->handle) : "without id",
              names[g->state], names[state]);
    g->state = state;
}

void ephemeral_sandbox_init(struct ephemeral_sandbox *g, struct ephemeral_sandboxes *all, const char *owner,
                            const char *created_by)
{
    *g = (struct ephemeral_sandbox){ .all = all, .quota = tenant_quotas_get(all->quotas, owner) };
    (void)str_copy(g->created_by, sizeof(g->created_by), created_by ? created_by : "");
}

int ephemeral_sandbox_admit(struct ephemeral_sandbox *g, struct err *err)
{
    struct ephemeral_sandboxes *all = g->all;
    const char *why;

    if (!recovery_is_ready(all->recovery, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    if (budget_check(all->budgets, g->quota, true, err) < 0 ||
        quota_reserve_execution(g->quota, quota_now_ms(all->ev), err) < 0)
        return -1;
    linked_push(&all->list, g);
    ephemeral_sandbox_set_state(g, EPHEMERAL_ADMITTED);
    all->executions->stats->executions++;
    budget_execution_begin(g->quota);
    return 0;
}

struct fair_queue_line *ephemeral_sandbox_queue_line(const struct ephemeral_sandbox *g)
{
    return &g->quota->ephemeral_line;
}

uint32_t ephemeral_sandbox_waiting(const struct ephemeral_sandbox *g)
{
    return g->quota->ephemeral_waiting;
}

void ephemeral_sandbox_count_waiting(const struct ephemeral_sandbox *g, int by)
{
    g->quota->ephemeral_waiting += (uint32_t)by;
    pools_adjust_queue_length(g->all->supply->pools, by);
}

int ephemeral_sandbox_create(struct ephemeral_sandbox *g, const struct spec *spec, const struct sandbox_handle_ops *ops,
                             void *arg, struct err *err)
{
    struct ephemeral_sandboxes *all = g->all;
    const char *why;

    if (!recovery_is_ready(all->recovery, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    quota_amounts_for_spec(spec, g->quota_amounts);
    if (quota_reserve(g->quota, g->quota_amounts, err) < 0)
        return -1;
    ephemeral_sandbox_set_state(g, EPHEMERAL_LIVE);
    g->created_ms = clock_real_ms();
    budget_span_begin(g->quota, &g->span, g->created_ms);
    g->source = (struct sandbox_source){
        .supply = all->supply, .spec = spec, .tenant = g->quota->tenant, .handle = &g->handle, .ops = ops, .arg = arg
    };
    sandbox_source_take(&g->source, g->quota->tenant);
    if (sandbox_source_start(&g->source, err) < 0)
        return -1;
    g->cpu_base_ns = g->source.loan.uses ? sandbox_handle_cpu_ns(g->handle) : 0;
    return 0;
}

int ephemeral_sandbox_replace(struct ephemeral_sandbox *g, struct err *err)
{
    const char *why;

    if (!recovery_is_ready(g->all->recovery, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    g->cpu_base_ns = 0;
    return sandbox_source_replace(&g->source, err);
}

uint64_t ephemeral_sandbox_read_cpu_us(struct ephemeral_sandbox *g)
{
    uint64_t ns = g->handle ? sandbox_handle_cpu_ns(g->handle) : SANDBOX_USAGE_UNKNOWN;

    if (ns != SANDBOX_USAGE_UNKNOWN && ns >= g->cpu_base_ns)
        ns -= g->cpu_base_ns;
    if (ns != SANDBOX_USAGE_UNKNOWN && ns / NS_PER_US > g->cpu_us) {
        budget_add_cpu(g->all->budgets, g->quota, ns / NS_PER_US - g->cpu_us);
        g->cpu_us = ns / NS_PER_US;
    }
    return g->cpu_us;
}

void ephemeral_sandbox_count_execution(struct ephemeral_sandbox *g, const struct ephemeral_run_usage *use)
{
    struct ephemeral_sandboxes *all = g->all;
    const struct receipt *r = use->receipt;
    struct store_usage *u = usage_batch_row(all->usage, g->quota->tenant, g->created_by, clock_real_ms());

    g->execution_counted = true;
    u->executions++;
    u->failed += use->failed;
    u->execution_ms += use->wall_ms;
    u->output_bytes += use->output_bytes;
    budget_execution_end(all->budgets, g->quota);
    all->executions->stats->executions_failed += use->failed;
    if (r) {
        executions_count_receipt(all->executions, g->quota->tenant, r);
        all->executions->stats->executions_ended[r->ended_by]++;
        executions_count_denials(all->executions, g->quota->tenant, r);
    }
}

void ephemeral_sandbox_count_denials(const struct ephemeral_sandbox *g, const struct receipt *r)
{
    executions_count_denials(g->all->executions, g->quota->tenant, r);
}

/* Splits the lifetime by hour; nearly always one hour. */
static void ephemeral_sandbox_count_lifetime(struct ephemeral_sandbox *g, uint64_t ended_ms)
{
    uint64_t peak = g->handle        ? sandbox_handle_memory_peak(g->handle)
                    : g->memory_peak ? g->memory_peak
                                     : SANDBOX_USAGE_UNKNOWN;

    if (g->source.loan.uses) /* of a recycled sandbox the peak may belong to an earlier run */
        peak = SANDBOX_USAGE_UNKNOWN;

    for (uint64_t from = g->created_ms, to; from < ended_ms; from = to) {
        struct store_usage *u = usage_batch_row(g->all->usage, g->quota->tenant, g->created_by, from);

        to = min_u64(ended_ms, (from / STORE_HOUR_MS + 1) * STORE_HOUR_MS);
        u->sandbox_ms += to - from;
        u->memory_mib_ms += (to - from) * (g->quota_amounts[STORE_QUOTA_MEMORY] / MIB);
        u->storage_mib_ms += (to - from) * (g->quota_amounts[STORE_QUOTA_STORAGE] / MIB);
    }
    struct store_usage *u = usage_batch_row(g->all->usage, g->quota->tenant, g->created_by, ended_ms);
    u->cpu_us += ephemeral_sandbox_read_cpu_us(g);
    if (peak != SANDBOX_USAGE_UNKNOWN)
        u->memory_peak = max_u64(u->memory_peak, peak);
}

void ephemeral_sandbox_release_quota(struct ephemeral_sandbox *g)
{
    if (g->state != EPHEMERAL_LIVE)
        return;
    ephemeral_sandbox_set_state(g, EPHEMERAL_RELEASED);
    g->released_ms = clock_real_ms();
    quota_release(g->quota, g->quota_amounts);
    budget_span_end(g->all->budgets, g->quota, &g->span, g->released_ms);
}

void ephemeral_sandbox_end(struct ephemeral_sandbox *g)
{
    if (g->state == EPHEMERAL_NONE || g->state == EPHEMERAL_OVER)
        return;
    sandbox_source_finish(&g->source, false);
    ephemeral_sandbox_release_quota(g);
    if (g->state == EPHEMERAL_RELEASED)
        ephemeral_sandbox_count_lifetime(g, g->released_ms);
    budget_span_stored(&g->span);
    if (!g->execution_counted)
        budget_execution_cancel(g->quota);
    ephemeral_sandbox_set_state(g, EPHEMERAL_OVER);
    linked_remove(g);
}

static void ephemeral_sandbox_on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct ephemeral_sandbox *g = arg;

    ephemeral_sandbox_read_cpu_us(g);
    if (!err) {
        g->pool_return.usage = *u;
        g->memory_peak = u->memory_peak;
        (void)sandbox_source_return(&g->source, g->pool_return);
    }
    g->on_returned(g->arg);
}

bool ephemeral_sandbox_return_to_pool(struct ephemeral_sandbox *g, bool by_itself, bool full, void (*done)(void *arg))
{
    if (!g->handle || !sandbox_source_accepts_return(&g->source))
        return false;
    g->pool_return = (struct pool_return){ .owner = g->quota->tenant,
                                           .ended_by_itself = by_itself,
                                           .space_ran_out = full };
    g->on_returned = done;
    sandbox_handle_usage(g->handle, ephemeral_sandbox_on_usage, g);
    return true;
}

/* --- all of a tenant --- */

void ephemeral_sandboxes_stop(struct ephemeral_sandboxes *all, const char *owner, enum ended_by by,
                              const struct err *why)
{
    for (struct ephemeral_sandbox *g = all->list, *next; g; g = next) {
        next = g->next;
        if (g->stop_requested || !g->on_stop || !str_eq(g->quota->tenant, owner))
            continue;
        g->stop_requested = true;
        g->on_stop(g->arg, by, why); /* does not remove an entry from the list before it returns */
    }
}
