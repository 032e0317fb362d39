/* Only tenants with a budget are known here. The usage of everything that has ended is read once
 * from the store and updated when something ends. Live sandboxes and executions are counted when
 * they begin and end, so a check takes constant time, however many sandboxes there are. New work is
 * refused when a limit is reached. Once per second the CPU counters are read and the tenants with
 * live work are checked.
 *
 * Invariants:
 * 1. The spans of a tenant, running or not stored yet, are in its list, and nexecutions of its
 *    quota is the number of its executions that have begun and not ended. Both hold without a
 *    budget too, so that a new budget begins with the right numbers.
 * 2. nspans and spans_from_ms of a budget are sums over the running spans of that list.
 * 3. A span or an execution is either in these counters or in period.used, never in both. */
#include "service/budget.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <string.h>

#define TICK_NS (1 * NS_PER_S)

struct tenant_budget {
    struct tenant_budget *next;
    struct budgets *budgets;
    struct tenant_quota *quota;  /* of the same tenant */
    struct budget_period period; /* used: everything that has ended, and all CPU time read so far */
    size_t nloading;             /* pending answers of the store */
    bool load_failed;            /* an answer was an error; requests are refused until a retry succeeds */
    bool is_over;                /* a limit was reached at the last tick */
    struct store_request *requests[STORE_PERIOD_COUNT];
    uint64_t nspans; /* running spans */
    /* Sum over the running spans: the beginning of the span or the period, whichever is later. */
    uint64_t spans_from_ms[STORE_PERIOD_COUNT];
};

struct budgets {
    struct ev *ev;
    struct store *store;
    struct tenant_quotas *quotas;
    const struct budgets_ops *ops;
    void *arg;
    struct tenant_budget *list;
    struct store_request *request; /* reads the budgets */
    bool loaded;
    struct ev_timer timer;
    uint64_t started_ms; /* wall clock */
    /* Usage since started_ms, except the lifetimes of live sandboxes and executions that still run;
     * in us, ms and counts. */
    uint64_t used[STORE_BUDGET_RESOURCES];
    uint64_t refused;
};

/* --- sums --- */

static struct tenant_budget *budget_find(const struct budgets *a, const char *owner)
{
    struct tenant_budget *b = a->list;

    while (b && !str_eq(b->period.owner, owner))
        b = b->next;
    return b;
}

static void budget_add_running_span(struct tenant_budget *b, const struct budget_span *s)
{
    b->nspans++;
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        b->spans_from_ms[p] += max_u64(s->from_ms, b->period.begin_ms[p]);
}

static void budget_remove_running_span(struct tenant_budget *b, const struct budget_span *s)
{
    b->nspans--;
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        b->spans_from_ms[p] -= max_u64(s->from_ms, b->period.begin_ms[p]);
}

static void budget_count_spans(struct tenant_budget *b)
{
    b->nspans = 0;
    memset(b->spans_from_ms, 0, sizeof(b->spans_from_ms));
    for (const struct budget_span *s = b->quota->spans; s; s = s->next)
        if (budget_span_is_running(s))
            budget_add_running_span(b, s);
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

        ret[p][STORE_BUDGET_SANDBOX_TIME] += until > b->spans_from_ms[p] ? until - b->spans_from_ms[p] : 0;
        ret[p][STORE_BUDGET_EXECUTIONS] += b->quota->nexecutions;
    }
}

int budget_check(struct budgets *a, const struct tenant_quota *q, bool execution, struct err *err)
{
    struct tenant_budget *b = q->budget;
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = a->ops->now_ms();
    enum store_period p;

    if (!a->loaded || (b && (b->nloading || b->load_failed)))
        return err_set(err, ERR_BUSY, "the server is still reading the usage of %s; try again", q->tenant);
    if (!b)
        return 0;
    budget_sum_usage(b, now, sums);
    for (int what = 0; what < STORE_BUDGET_RESOURCES; what++)
        if ((what != STORE_BUDGET_EXECUTIONS || execution) &&
            budget_period_limit_reached(&b->period, sums, (enum store_budget_resource)what, &p)) {
            a->refused++;
            return budget_period_set_error(&b->period, sums, (enum store_budget_resource)what, p, now, err);
        }
    return 0;
}

