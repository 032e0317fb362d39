/* budget.h - enforces the budgets of tenants per day and per month, and sums up what all tenants
 * have used.
 *
 * Sandboxes and executions are reported here when they begin and end, as spans and counts. Reading
 * the CPU counters of live sandboxes and stopping them are calls of budgets_ops. */
#pragma once

#include "core/ev/ev.h"
#include "service/budget_period.h"
#include "service/tenant_quotas.h"

struct budgets;

struct budgets_ops {
    /* Reads the CPU counters of the tenant's live sandboxes, or with NULL of all tenants that have
     * a budget. The growth of a counter is passed to budget_add_cpu(). */
    void (*read_cpu)(void *arg, const struct tenant_quota *q);
    /* Sends the tenant's usage to the store, ahead of calls made after this one. */
    void (*commit_usage)(void *arg, const struct tenant_quota *q);
    /* A limit is reached; repeated every second while it is. end_sandboxes: their time is used up,
     * so they end. Otherwise the CPU time is, and what uses more of it ends. */
    void (*stop)(void *arg, const struct tenant_quota *q, bool end_sandboxes, const struct err *why);
    void (*on_renewed)(void *arg, const struct tenant_quota *q); /* no limit is reached any more */
    uint64_t (*now_ms)(void);                                    /* the wall clock */
};

/* Immediately begins to read the budgets. */
struct budgets *budgets_new(struct ev *ev, struct store *store, struct tenant_quotas *quotas,
                            const struct budgets_ops *ops, void *arg);
/* Afterwards tenants have no budget. */
void budgets_free(struct budgets *a);
DEFINE_AUTO(budgets, budgets_free);

void budgets_set(struct budgets *a, const struct store_budget *row); /* applies a budget that was committed */
struct manager_budget {
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], used[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES];
    uint64_t renews_ms[STORE_PERIOD_COUNT];
};
/* False: the tenant has no budget, or it is still being read. */
bool budgets_get(struct budgets *a, const char *owner, struct manager_budget *ret);
/* Sums over all tenants. */
struct manager_usage_totals {
    /* Since the start; in us, ms and counts. */
    uint64_t used[STORE_BUDGET_RESOURCES];
    uint64_t refused; /* requests that a budget refused */
    /* Limits of all tenants, by how much of each is used. */
    uint64_t bounds[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES][BUDGET_LIMIT_STATES];
};
/* `used` is without the lifetimes of live sandboxes and without executions that still run. */
void budgets_totals(struct budgets *a, struct manager_usage_totals *ret);

/* Whether a sandbox or an execution may begin; otherwise ERR_BUDGET. The CPU time is that of the
 * last tick, at most one second ago. */
int budget_check(struct budgets *a, const struct tenant_quota *q, bool execution, struct err *err);
void budget_add_cpu(struct budgets *a, const struct tenant_quota *q, uint64_t us); /* a CPU counter grew by us */
void budget_execution_begin(struct tenant_quota *q);
void budget_execution_end(struct budgets *a, struct tenant_quota *q);
void budget_execution_cancel(struct tenant_quota *q); /* it began, but does not count */

/* The lifetime of one sandbox, which counts as sandboxMs. It must not move before it is
 * stored or cancelled. All zero: not begun. */
struct budget_span {
    struct budget_span *next, **link; /* list of the tenant; link NULL: not begun, stored or cancelled */
    uint64_t from_ms, to_ms;          /* by the wall clock; to_ms 0: not ended */
};
static inline bool budget_span_is_running(const struct budget_span *s)
{
    return s->link && !s->to_ms;
}
void budget_span_begin(struct tenant_quota *q, struct budget_span *s, uint64_t from_ms);
void budget_span_end(struct budgets *a, const struct tenant_quota *q, struct budget_span *s, uint64_t to_ms);
void budget_span_stored(struct budget_span *s); /* the store has received the lifetime, with the end of the sandbox */
void budget_span_cancel(const struct tenant_quota *q, struct budget_span *s); /* it does not count */
/* The part of a lifetime until until_ms that this process has seen. */
uint64_t budget_span_observed_ms(const struct budgets *a, const struct budget_span *s, uint64_t until_ms);
