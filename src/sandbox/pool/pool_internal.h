/* pool_internal.h - what pools.c, pool_reconcile.c, pool_member.c, recycled.c and zygote_keeper.c
 * know of one another. Only this directory includes it. */
#pragma once

#include "sandbox/pool/forecast.h"
#include "core/base/backoff.h"
#include "sandbox/owned_spec.h"
#include "sandbox/pool/pools.h"

/* --- zygote_keeper.c: the zygote of one kind of sandbox --- */

struct zygote_keeper {
    struct zygote_keeper *next;
    struct pools *pools;
    struct owned_spec owned_spec;
    enum pool_zygote_state state;
    bool renewing;           /* READY: its replacement is being started */
    bool permanently_failed; /* FAILED: a retry would fail again */
    struct err why;          /* FAILED: the error */
    uint64_t started_ns, renew_not_before_ns;
    struct backoff backoff; /* between starts that fail */
    struct ev_timer retry_timer, start_timer;
    unsigned join_failures_in_a_row; /* reset to 0 by a join that succeeds */
    uint64_t busy_until;             /* the zygote had too many forks to make */
    uint64_t starts, renewals, forks, joins, joins_failed;
};
/* NULL: the kind has no zygote. */
struct zygote_keeper *zygote_keeper_for_spec(struct pools *p, const struct sandbox_spec *like);
/* True if joins are possible. Starts the zygote, or its replacement when one is due. */
bool zygote_keeper_ensure_ready(struct zygote_keeper *b, const struct pool_settings *set);
void zygote_keeper_on_join(struct zygote_keeper *b, const struct err *err); /* err is NULL on success */
void zygote_keeper_retry_failed(struct zygote_keeper *b); /* retries a zygote that failed permanently */
void zygote_keepers_reset(struct pools *p);               /* the jailer is gone */
void zygote_keepers_free(struct pools *p);
void zygote_keepers_drop_unused(struct pools *p); /* stops the zygotes of kinds that no pool uses */

/* --- pool_member.c --- */

enum pool_member_state { POOL_MEMBER_CREATING, POOL_MEMBER_JOINING, POOL_MEMBER_READY };
struct pool_member {
    struct pool_member *next, *prev; /* oldest first */
    struct pool *pool;
    struct sandbox_handle *sandbox;
    enum pool_member_state state;
    bool join_impossible;
    bool interpreter_joined_later; /* the interpreter joined after the member was ready */
    bool loss_counted;             /* the end of its interpreter was counted */
    bool is_warmed_up;
    uint64_t created_ns;
};
int pool_member_create(struct pool *pool, struct err *err);
void pool_member_join_interpreter(struct pool_member *m);
/* The sandbox now belongs to the caller; the member is freed. */
struct sandbox_handle *pool_member_release(struct pool_member *m);
void pool_member_destroy(struct pool_member *m);
/* Ready, but without the interpreter that it should have. */
bool pool_member_lacks_interpreter(const struct pool_member *m);

/* --- recycled.c: sandboxes that were returned --- */

struct recycled_sandbox;
bool recycled_add(struct pool *pool, struct sandbox_handle *sandbox, const struct pool_loan *loan,
                  const struct pool_return *r);
/* NULL: none. */
struct sandbox_handle *recycled_take(struct pool *pool, const char *owner, enum level level, struct pool_loan *ret);
uint32_t recycled_count(const struct pool *pool, bool waiting); /* only those that wait, or all */
/* Evicts the old ones; returns when the next one is due, or 0. */
uint64_t recycled_evict(struct pool *pool, uint64_t now);
void recycled_drop_owner(struct pool *pool, const char *owner);
void recycled_clear(struct pool *pool);

/* --- pools.c, pool_reconcile.c --- */

struct pool {
    struct pool *next;
    struct pools *pools;
    char name[POOL_NAME_MAX]; /* "": the auto pool */
    uint64_t generation;
    uint64_t serial; /* unique: unlike generation, never reused by another pool */
    struct pool_settings settings;
    struct owned_spec owned_spec;
    struct zygote_keeper *zygote_keeper; /* NULL: no zygote */
    struct pool_member *first_member, *last_member;
    uint32_t ready, starting;
    struct recycled_sandbox *recycled; /* newest first */
    struct forecast forecast;
    uint32_t target;
    uint64_t refill_ns;
    struct backoff create_backoff; /* after a member could not be created */
    uint64_t create_not_before;    /* 0: at any time */
    struct pool_info counters;     /* only the counters are used */
};

struct pools {
    struct ev *ev;
    struct engine *engine; /* NULL: none */
    struct pool auto_pool; /* for the spec requested last, if twice in a row; head of the list of pools */
    struct owned_spec last_requested;
    bool requested_twice;
    struct zygote_keeper *zygote_keepers;
    uint64_t zygote_start_timeout_ns; /* a zygote that is not ready after this time has failed */
    uint64_t last_serial;
    uint32_t starting_members;
    uint32_t queue_length;        /* requests that wait to claim a sandbox */
    uint32_t claims_in_flight;    /* claimed sandboxes that are not ready yet */
    uint64_t claims_expire_at;    /* when claims_in_flight is reset, in case a claim is never reported as finished */
    uint64_t idle_from;           /* without a request until then, more members may be created at a time */
    uint64_t warm_up_done_at;     /* when the interpreters that warm up now are ready */
    uint64_t refill_paused_until; /* the sandbox claimed last starts to work until then */
    struct ev_defer reconcile_defer;
    struct ev_timer reconcile_timer;
};

void pool_reconcile_soon(struct pools *p); /* at the end of this loop iteration */
void pool_reconcile_stop(struct pools *p);
void pool_reconcile_member_created(struct pool *pool, uint64_t ns); /* a member is ready after ns */
void pool_reconcile_member_failed(struct pool *pool);
void pool_clear(struct pool *pool);
