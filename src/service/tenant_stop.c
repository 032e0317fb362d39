/* Ends the live work of a tenant that is suspended or has used up its budget. */
#include "service/sandbox_internal.h"

#include "core/base/mem.h"
#include "service/ephemeral_sandbox.h"
#include "service/live_sandboxes.h"

#define LEFTOVER_TICK_US (100 * 1000u)  /* in one tick, without an execution: a program was left running */
#define LEFTOVER_TOTAL_US (500 * 1000u) /* in all ticks together: a program that works slowly */

/* Sandboxes that are still to be adopted are ended at their adoption. */
void tenant_stop_suspended(void *arg, const struct tenant_quota *q)
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
    sandbox_kill_executions_over_budget(sb);
}

void tenant_stop_over_budget(void *arg, const struct tenant_quota *q, bool end_sandboxes, const struct err *why)
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
            tenant_stop_executions(sb, why);
    }
    ephemeral_sandboxes_stop(l->ephemerals, q->tenant, ENDED_BUDGET, why);
}

void tenant_budget_renewed(void *arg, const struct tenant_quota *q)
{
    const struct live_sandboxes *l = arg;

    for (struct sandbox *sb = NULL; (sb = registry_next(l->registry, sb));)
        if (sb->quota == q)
            sb->over_budget_cpu_us = 0;
}
