/* Enforces the budgets of tenants per day and per month.
 *
 * Only tenants with a budget are known here. The usage of everything that has ended is read once
 * from the store and updated when something ends. Live sandboxes and executions are counted when
 * they begin and end, so a check takes constant time, however many sandboxes there are. New work is
 * refused when a limit is reached. Once per second the CPU counters are read and the tenants with
 * live sandboxes are checked: executions that exceed the CPU budget are killed, and sandboxes end
 * when their time is used up.
 *
 * Invariants of each budget:
 * 1. nspans and spans_from_ms equal the results of budget_count_spans(), and nexecutions equals the
 *    result of budget_count_executions().
 * 2. A span or an execution is either in these counters or in period.used, never in both.
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

/* --- sums --- */

static struct tenant_budget *budget_find(const struct manager *m, const char *owner)
{
    struct tenant_budget *b = m->budgets;

    while (b && !str_eq(b->period.owner, owner))
        b = b->next;
    return b;
}

/* Reads the CPU counters of live sandboxes, which adds their growth to the sums. `only` selects
 * one budget; NULL: all. */
static void budget_read_cpu(struct manager *m, const struct tenant_budget *only)
{
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (only ? sb->quota->budget == only : sb->quota->budget != NULL)
                (void)sandbox_read_cpu_us(sb);
    for (struct ephemeral_sandbox *g = m->ephemeral_sandboxes; g; g = g->next)
        if (only ? g->quota->budget == only : g->quota->budget != NULL)
            (void)ephemeral_sandbox_read_cpu_us(g);
}

static void budget_add_running_span(struct tenant_budget *b, const struct budget_span *s)
{
    if (!s->running)
        return;
    b->nspans++;
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        b->spans_from_ms[p] += max_u64(s->from_ms, b->period.begin_ms[p]);
}

static void budget_count_spans(struct tenant_budget *b)
{
    b->nspans = 0;
    memset(b->spans_from_ms, 0, sizeof(b->spans_from_ms));
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (const struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == b->quota)
                budget_add_running_span(b, &sb->span);
    for (const struct ephemeral_sandbox *g = b->manager->ephemeral_sandboxes; g; g = g->next)
        if (g->quota == b->quota)
            budget_add_running_span(b, &g->span);
}

static void budget_count_executions(struct tenant_budget *b)
{
    b->nexecutions = 0;
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (const struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            for (const struct execution *ex = sb->quota == b->quota ? sb->executions : NULL; ex; ex = ex->next)
                b->nexecutions += !ex->ended;
    for (const struct ephemeral_sandbox *g = b->manager->ephemeral_sandboxes; g; g = g->next)
        b->nexecutions += g->quota == b->quota && !g->execution_counted;
}

/* Call it before anything is added or summed up. A new period changes the beginnings of the running
 * spans, so they are counted again; that happens once a day. */
static void budget_roll(struct tenant_budget *b, uint64_t now)
{
    uint64_t before[STORE_PERIOD_COUNT];

    memcpy(before, b->period.begin_ms, sizeof(before));
    budget_period_roll(&b->period, now);
    if (memcmp(before, b->period.begin_ms, sizeof(before)) != 0)
        budget_count_spans(b);
}

/* All usage until now, including live sandboxes. */
static void budget_sum_usage(struct tenant_budget *b, uint64_t now,
                             uint64_t ret[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES])
{
    budget_roll(b, now);
    memcpy(ret, b->period.used, sizeof(b->period.used));
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        uint64_t until = b->nspans * now;

        ret[p][STORE_BUDGET_SANDBOX_SECONDS] += until > b->spans_from_ms[p] ? until - b->spans_from_ms[p] : 0;
        ret[p][STORE_BUDGET_EXECUTIONS] += b->nexecutions;
    }
}

