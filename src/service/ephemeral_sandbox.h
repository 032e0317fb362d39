/* ephemeral_sandbox.h - sandboxes without a row: made for one thing, and gone with it.
 *
 * Nobody can find one by its name and no restart brings it back: it is never kept, so the jailer ends it when this
 * process goes. What it uses is its tenant's all the same. It counts against quotas while it lives and against budgets,
 * and its sums go to the store, put together with those of others, about once a second: what a kill takes away is the
 * usage of that second. */
#pragma once

#include "sandbox/pool/pools.h"
#include "service/budget_period.h"
#include "service/manager.h"

struct ephemeral_sandbox { /* embedded in its owner; zeroed is none. It must not move while it is there */
    struct ephemeral_sandbox *next, **link; /* at NULL: it was not admitted, or it is over */
    struct manager *manager;
    struct tenant_quota *quota;
    char created_by[ID_SIZE];
    uint64_t quota_amounts[STORE_QUOTA_COUNT];
    bool quota_reserved;    /* it holds its amounts, and lives */
    bool execution_counted; /* its execution is counted as one that has ended */
    bool quota_released;    /* it holds them no more: it was of use, and has to go */
    uint64_t created_ms, released_ms, cpu_us;
    struct budget_span span;       /* its time, from its creation until its quota is released */
    struct sandbox_handle *handle; /* the owner's; NULL while there is none */
    bool from_pool;                /* it is of a pool, and there was: */
    struct pool_loan loan;
    struct pool_return pool_return; /* while it is given back: */
    struct sandbox_spec return_spec;
    void (*on_returned)(void *arg);
    uint64_t cpu_base_ns; /* of its box when it got it: of a recycled one, others' */
    uint64_t memory_peak; /* of memory, of a box that was given back */
    bool claim_pending;
    uint64_t claim_began_ns;
    /* Its tenant may not go on: it is to be ended, and ephemeral_sandbox_end follows soon. Not called twice. */
    void (*on_stop)(void *arg, enum ended_by by, const struct err *why);
    void *arg;
    bool stop_requested;
};

void ephemeral_sandbox_init(struct ephemeral_sandbox *g, struct manager *m, const char *owner, const char *created_by);
/* Whether the tenant may have one execution more now: readiness, budget, executions per hour. It is counted. */
int ephemeral_sandbox_admit(struct ephemeral_sandbox *g, struct err *err);
/* The tenant's line for whoever lets guests begin in turn. */
struct fair_queue_line *ephemeral_sandbox_queue_line(const struct ephemeral_sandbox *g);
uint32_t ephemeral_sandbox_waiting(const struct ephemeral_sandbox *g); /* how many of the tenant's wait */
void ephemeral_sandbox_count_waiting(const struct ephemeral_sandbox *g,
                                     int by); /* it is one of them from now on (1), or no more (-1) */
/* Takes what it needs of the tenant's quota, and makes its sandbox: g->box. `stop` and `arg` are set by now. */
int ephemeral_sandbox_create(struct ephemeral_sandbox *g, const struct spec *spec, const struct sandbox_handle_ops *ops,
                             void *arg, struct err *err);
/* The box that it took was dead: it gets one that is made for it. Nothing more is heard of the other. */
int ephemeral_sandbox_replace(struct ephemeral_sandbox *g, const struct spec *spec,
                              const struct sandbox_handle_ops *ops, void *arg, struct err *err);
/* Its box is ready, or will not be: for those who make them ahead. */
void ephemeral_sandbox_claim_finished(struct ephemeral_sandbox *g, const struct spec *spec, bool well);

struct ephemeral_run_usage {
    const struct receipt *receipt; /* NULL: it was not run to an end */
    uint64_t wall_ms, output_bytes;
    bool failed;
};
/* The execution is over: counted, and looked at as any other's. */
void ephemeral_sandbox_count_execution(struct ephemeral_sandbox *g, const struct ephemeral_run_usage *use);
/* What it was refused by the end of its interpreter, when no receipt of ephemeral_sandbox_count_execution could say so.
 */
void ephemeral_sandbox_count_denials(const struct ephemeral_sandbox *g, const struct receipt *r);
/* It waits only for its end: what it held is given back, and its life is counted until now. */
void ephemeral_sandbox_release_quota(struct ephemeral_sandbox *g);
/* Its box goes back to the pool that lent it, if that recycles; `done` follows, and g->box is NULL if it was taken.
 * False: there is none to give it back to, and nothing follows. by_itself: the program ended, and nobody ended it. */
bool ephemeral_sandbox_return_to_pool(struct ephemeral_sandbox *g, const struct spec *spec, bool by_itself, bool full,
                                      void (*done)(void *arg));
/* For the end, when the last guest is gone: what they used goes to the store now. */
void manager_flush_ephemeral_usage(struct manager *m);
/* Its sandbox is gone, or there never was one; what it held is given back. Of one that is over, nothing. */
void ephemeral_sandbox_end(struct ephemeral_sandbox *g);