/* --- work that begins and ends, and CPU counters --- */

void budget_add_cpu(struct budgets *a, const struct tenant_quota *q, uint64_t us)
{
    uint64_t now = a->ops->now_ms();

    a->used[STORE_BUDGET_CPU_TIME] += us;
    if (!q->budget)
        return;
    budget_roll(q->budget, now);
    budget_period_add(&q->budget->period, STORE_BUDGET_CPU_TIME, us, now);
}

void budget_execution_begin(struct tenant_quota *q)
{
    q->nexecutions++;
}

void budget_execution_cancel(struct tenant_quota *q)
{
    q->nexecutions--;
}

void budget_execution_end(struct budgets *a, struct tenant_quota *q)
{
    uint64_t now = a->ops->now_ms();

    a->used[STORE_BUDGET_EXECUTIONS]++;
    q->nexecutions--;
    if (!q->budget)
        return;
    budget_roll(q->budget, now);
    budget_period_add(&q->budget->period, STORE_BUDGET_EXECUTIONS, 1, now);
}

uint64_t budget_span_observed_ms(const struct budgets *a, const struct budget_span *s, uint64_t until_ms)
{
    uint64_t from = max_u64(s->from_ms, a->started_ms);

    return until_ms > from ? until_ms - from : 0;
}

void budget_span_begin(struct tenant_quota *q, struct budget_span *s, uint64_t from_ms)
{
    if (q->budget)
        budget_roll(q->budget, q->budget->budgets->ops->now_ms());
    *s = (struct budget_span){ .from_ms = from_ms };
    linked_push(&q->spans, s);
    if (q->budget)
        budget_add_running_span(q->budget, s);
}

void budget_span_cancel(const struct tenant_quota *q, struct budget_span *s)
{
    if (budget_span_is_running(s) && q->budget)
        budget_remove_running_span(q->budget, s);
    linked_remove(s);
}

void budget_span_end(struct budgets *a, const struct tenant_quota *q, struct budget_span *s, uint64_t to_ms)
{
    uint64_t now = a->ops->now_ms();

    if (!budget_span_is_running(s))
        return;
    a->used[STORE_BUDGET_SANDBOX_TIME] += budget_span_observed_ms(a, s, to_ms);
    s->to_ms = to_ms;
    if (!q->budget)
        return;
    budget_remove_running_span(q->budget, s);
    budget_roll(q->budget, now);
    budget_period_add_span(&q->budget->period, s->from_ms, to_ms, now);
}

void budget_span_stored(struct budget_span *s)
{
    linked_remove(s);
}

/* --- enforcement --- */

static void budget_load_usage(struct tenant_budget *b);

static void budget_enforce(struct tenant_budget *b)
{
    struct budgets *a = b->budgets;
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = a->ops->now_ms();
    struct err why = { 0 };
    enum store_period p;

    if (b->load_failed && !b->nloading)
        budget_load_usage(b);
    if (b->nloading)
        return;
    budget_sum_usage(b, now, sums);
    bool time_over = budget_period_limit_reached(&b->period, sums, STORE_BUDGET_SANDBOX_TIME, &p);
    if (!time_over && !budget_period_limit_reached(&b->period, sums, STORE_BUDGET_CPU_TIME, &p)) {
        if (b->is_over)
            a->ops->on_renewed(a->arg, b->quota);
        b->is_over = false;
        return;
    }
    b->is_over = true;
    (void)budget_period_set_error(&b->period, sums, time_over ? STORE_BUDGET_SANDBOX_TIME : STORE_BUDGET_CPU_TIME, p,
                                  now, &why);
    a->ops->stop(a->arg, b->quota, time_over, &why);
}