int budget_check(struct manager *m, const struct tenant_quota *q, bool execution, struct err *err)
{
    struct tenant_budget *b = q->budget;
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms();
    enum store_period p;

    if (!m->budgets_loaded || (b && (b->nloading || b->load_failed)))
        return err_set(err, ERR_BUSY, "the server is still reading the usage of %s; try again", q->tenant);
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

/* --- work that begins and ends, and CPU counters --- */

void budget_add_cpu(struct manager *m, const struct tenant_quota *q, uint64_t us)
{
    uint64_t now = clock_real_ms();

    m->usage_totals[STORE_BUDGET_CPU_SECONDS] += us;
    if (!q->budget)
        return;
    budget_roll(q->budget, now);
    budget_period_add(&q->budget->period, STORE_BUDGET_CPU_SECONDS, us, now);
}

void budget_execution_begin(const struct tenant_quota *q)
{
    if (q->budget)
        q->budget->nexecutions++;
}

void budget_execution_cancel(const struct tenant_quota *q)
{
    if (q->budget)
        q->budget->nexecutions--;
}

void budget_execution_end(struct manager *m, const struct tenant_quota *q)
{
    uint64_t now = clock_real_ms();

    m->usage_totals[STORE_BUDGET_EXECUTIONS]++;
    if (!q->budget)
        return;
    q->budget->nexecutions--;
    budget_roll(q->budget, now);
    budget_period_add(&q->budget->period, STORE_BUDGET_EXECUTIONS, 1, now);
}

void budget_span_begin(const struct tenant_quota *q, struct budget_span *s, uint64_t from_ms)
{
    if (q->budget)
        budget_roll(q->budget, clock_real_ms());
    *s = (struct budget_span){ true, from_ms };
    if (q->budget)
        budget_add_running_span(q->budget, s);
}

void budget_span_cancel(const struct tenant_quota *q, struct budget_span *s)
{
    struct tenant_budget *b = q->budget;

    if (!s->running)
        return;
    s->running = false;
    if (!b)
        return;
    b->nspans--;
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        b->spans_from_ms[p] -= max_u64(s->from_ms, b->period.begin_ms[p]);
}

void budget_span_end(const struct tenant_quota *q, struct budget_span *s, uint64_t to_ms)
{
    uint64_t now = clock_real_ms();

    if (!s->running)
        return;
    budget_span_cancel(q, s);
    if (!q->budget)
        return;
    budget_roll(q->budget, now);
    budget_period_add_span(&q->budget->period, s->from_ms, to_ms, now);
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
static void budget_clear_over_budget(struct tenant_budget *b)
{
    if (!b->is_over)
        return;
    b->is_over = false;
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
    b->is_over = true;
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

    budget_read_cpu(m, NULL);
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

/* Adds the spans that have ended but are not in the store yet: a span is stored together with the
 * end of its sandbox, which is still to be committed. */
static void budget_add_uncommitted_spans(struct tenant_budget *b, uint64_t now)
{
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (const struct sandbox *sb = b->manager->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == b->quota && sb->state == SANDBOX_STATE_ENDING && !sb->is_destroyed && !sb->creation_failed)
                budget_period_add_span(&b->period, sb->created_ms, sb->ended_ms, now);
    for (const struct ephemeral_sandbox *g = b->manager->ephemeral_sandboxes; g; g = g->next)
        if (g->quota == b->quota && g->quota_released)
            budget_period_add_span(&b->period, g->created_ms, g->released_ms, now);
}

static void budget_load_usage(struct tenant_budget *b)
{
    struct manager *m = b->manager;
    uint64_t now = clock_real_ms();

    b->load_failed = false;
    manager_commit_cpu_usage(m, b->period.owner); /* so that the stored sums and the counters leave no gap */
    budget_period_roll(&b->period, now);
    budget_count_spans(b);
    budget_count_executions(b);
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
    budget_add_uncommitted_spans(b, now);
    if (!m->budget_timer.slot)
        ev_timer_set(m->ev, &m->budget_timer, ev_now(m->ev) + TICK_NS, budget_on_tick, m);
}

static void budget_free(struct tenant_budget *b)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        if (b->requests[p])
            store_request_detach(b->requests[p]);
    b->quota->budget = NULL;
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
        b->quota = tenant_quotas_get(m->quotas, row->owner);
        b->quota->budget = b;
        b->is_over = true; /* sandboxes may be marked by an earlier budget */
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
    budget_read_cpu(m, b);
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
    return sb->span.running && sb->state != SANDBOX_STATE_CREATING;
}

void manager_usage_totals(struct manager *m, struct manager_usage_totals *ret)
{
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = clock_real_ms(), alive = 0;

    *ret = (struct manager_usage_totals){ .refused = m->budget_refused };
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (budget_sandbox_is_counted(sb)) {
                (void)sandbox_read_cpu_us(sb); /* which adds it to the sums */
                alive += sandbox_observed_ms(sb, now);
            }
    for (struct ephemeral_sandbox *g = m->ephemeral_sandboxes; g; g = g->next) {
        (void)ephemeral_sandbox_read_cpu_us(g);
        alive += g->span.running ? ephemeral_sandbox_lived_ms(g, now) : 0;
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
