/* Enforces the budgets of tenants per day and per month.
 *
 * Only tenants with a budget are known here. The usage of everything that has ended is read once
 * from the store and updated when something ends. The usage of live sandboxes is computed on
 * demand: their time from their creation, CPU time from their counters. New work is refused when a
 * limit is reached. Once per second the tenants with live sandboxes are checked: executions that
 * exceed the CPU budget are killed, and sandboxes end when their time is used up.
 *
 * Totals over all tenants since the start of this process are kept as well, for metrics. */
#include "service/service_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/budget_period.h"
#include "service/ephemeral_sandbox.h"

#define TICK_NS (1 * NS_PER_S)
#define LEFTOVER_TICK_US (100 * 1000u)  /* in one tick, without an execution: a program was left running */
#define LEFTOVER_TOTAL_US (500 * 1000u) /* in all ticks together: a program that works slowly */

struct tenant_budget {
    struct tenant_budget *next;
    struct manager *manager;
    struct budget_period period; /* used: everything that has ended, and all CPU time read so far */
    size_t nloading;             /* pending answers of the store */
    bool load_failed;            /* an answer was an error; requests are refused until a retry succeeds */
    struct store_request *requests[STORE_PERIOD_COUNT];
};

/* --- sums --- */

static struct tenant_budget *budget_find(const struct manager *m, const char *owner)
{
    struct tenant_budget *b = m->budgets;

    while (b && !str_eq(b->period.owner, owner))
        b = b->next;
    return b;
}

/* Until when the lifetime of a sandbox counts that is not included in the sums yet. */
static uint64_t budget_alive_until_ms(const struct sandbox *sb, uint64_t now)
{
    return sb->state == SANDBOX_STATE_ENDING ? sb->ended_ms : now;
}

static bool budget_covers_sandbox(const struct tenant_budget *b, const struct sandbox *sb)
{
    return !sb->lifetime_counted && !sb->creation_failed && str_eq(sb->owner, b->period.owner);
}

/* All usage until now, including live sandboxes. */
static void budget_sum_usage(struct tenant_budget *b, uint64_t now,
                             uint64_t ret[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES])
{
    struct budget_period all;
    uint64_t running = 0;

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            if (budget_covers_sandbox(b, sb))
                (void)usage_meter_read_cpu_us(sb); /* which adds it to the sums */
    for (struct ephemeral_sandbox *g = b->manager->ephemeral_sandboxes; g; g = g->next)
        if (str_eq(g->quota->tenant, b->period.owner))
            (void)ephemeral_sandbox_read_cpu_us(g);
    budget_period_roll(&b->period, now);
    all = b->period;
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next) {
            if (!budget_covers_sandbox(b, sb))
                continue;
            for (const struct execution *ex = sb->executions; ex; ex = ex->next)
                running += !ex->ended;
            budget_period_add_span(&all, sb->created_ms, budget_alive_until_ms(sb, now), now);
        }
    for (const struct ephemeral_sandbox *g = b->manager->ephemeral_sandboxes; g; g = g->next) {
        if (!str_eq(g->quota->tenant, b->period.owner))
            continue;
        running += !g->execution_counted;
        if (g->quota_reserved)
            budget_period_add_span(&all, g->created_ms, g->quota_released ? g->released_ms : now, now);
    }
    budget_period_add(&all, STORE_BUDGET_EXECUTIONS, running, now);
    memcpy(ret, all.used, sizeof(all.used));
}

int budget_check(struct manager *m, const char *owner, bool execution, struct err *err)
{
    struct tenant_budget *b = budget_find(m, owner);
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms();
    enum store_period p;

    if (!m->budgets_loaded || (b && (b->nloading || b->load_failed)))
        return err_set(err, ERR_BUSY, "the server is still reading the usage of %s; try again", owner);
    if (!b)
        return 0;
    budget_sum_usage(b, now, sums);
    for (int what = 0; what < STORE_BUDGET_RESOURCES; what++)
        if ((what != STORE_BUDGET_EXECUTIONS || execution) &&
            budget_period_limit_reached(&b->period, sums, (enum store_budget_resource)what, &p)) {
            m->budget_refused++;
            return budget_period_set_error(&b->period, sums, (enum store_budget_resource)what, p, now, err);
        }
    return 0;
}

/* --- ended work and CPU counters --- */

void budget_add_cpu(struct manager *m, const char *owner, uint64_t us)
{
    struct tenant_budget *b = budget_find(m, owner);

    m->usage_totals[STORE_BUDGET_CPU_SECONDS] += us;
    if (b)
        budget_period_add(&b->period, STORE_BUDGET_CPU_SECONDS, us, clock_real_ms());
}

void budget_add_execution(struct manager *m, const char *owner)
{
    struct tenant_budget *b = budget_find(m, owner);

    m->usage_totals[STORE_BUDGET_EXECUTIONS]++;
    if (b)
        budget_period_add(&b->period, STORE_BUDGET_EXECUTIONS, 1, clock_real_ms());
}