static void budget_on_tick(void *arg)
{
    struct budgets *a = arg;

    a->ops->read_cpu(a->arg, NULL);
    for (struct tenant_budget *b = a->list; b; b = b->next)
        if (b->quota->spans || b->quota->nexecutions || b->load_failed)
            budget_enforce(b);
    if (a->list)
        ev_timer_set(a->ev, &a->timer, ev_now(a->ev) + TICK_NS, budget_on_tick, a);
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
    b->period.used[p][STORE_BUDGET_CPU_TIME] += rows[0].cpu_us;
    b->period.used[p][STORE_BUDGET_SANDBOX_TIME] += rows[0].sandbox_ms;
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
static void budget_add_unstored_spans(struct tenant_budget *b, uint64_t now)
{
    for (const struct budget_span *s = b->quota->spans; s; s = s->next)
        if (!budget_span_is_running(s))
            budget_period_add_span(&b->period, s->from_ms, s->to_ms, now);
}

static void budget_load_usage(struct tenant_budget *b)
{
    struct budgets *a = b->budgets;
    uint64_t now = a->ops->now_ms();

    b->load_failed = false;
    a->ops->commit_usage(a->arg, b->quota); /* so that the stored sums and the counters leave no gap */
    budget_period_roll(&b->period, now);
    budget_count_spans(b);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        struct store_usage_query q = { .owner = b->period.owner,
                                       .from_ms = b->period.begin_ms[p],
                                       .to_ms = now + STORE_HOUR_MS };

        memset(b->period.used[p], 0, sizeof(b->period.used[p]));
        if (b->requests[p])
            store_request_detach(b->requests[p]);
        else
            b->nloading++;
        b->requests[p] = store_usage_list(a->store, &q,
                                          p == STORE_PERIOD_DAY ? budget_on_day_usage : budget_on_month_usage, b);
    }
    budget_add_unstored_spans(b, now);
    if (!a->timer.slot)
        ev_timer_set(a->ev, &a->timer, ev_now(a->ev) + TICK_NS, budget_on_tick, a);
}

static void budget_free(struct tenant_budget *b)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        if (b->requests[p])
            store_request_detach(b->requests[p]);
    b->quota->budget = NULL;
    free(b);
}

void budgets_set(struct budgets *a, const struct store_budget *row)
{
    static const uint64_t none[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES];
    struct tenant_budget *b = budget_find(a, row->owner);
    bool fresh = !b;

    if (memcmp(row->max, none, sizeof(none)) == 0) {
        struct tenant_budget **at = &a->list;

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
        b->budgets = a;
        b->quota = tenant_quotas_get(a->quotas, row->owner);
        b->quota->budget = b;
        b->is_over = true; /* sandboxes may be marked by an earlier budget */
        memcpy(b->period.owner, row->owner, sizeof(b->period.owner));
        b->next = a->list;
        a->list = b;
    }
    memcpy(b->period.max, row->max, sizeof(b->period.max));
    if (fresh)
        budget_load_usage(b);
}

static void budget_on_list(void *arg, const struct err *err, const struct store_budget *rows, size_t n)
{
    struct budgets *a = arg;

    a->request = NULL;
    if (err) {
        log_error("cannot read the budgets; no work is accepted: %s", err->msg);
        return;
    }
    a->loaded = true;
    for (size_t i = 0; i < n; i++)
        budgets_set(a, &rows[i]);
}

struct budgets *budgets_new(struct ev *ev, struct store *store, struct tenant_quotas *quotas,
                            const struct budgets_ops *ops, void *arg)
{
    struct budgets *a = mem_new(struct budgets);

    *a = (struct budgets){ .ev = ev, .store = store, .quotas = quotas, .ops = ops, .arg = arg };
    a->started_ms = ops->now_ms();
    a->request = store_budget_list(store, STORE_ANY_OWNER, budget_on_list, a);
    return a;
}

void budgets_free(struct budgets *a)
{
    if (!a)
        return;
    if (a->request)
        store_request_detach(a->request);
    while (a->list) {
        struct tenant_budget *b = a->list;

        a->list = b->next;
        budget_free(b);
    }
    ev_timer_clear(a->ev, &a->timer);
    free(a);
}

bool budgets_get(struct budgets *a, const char *owner, struct manager_budget *ret)
{
    struct tenant_budget *b = budget_find(a, owner);
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = a->ops->now_ms();

    if (!b || b->nloading || b->load_failed)
        return false;
    a->ops->read_cpu(a->arg, b->quota);
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

void budgets_totals(struct budgets *a, struct manager_usage_totals *ret)
{
    uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], now = a->ops->now_ms();

    *ret = (struct manager_usage_totals){ .refused = a->refused };
    memcpy(ret->used, a->used, sizeof(ret->used));
    for (struct tenant_budget *b = a->list; b; b = b->next) {
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
