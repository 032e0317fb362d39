/* Ends the live work of a tenant that is suspended or has used up its budget. */
#include "service/service_internal.h"

#include "core/base/mem.h"

#define LEFTOVER_TICK_US (100 * 1000u)  /* in one tick, without an execution: a program was left running */
#define LEFTOVER_TOTAL_US (500 * 1000u) /* in all ticks together: a program that works slowly */

void sandbox_end_suspended(struct sandbox *sb)
{
    struct err why;

    err_set(&why, ERR_TENANT_SUSPENDED, "its tenant, %s, was suspended or removed", sb->quota->tenant);
    sandbox_end(sb, ENDED_KILLED, &why);
}

/* Sandboxes that are still to be adopted are ended at their adoption. */
void tenant_stop_suspended(void *arg, const struct tenant_quota *q)
{
    struct manager *m = arg;
    struct err why;
    size_t n = 0;
    struct sandbox **all = mem_new_array(struct sandbox *, m->nsandboxes + 1);

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == q && sb->state != SANDBOX_STATE_LOADED)
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        sandbox_end_suspended(all[i]);
    free(all);
    err_set(&why, ERR_TENANT_SUSPENDED, "the tenant %s was suspended or removed", q->tenant);
    ephemeral_sandboxes_stop(m, q->tenant, ENDED_KILLED, &why);
    if (m->pools)
        pools_drop_owner(m->pools, q->tenant);
}

/* --- budgets --- */

static void tenant_stop_executions(struct sandbox *sb, const struct err *why)
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
        if ((ex->exec || ex->running_context) && ex->state != EXECUTION_ENDED && !ex->over_budget) {
            ex->over_budget = true;
            execution_kill(ex);
        }
}

void tenant_stop_over_budget(void *arg, const struct tenant_quota *q, bool end_sandboxes, const struct err *why)
{
    struct manager *m = arg;
    size_t n = 0;
    struct sandbox **all = mem_new_array(struct sandbox *, m->nsandboxes + 1);

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == q && (sb->state == SANDBOX_STATE_RUNNING || sb->state == SANDBOX_STATE_PAUSED))
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        if (end_sandboxes)
            sandbox_end(all[i], ENDED_BUDGET, why);
        else
            tenant_stop_executions(all[i], why);
    free(all);
    ephemeral_sandboxes_stop(m, q->tenant, ENDED_BUDGET, why);
}

void tenant_budget_renewed(void *arg, const struct tenant_quota *q)
{
    struct manager *m = arg;

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == q)
                sb->over_budget_cpu_us = 0;
}
