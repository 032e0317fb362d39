/* pool_internal.h - what pools.c, pool_reconcile.c, pool_member.c, recycled.c, zygote_keeper.c and owned_spec.c know of
 * one another. Nothing outside this room includes it. */
#pragma once

#include "sandbox/pool/forecast.h"
#include "core/base/backoff.h"
#include "sandbox/pool/pools.h"

/* --- owned_spec.c: a spec that outlives the one it was copied from --- */

struct owned_spec {
    struct sandbox_spec spec; /* points into the rest */
    struct zygote_spec zygote;
    char *language, *preload, *hostname;
};
void owned_spec_set(struct owned_spec *s, const struct sandbox_spec *like); /* s is zeroed, or set */
void owned_spec_done(struct owned_spec *s);

/* --- zygote_keeper.c: the zygote of one kind of sandboxes --- */

struct zygote_keeper {
    struct zygote_keeper *next;
    struct pools *pools;
    struct owned_spec owned_spec;
    enum pool_zygote_state state;
    bool renewing;                            /* READY: the next one is being started */
    bool permanently_failed;                  /* FAILED: it would fail again */
    struct err why;                           /* FAILED */
    uint64_t started_ns, renew_not_before_ns; /* renew_ns: not before */
    struct backoff backoff;                   /* of starting a zygote again */
    struct ev_timer retry_timer, start_timer;
    unsigned join_failures_in_a_row; /* joins that failed, in a row */
    uint64_t busy_until;             /* it had too many forks to make */
    uint64_t starts, renewals, forks, joins, joins_failed;
};
struct zygote_keeper *zygote_keeper_for_spec(struct pools *p,
                                             const struct sandbox_spec *like); /* NULL: its kind has none */
/* One that joins are possible with: it is started, or the next one, where that is due. */
bool zygote_keeper_ensure_ready(struct zygote_keeper *b, const struct pool_settings *set);
void zygote_keeper_on_join(struct zygote_keeper *b, const struct err *err); /* NULL: it went well */
void zygote_keeper_retry_failed(struct zygote_keeper *b); /* what failed for good is tried once more */
void zygote_keepers_reset(struct pools *p);               /* the jailer is gone */
void zygote_keepers_free(struct pools *p);
void zygote_keepers_drop_unused(struct pools *p); /* those of kinds that no pool has any more end */

/* --- pool_member.c --- */

enum pool_member_state { POOL_MEMBER_CREATING, POOL_MEMBER_JOINING, POOL_MEMBER_READY };
struct pool_member {
    struct pool_member *next, *prev; /* the oldest is the first */
    struct pool *pool;
    struct sandbox_handle *sandbox;
    enum pool_member_state state;
    bool join_impossible;
    bool interpreter_joined_later; /* its interpreter came later than itself */
    bool loss_counted;             /* the end of its interpreter is counted */
    bool is_warmed_up;
    uint64_t created_ns;
};
int pool_member_create(struct pool *pool, struct err *err);
void pool_member_join_interpreter(struct pool_member *m);
struct sandbox_handle *pool_member_release(struct pool_member *m); /* it is the caller's; the member is gone */
void pool_member_destroy(struct pool_member *m);
bool pool_member_lacks_interpreter(const struct pool_member *m); /* ready, and without what it should have */

/* --- recycled.c: what was given back --- */

struct recycled_sandbox;
bool recycled_add(struct pool *pool, struct sandbox_handle *box, const struct pool_loan *loan,
                  const struct pool_return *r);
struct sandbox_handle *recycled_take(struct pool *pool, const char *owner, enum level level,
                                     struct pool_loan *ret);    /* NULL: none */
uint32_t recycled_count(const struct pool *pool, bool waiting); /* those that wait, or all */
uint64_t recycled_evict(struct pool *pool, uint64_t now);       /* the old ones; when the next is due, or 0 */
void recycled_drop_owner(struct pool *pool, const char *owner);
void recycled_clear(struct pool *pool);

/* --- pools.c, pool_reconcile.c --- */

struct pool {
    struct pool *next;
    struct pools *pools;
    char name[POOL_NAME_MAX]; /* "": the automatic one */
    uint64_t generation;
    uint64_t serial; /* the same, but never again of another pool */
    struct pool_settings settings;
    struct owned_spec owned_spec;
    struct zygote_keeper *zygote_keeper; /* NULL: it has none */
    struct pool_member *first_member, *last_member;
    uint32_t ready, starting;
    struct recycled_sandbox *recycled; /* the newest is the first */
    struct forecast forecast;
    uint32_t target;
    uint64_t refill_ns;
    struct backoff create_backoff;
    uint64_t create_not_before; /* no member is created before this time: the last creation failed */
    struct pool_info counters;  /* only its counters */
};

struct pools {
    struct ev *ev;
    struct engine *engine; /* NULL: none */
    struct pool auto_pool; /* the automatic one: of what was asked for last, if twice; the others come behind it */
    struct owned_spec last_requested;
    bool requested_twice;
    struct zygote_keeper *zygote_keepers;
    uint64_t zygote_start_timeout_ns; /* within which one has to be ready */
    uint64_t last_serial;
    uint32_t starting_members;
    uint32_t queue_length;        /* claims to come: who makes them stands in line */
    uint32_t claims_in_flight;    /* that are not ready yet, */
    uint64_t claims_expire_at;    /* unless nobody will say so any more */
    uint64_t idle_from;           /* nobody has asked for so long that more may be made at a time */
    uint64_t warm_up_done_at;     /* those that rehearse now are ready then */
    uint64_t refill_paused_until; /* what was claimed last is only now put to use */
    struct ev_defer reconcile_defer;
    struct ev_timer reconcile_timer;
};

void pool_reconcile_soon(struct pools *p); /* at the end of this turn */
void pool_reconcile_stop(struct pools *p);
void pool_reconcile_member_created(struct pool *pool, uint64_t ns); /* a member is ready after so long */
void pool_reconcile_member_failed(struct pool *pool);
void pool_clear(struct pool *pool);