void budget_add_span(struct manager *m, const char *owner, uint64_t from_ms, uint64_t to_ms)
{
    struct tenant_budget *b = budget_find(m, owner);

    m->usage_totals[STORE_BUDGET_SANDBOX_SECONDS] += to_ms > from_ms ? to_ms - from_ms : 0;
    if (b)
        budget_period_add_span(&b->period, from_ms, to_ms, clock_real_ms());
}

void budget_add_sandbox_cpu(const struct sandbox *sb, uint64_t us)
{
    budget_add_cpu(sb->manager, sb->owner, us);
}

void budget_add_sandbox_execution(const struct sandbox *sb)
{
    budget_add_execution(sb->manager, sb->owner);
}

/* The part of its lifetime that this process has seen. */
static uint64_t budget_observed_ms(const struct sandbox *sb, uint64_t until)
{
    uint64_t from = max_u64(sb->created_ms, sb->manager->started_ms);

    return until > from ? until - from : 0;
}

void budget_add_ended_sandbox(struct sandbox *sb)
{
    struct tenant_budget *b = budget_find(sb->manager, sb->owner);

    sb->lifetime_counted = true;
    sb->manager->usage_totals[STORE_BUDGET_SANDBOX_SECONDS] += budget_observed_ms(sb, sb->ended_ms);
    if (b)
        budget_period_add_span(&b->period, sb->created_ms, sb->ended_ms, clock_real_ms());
}

/* --- enforcement --- */

static void budget_stop_executions(struct sandbox *sb, const struct err *why)
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
    for (struct execution *ex = sb->executions; ex; ex = ex->next)
        if ((ex->exec || ex->running_context) && !ex->ended && !ex->over_budget) {
            ex->over_budget = true;
            execution_kill(ex);
        }
}

/* The budget is not used up any more: programs left running before are not counted again. */
static void budget_clear_over_budget(const struct tenant_budget *b)
{
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            if (str_eq(sb->owner, b->period.owner))
                sb->over_budget_cpu_us = 0;
}

static void budget_load_usage(struct tenant_budget *b);

static void budget_enforce(struct tenant_budget *b)
{
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms();
    struct err why = { 0 };
    enum store_period p;
    size_t n = 0;

    if (b->load_failed && !b->nloading)
        budget_load_usage(b);
    if (b->nloading)
        return;
    budget_sum_usage(b, now, sums);
    bool over = budget_period_limit_reached(&b->period, sums, STORE_BUDGET_SANDBOX_SECONDS, &p);
    if (!over && !budget_period_limit_reached(&b->period, sums, STORE_BUDGET_CPU_SECONDS, &p)) {
        budget_clear_over_budget(b);
        return;
    }
    (void)budget_period_set_error(&b->period, sums, over ? STORE_BUDGET_SANDBOX_SECONDS : STORE_BUDGET_CPU_SECONDS, p,
                                  now, &why);
    struct sandbox **all = mem_new_array(struct sandbox *, b->manager->nsandboxes + 1);
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            if (str_eq(sb->owner, b->period.owner) &&
                (sb->state == SANDBOX_STATE_RUNNING || sb->state == SANDBOX_STATE_PAUSED))
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        if (over)
            sandbox_end(all[i], ENDED_BUDGET, &why);
        else
            budget_stop_executions(all[i], &why);
    free(all);
    ephemeral_sandboxes_stop(b->manager, b->period.owner, ENDED_BUDGET, &why);
}

static void budget_on_tick(void *arg)
{
    struct manager *m = arg;

    for (struct tenant_budget *b = m->budgets; b; b = b->next)
        if (m->nsandboxes > 0 || m->ephemeral_sandboxes || b->load_failed)
            budget_enforce(b);
    if (m->budgets)
        ev_timer_set(m->ev, &m->budget_timer, ev_now(m->ev) + TICK_NS, budget_on_tick, m);
}

/* --- loading --- */

static void budget_on_usage_loaded(struct tenant_budget *b, int p, const struct err *err,
                                   const struct store_usage *rows, size_t n)
{
    b->requests[p] = NULL;
    b->nloading--;
    if (err) {
        log_error("cannot read the usage of %s, will retry: %s", b->period.owner, err->msg);
        b->load_failed = true;
        return;
    }
    if (n == 0)
        return;
    b->period.used[p][STORE_BUDGET_CPU_SECONDS] += rows[0].cpu_us;
    b->period.used[p][STORE_BUDGET_SANDBOX_SECONDS] += rows[0].sandbox_ms;
    b->period.used[p][STORE_BUDGET_EXECUTIONS] += rows[0].executions;
}

static void budget_on_day_usage(void *arg, const struct err *err, const struct store_usage *rows, size_t n,
                                bool more UNUSED)
{
    budget_on_usage_loaded(arg, STORE_PERIOD_DAY, err, rows, n);
}

static void budget_on_month_usage(void *arg, const struct err *err, const struct store_usage *rows, size_t n,
                                  bool more UNUSED)
{
    budget_on_usage_loaded(arg, STORE_PERIOD_MONTH, err, rows, n);
}

