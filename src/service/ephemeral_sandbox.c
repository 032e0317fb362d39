/* Usage of ephemeral sandboxes is summed by tenant, user and hour, and committed one second after
 * the first amount. If the store refuses, nothing is lost: the sums stay and are submitted again
 * with later ones.
 *
 * Invariants:
 * 1. From ephemeral_sandbox_admit to ephemeral_sandbox_end an ephemeral sandbox is in the manager's
 *    list. Its lifetime and CPU time count as live until ephemeral_sandbox_end moves them to the
 *    sums of ended ones.
 * 2. `flushing` holds the rows of the pending store call; it is not changed until the call is
 *    answered. */
#include "service/ephemeral_sandbox.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/limit_hits.h"
#include "service/service_internal.h"

#define FLUSH_NS (1 * NS_PER_S)
/* Tenants and users per second; beyond it, amounts of a user are recorded without the user. */
#define SUMS_MAX 4096u

/* --- sums for the store --- */

static struct store_usage *ephemeral_usage_row(struct manager *m, const char *owner, const char *by, uint64_t at_ms)
{
    struct ephemeral_usage_batch *s = &m->ephemeral_usage;
    uint64_t hour = at_ms / STORE_HOUR_MS * STORE_HOUR_MS;

    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].hour_ms == hour && str_eq(s->rows[i].owner, owner) && str_eq(s->rows[i].created_by, by))
            return &s->rows[i];
    if (s->n >= SUMS_MAX && *by)
        return ephemeral_usage_row(m, owner, "", at_ms);
    s->rows = mem_resize(s->rows, s->n + 1, sizeof(*s->rows));
    struct store_usage *u = &s->rows[s->n++];
    *u = (struct store_usage){ .hour_ms = hour };
    (void)str_copy(u->owner, sizeof(u->owner), owner);
    (void)str_copy(u->created_by, sizeof(u->created_by), by);
    return u;
}

static void ephemeral_usage_on_timer(void *arg);

static void ephemeral_usage_set_timer(struct manager *m)
{
    if (m->ephemeral_usage.n && !m->ephemeral_usage.timer.slot && !m->ephemeral_usage.request)
        ev_timer_set(m->ev, &m->ephemeral_usage.timer, ev_now(m->ev) + FLUSH_NS, ephemeral_usage_on_timer, m);
}

static void ephemeral_usage_put_back(struct manager *m, const struct store_usage *from)
{
    struct store_usage *to = ephemeral_usage_row(m, from->owner, from->created_by, from->hour_ms);

    to->executions += from->executions;
    to->failed += from->failed;
    to->cpu_us += from->cpu_us;
    to->execution_ms += from->execution_ms;
    to->output_bytes += from->output_bytes;
    to->sandbox_ms += from->sandbox_ms;
    to->memory_mib_ms += from->memory_mib_ms;
    to->storage_mib_ms += from->storage_mib_ms;
    to->memory_peak = max_u64(to->memory_peak, from->memory_peak);
}

static void ephemeral_usage_on_flushed(void *arg, const struct err *err)
{
    struct manager *m = arg;
    struct ephemeral_usage_batch *s = &m->ephemeral_usage;

    s->request = NULL;
    if (err) {
        log_warn("cannot store usage, will retry: %s", err->msg);
        for (size_t i = 0; i < s->nflushing; i++)
            ephemeral_usage_put_back(m, &s->flushing[i]);
    }
    free(take_ptr(&s->flushing));
    s->nflushing = 0;
    ephemeral_usage_set_timer(m);
}

void ephemeral_usage_flush(struct manager *m)
{
    struct ephemeral_usage_batch *s = &m->ephemeral_usage;

    ev_timer_clear(m->ev, &s->timer);
    if (!s->n || s->request)
        return;
    s->flushing = take_ptr(&s->rows);
    s->nflushing = s->n;
    s->n = 0;
    s->request = store_usage_add(m->store, s->flushing, s->nflushing, ephemeral_usage_on_flushed, m);
}

static void ephemeral_usage_on_timer(void *arg)
{
    ephemeral_usage_flush(arg);
}

static void ephemeral_usage_on_last_flush(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot store the usage of the last second: %s", err->msg);
}

void manager_flush_ephemeral_usage(struct manager *m)
{
    struct ephemeral_usage_batch *s = &m->ephemeral_usage;

    ev_timer_clear(m->ev, &s->timer);
    if (s->n)
        store_usage_add(m->store, s->rows, s->n, ephemeral_usage_on_last_flush, NULL);
    s->n = 0;
}

