/* live_sandboxes.h - all live sandboxes, with and without a row: their usage, and how those of one
 * tenant are stopped. */
#pragma once

#include "service/budget.h"

struct ephemeral_sandboxes;
struct pools;
struct registry;

struct live_sandboxes { /* borrowed pointers */
    struct registry *registry;
    struct ephemeral_sandboxes *ephemerals;
    struct store *store;
    struct budgets *budgets;
    struct pools *pools;
};

/* Writes the running and paused sandboxes of the owner to ret, oldest first, at most max. Returns
 * how many were written. */
struct live_sandbox {
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    bool paused;
    uint64_t created_ms;
    size_t executions;
    uint64_t cpu_millis, memory_bytes, pids; /* its limits */
};
size_t live_sandboxes_list(const struct live_sandboxes *l, const char *owner, struct live_sandbox *ret, size_t max);
/* Sends the CPU usage of every live sandbox of the owner to the store, ahead of calls made after
 * this one. */
void live_sandboxes_commit_cpu(struct live_sandboxes *l, const char *owner);
/* As budgets_totals(), with the lifetimes of live sandboxes until now. */
void live_sandboxes_usage_totals(struct live_sandboxes *l, struct manager_usage_totals *ret);

/* Callbacks; arg: struct live_sandboxes. */
extern const struct budgets_ops live_sandboxes_budgets_ops;
bool live_sandboxes_sample(void *arg, uint64_t since_ns);                    /* of usage_meter_new() */
void live_sandboxes_stop_suspended(void *arg, const struct tenant_quota *q); /* of tenant_quotas_new() */
