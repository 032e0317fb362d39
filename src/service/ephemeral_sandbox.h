/* ephemeral_sandbox.h - sandboxes without a row, made for one run.
 *
 * An ephemeral sandbox cannot be found by its id and does not survive a restart: it is not kept, so
 * the jailer ends it when this process ends. Its usage still belongs to its tenant: it counts
 * against quotas while it lives and against budgets. The usage of all ephemeral sandboxes is summed
 * and committed about once per second (usage_batch.h). */
#pragma once

#include "service/budget.h"
#include "service/manager.h"
#include "service/sandbox_source.h"

enum ephemeral_state {
    EPHEMERAL_NONE,     /* not admitted */
    EPHEMERAL_ADMITTED, /* its execution counts; it has no quota yet */
    EPHEMERAL_LIVE,     /* quota_amounts are reserved */
    EPHEMERAL_RELEASED, /* quota released; waiting for teardown */
    EPHEMERAL_OVER,
};

struct executions;
struct recovery;
struct usage_batch;

struct ephemeral_sandboxes { /* all of them; borrowed pointers, except the list */
    struct ev *ev;
    struct tenant_quotas *quotas;
    struct budgets *budgets;
    const struct sandbox_supply *supply;
    const struct recovery *recovery; /* whether sandboxes can be created */
    struct executions *executions;   /* counts executions, receipts and denials */
    struct host_modules *modules;    /* for hints */
    struct usage_batch *usage;
    struct ephemeral_sandbox *list;
};
void ephemeral_sandboxes_stop(struct ephemeral_sandboxes *all, const char *owner, enum ended_by by,
                              const struct err *why);
void ephemeral_sandboxes_done(struct ephemeral_sandboxes *all);
/* For shutdown, after the last ephemeral sandbox: submits the collected usage. */
void ephemeral_sandboxes_flush_usage(struct ephemeral_sandboxes *all);

/* Embedded in its owner; all zero: none. It must not move while it is in use. */
struct ephemeral_sandbox {
    struct ephemeral_sandbox *next, **link; /* all->list, from ADMITTED to RELEASED */
    enum ephemeral_state state;
    struct ephemeral_sandboxes *all;
    struct tenant_quota *quota;
    char created_by[ID_SIZE];
    uint64_t quota_amounts[STORE_QUOTA_COUNT];
    bool execution_counted; /* its execution is included in the sums of ended executions */
    uint64_t created_ms, released_ms, cpu_us;
    struct budget_span span;       /* its lifetime, from its creation until its quota is released */
    struct sandbox_handle *handle; /* owned by the embedding run; NULL: none */
    struct sandbox_source source;
    struct pool_return pool_return; /* while it is being returned */
    void (*on_returned)(void *arg);
    uint64_t cpu_base_ns; /* CPU counter of a recycled sandbox when it was taken; 0 for a fresh one */
    uint64_t memory_peak; /* of a sandbox that was returned to its pool */
    /* The tenant must stop: the sandbox is to be ended, and ephemeral_sandbox_end follows soon.
     * Called at most once. */
    void (*on_stop)(void *arg, enum ended_by by, const struct err *why);
    void *arg;
    bool stop_requested;
};

void ephemeral_sandbox_init(struct ephemeral_sandbox *g, struct ephemeral_sandboxes *all, const char *owner,
                            const char *created_by);
/* Checks readiness, budget and executions per hour, and counts one execution. */
int ephemeral_sandbox_admit(struct ephemeral_sandbox *g, struct err *err);
/* The tenant's line in the queue for ephemeral sandboxes. */
struct fair_queue_line *ephemeral_sandbox_queue_line(const struct ephemeral_sandbox *g);
uint32_t ephemeral_sandbox_waiting(const struct ephemeral_sandbox *g); /* how many runs of the tenant wait */
/* Adds 1 or -1 to the number of waiting runs of the tenant. */
void ephemeral_sandbox_count_waiting(const struct ephemeral_sandbox *g, int by);
/* Reserves the quota and creates the sandbox: g->handle. on_stop and arg must be set; spec must
 * stay until ephemeral_sandbox_end. */
int ephemeral_sandbox_create(struct ephemeral_sandbox *g, const struct spec *spec, const struct sandbox_handle_ops *ops,
                             void *arg, struct err *err);
/* Replaces a member that died before it confirmed the claim. */
int ephemeral_sandbox_replace(struct ephemeral_sandbox *g, struct err *err);

struct ephemeral_run_usage {
    const struct receipt *receipt; /* NULL: it did not run to an end */
    uint64_t wall_ms, output_bytes;
    bool failed;
};
/* Counts the execution that has ended, in usage, budget and statistics. */
void ephemeral_sandbox_count_execution(struct ephemeral_sandbox *g, const struct ephemeral_run_usage *use);
/* Counts the denials that are known only at the end of the interpreter, when no receipt of
 * ephemeral_sandbox_count_execution could contain them. */
void ephemeral_sandbox_count_denials(const struct ephemeral_sandbox *g, const struct receipt *r);
/* Releases the quota while the sandbox waits for its teardown. Its lifetime is counted until
 * now. */
void ephemeral_sandbox_release_quota(struct ephemeral_sandbox *g);
/* Returns the sandbox to its pool if the pool recycles. `done` follows; g->handle is NULL if the
 * pool took it. False: there is no pool to return it to, and `done` is not called. by_itself: the
 * program ended and was not killed. */
bool ephemeral_sandbox_return_to_pool(struct ephemeral_sandbox *g, bool by_itself, bool full, void (*done)(void *arg));
/* The sandbox is gone or never existed: releases the quota and counts its lifetime. No effect if it
 * is over. */
void ephemeral_sandbox_end(struct ephemeral_sandbox *g);
uint64_t ephemeral_sandbox_read_cpu_us(struct ephemeral_sandbox *g); /* its CPU counter in us; 0: unknown */