void ephemeral_sandboxes_free(struct manager *m)
{
    struct ephemeral_usage_batch *s = &m->ephemeral_usage;

    ev_timer_clear(m->ev, &s->timer);
    if (s->request)
        store_request_detach(s->request);
    free(s->rows);
    free(s->flushing);
    for (struct ephemeral_sandbox *g = m->ephemeral_sandboxes; g; g = g->next)
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

void ephemeral_sandbox_init(struct ephemeral_sandbox *g, struct manager *m, const char *owner, const char *created_by)
{
    *g = (struct ephemeral_sandbox){ .manager = m, .quota = tenant_quota_get(m, owner) };
    (void)str_copy(g->created_by, sizeof(g->created_by), created_by ? created_by : "");
}

int ephemeral_sandbox_admit(struct ephemeral_sandbox *g, struct err *err)
{
    struct manager *m = g->manager;
    const char *why;

    if (!manager_ready(m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    if (budget_check(m, g->quota, true, err) < 0 || quota_reserve_execution(g->quota, quota_now_ms(m), err) < 0)
        return -1;
    linked_push(&m->ephemeral_sandboxes, g);
    ephemeral_sandbox_set_state(g, EPHEMERAL_ADMITTED);
    m->stats.executions++;
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
    pools_adjust_queue_length(g->manager->pools, by);
}

int ephemeral_sandbox_create(struct ephemeral_sandbox *g, const struct spec *spec, const struct sandbox_handle_ops *ops,
                             void *arg, struct err *err)
{
    struct manager *m = g->manager;
    const char *why;

    if (!manager_ready(m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    quota_amounts_for_spec(spec, g->quota_amounts);
    if (quota_reserve(g->quota, g->quota_amounts, err) < 0)
        return -1;
    ephemeral_sandbox_set_state(g, EPHEMERAL_LIVE);
    g->created_ms = clock_real_ms();
    budget_span_begin(g->quota, &g->span, g->created_ms);
    g->source = (struct sandbox_source){
        .supply = &m->supply, .spec = spec, .handle = &g->handle, .ops = ops, .arg = arg
    };
    sandbox_source_take(&g->source, g->quota->tenant);
    if (sandbox_source_start(&g->source, err) < 0) {
        sandbox_handle_free(take_ptr(&g->handle));
        return -1;
    }
    g->cpu_base_ns = g->source.loan.uses ? sandbox_handle_cpu_ns(g->handle) : 0;
    return 0;
}

int ephemeral_sandbox_replace(struct ephemeral_sandbox *g, struct err *err)
{
    const char *why;

    if (!manager_ready(g->manager, &why))
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
        budget_add_cpu(g->manager, g->quota, ns / NS_PER_US - g->cpu_us);
        g->cpu_us = ns / NS_PER_US;
    }
    return g->cpu_us;
}

void ephemeral_sandbox_count_execution(struct ephemeral_sandbox *g, const struct ephemeral_run_usage *use)
{
    struct manager *m = g->manager;
    const struct receipt *r = use->receipt;
    struct store_usage *u = ephemeral_usage_row(m, g->quota->tenant, g->created_by, clock_real_ms());

    g->execution_counted = true;
    u->executions++;
    u->failed += use->failed;
    u->execution_ms += use->wall_ms;
    u->output_bytes += use->output_bytes;
    budget_execution_end(m, g->quota);
    m->stats.executions_failed += use->failed;
    if (r) {
        manager_stats_count_receipt(&m->stats, r);
        m->stats.executions_ended[r->ended_by]++;
        manager_count_denials(m, g->quota->tenant, r);
    }
    ephemeral_usage_set_timer(m);
}

void ephemeral_sandbox_count_denials(const struct ephemeral_sandbox *g, const struct receipt *r)
{
    manager_count_denials(g->manager, g->quota->tenant, r);
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
        struct store_usage *u = ephemeral_usage_row(g->manager, g->quota->tenant, g->created_by, from);

        to = min_u64(ended_ms, (from / STORE_HOUR_MS + 1) * STORE_HOUR_MS);
        u->sandbox_ms += to - from;
        u->memory_mib_ms += (to - from) * (g->quota_amounts[STORE_QUOTA_MEMORY] / MIB);
        u->storage_mib_ms += (to - from) * (g->quota_amounts[STORE_QUOTA_STORAGE] / MIB);
    }
    struct store_usage *u = ephemeral_usage_row(g->manager, g->quota->tenant, g->created_by, ended_ms);
    u->cpu_us += ephemeral_sandbox_read_cpu_us(g);
    if (peak != SANDBOX_USAGE_UNKNOWN)
        u->memory_peak = max_u64(u->memory_peak, peak);
}

uint64_t ephemeral_sandbox_lived_ms(const struct ephemeral_sandbox *g, uint64_t now_ms)
{
    return now_ms > g->created_ms ? now_ms - g->created_ms : 0;
}

void ephemeral_sandbox_release_quota(struct ephemeral_sandbox *g)
{
    if (g->state != EPHEMERAL_LIVE)
        return;
    ephemeral_sandbox_set_state(g, EPHEMERAL_RELEASED);
    g->released_ms = clock_real_ms();
    quota_release(g->quota, g->quota_amounts);
    budget_span_end(g->quota, &g->span, g->released_ms);
    g->manager->usage_totals[STORE_BUDGET_SANDBOX_SECONDS] += ephemeral_sandbox_lived_ms(g, g->released_ms);
}

void ephemeral_sandbox_end(struct ephemeral_sandbox *g)
{
    if (g->state == EPHEMERAL_NONE || g->state == EPHEMERAL_OVER)
        return;
    sandbox_source_finish(&g->source, false);
    ephemeral_sandbox_release_quota(g);
    if (g->state == EPHEMERAL_RELEASED)
        ephemeral_sandbox_count_lifetime(g, g->released_ms);
    if (!g->execution_counted)
        budget_execution_cancel(g->quota);
    ephemeral_sandbox_set_state(g, EPHEMERAL_OVER);
    linked_remove(g);
    ephemeral_usage_set_timer(g->manager);
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

void ephemeral_sandboxes_stop(struct manager *m, const char *owner, enum ended_by by, const struct err *why)
{
    for (struct ephemeral_sandbox *g = m->ephemeral_sandboxes, *next; g; g = next) {
        next = g->next;
        if (g->stop_requested || !g->on_stop || !str_eq(g->quota->tenant, owner))
            continue;
        g->stop_requested = true;
        g->on_stop(g->arg, by, why); /* does not remove an entry from the list before it returns */
    }
}