static void budget_load_usage(struct tenant_budget *b)
{
    struct manager *m = b->manager;
    uint64_t now = clock_real_ms();

    b->load_failed = false;
    manager_commit_cpu_usage(m, b->period.owner); /* so that the stored sums and the counters leave no gap */
    budget_period_roll(&b->period, now);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        struct store_usage_query q = { .owner = b->period.owner,
                                       .from_ms = b->period.begin_ms[p],
                                       .to_ms = now + STORE_HOUR_MS };

        memset(b->period.used[p], 0, sizeof(b->period.used[p]));
        if (b->requests[p])
            store_request_detach(b->requests[p]);
        else
            b->nloading++;
        b->requests[p] = store_usage_list(m->store, &q,
                                          p == STORE_PERIOD_DAY ? budget_on_day_usage : budget_on_month_usage, b);
    }
    if (!m->budget_timer.slot)
        ev_timer_set(m->ev, &m->budget_timer, ev_now(m->ev) + TICK_NS, budget_on_tick, m);
}

static void budget_free(struct tenant_budget *b)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        if (b->requests[p])
            store_request_detach(b->requests[p]);
    free(b);
}

void manager_set_budget(struct manager *m, const struct store_budget *row)
{
    static const uint64_t none[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES];
    struct tenant_budget *b = budget_find(m, row->owner);
    bool fresh = !b;

    if (memcmp(row->max, none, sizeof(none)) == 0) {
        struct tenant_budget **at = &m->budgets;

        while (*at && *at != b)
            at = &(*at)->next;
        if (b && *at) {
            *at = b->next;
            budget_free(b);
        }
        return;
    }
    if (fresh) {
        b = mem_new(struct tenant_budget);
        b->manager = m;
        memcpy(b->period.owner, row->owner, sizeof(b->period.owner));
        b->next = m->budgets;
        m->budgets = b;
    }
    memcpy(b->period.max, row->max, sizeof(b->period.max));
    if (fresh)
        budget_load_usage(b);
}

static void budget_on_list(void *arg, const struct err *err, const struct store_budget *rows, size_t n)
{
    struct manager *m = arg;

    m->budgets_request = NULL;
    if (err) {
        log_error("cannot read the budgets; no work is accepted: %s", err->msg);
        return;
    }
    m->budgets_loaded = true;
    for (size_t i = 0; i < n; i++)
        manager_set_budget(m, &rows[i]);
}

void budget_load_all(struct manager *m)
{
    m->budgets_request = store_budget_list(m->store, STORE_ANY_OWNER, budget_on_list, m);
}

void budget_free_all(struct manager *m)
{
    if (m->budgets_request)
        store_request_detach(m->budgets_request);
    while (m->budgets) {
        struct tenant_budget *b = m->budgets;

        m->budgets = b->next;
        budget_free(b);
    }
    ev_timer_clear(m->ev, &m->budget_timer);
}

bool manager_get_budget(struct manager *m, const char *owner, struct manager_budget *ret)
{
    struct tenant_budget *b = budget_find(m, owner);
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms();

    if (!b || b->nloading || b->load_failed)
        return false;
    budget_sum_usage(b, now, sums);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        ret->renews_ms[p] = budget_period_end_ms((enum store_period)p, now);
        for (int k = 0; k < STORE_BUDGET_RESOURCES; k++) {
            ret->max[p][k] = b->period.max[p][k];
            ret->used[p][k] = sums[p][k] / budget_resource_units[k];
        }
    }
    return true;
}

/* A sandbox in creation may still fail, and a metric must never decrease. */
static bool budget_sandbox_is_counted(const struct sandbox *sb)
{
    return !sb->lifetime_counted && !sb->creation_failed && sb->state != SANDBOX_STATE_CREATING;
}

void manager_usage_totals(struct manager *m, struct manager_usage_totals *ret)
{
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms(), alive = 0;

    *ret = (struct manager_usage_totals){ .refused = m->budget_refused };
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (budget_sandbox_is_counted(sb)) {
                (void)usage_meter_read_cpu_us(sb); /* which adds it to the sums */
                alive += budget_observed_ms(sb, budget_alive_until_ms(sb, now));
            }
    for (struct ephemeral_sandbox *g = m->ephemeral_sandboxes; g; g = g->next) {
        uint64_t until = g->quota_released ? g->released_ms : now;

        (void)ephemeral_sandbox_read_cpu_us(g);
        alive += g->quota_reserved && until > g->created_ms ? until - g->created_ms : 0;
    }
    memcpy(ret->used, m->usage_totals, sizeof(ret->used));
    ret->used[STORE_BUDGET_SANDBOX_SECONDS] += alive;
    for (struct tenant_budget *b = m->budgets; b; b = b->next) {
        if (b->nloading || b->load_failed)
            continue;
        budget_sum_usage(b, now, sums);
        for (int p = 0; p < STORE_PERIOD_COUNT; p++)
            for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
                if (b->period.max[p][k])
                    ret->bounds[p][k][budget_period_limit_state(&b->period, sums, (enum store_period)p,
                                                                (enum store_budget_resource)k)]++;
    }
}
