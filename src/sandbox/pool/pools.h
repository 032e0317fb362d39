/* pools.h - sandboxes that are prepared before they are requested, and interpreters that wait in
 * them.
 *
 * A pool holds members of one spec: prepared sandboxes without an owner, each with a fork of the
 * spec's zygote where there is one. Taking a member costs as much as a claim. A taken member
 * belongs to its taker and is used once, unless its pool recycles: then it can be returned, is
 * reset, verified from outside, and waits for the same owner; no other owner ever gets it.
 *
 * Creating members never delays a request: at most POOLS_STARTING_MAX are created at a time
 * (more for a pool that lacks many, when there was no request for a while), none in the loop
 * iteration of a claim, and while claims are in flight only for a pool that runs low. A pool
 * with nothing to do sets no timer.
 *
 * The first execution of a forked interpreter is slow, because it copies every page that it
 * writes to. So the members that are taken next have executed a dummy cell in advance; the
 * members after them share their pages with the zygote and cost a fraction of the memory. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "sandbox/engine.h"
#include "core/ev/ev.h"
#include "sandbox/pool/recycle.h"

#define POOLS_STARTING_MAX 2u
#define POOLS_STARTING_MAX_IDLE 8u
#define POOL_WARMED_UP_MAX 192u /* members of a pool, the next to be taken, that have executed a dummy cell */
#define POOLS_MAX 64u
#define POOL_NAME_MAX 64
#define POOL_SIZE_MAX 16384u

struct pools;

struct pool_settings {
    uint64_t version; /* version of the template; members of another version are evicted */
    uint32_t min, max;
    uint64_t ttl_ms;     /* an unused member beyond min is evicted after this time; 0: never */
    uint64_t max_age_ms; /* a member is replaced before it is older; 0: never */
    bool autoscale;      /* the forecast sets the size, from min to max; otherwise the size is min */
    uint32_t target_hit_permille;
    uint64_t scale_down_ms;
    /* A replacement is started after this age or number of forks; 0: never. */
    uint64_t zygote_max_age_ms, zygote_max_members;
    bool recycle; /* used sandboxes may return, up to max together with members that are ready or being created */
};

struct pools *pools_new(struct ev *ev);
void pools_free(struct pools *p);
DEFINE_AUTO(pools, pools_free);

/* Sets the engine that creates members from now on. NULL: the engine was lost or is being freed,
 * and all members with it. */
void pools_set_engine(struct pools *p, struct engine *e);

/* `like` and name are copied. A pool of that name keeps its counters; if the spec or the version
 * differs, it gets a new generation and its members are evicted. Environment variables and other
 * parts of `like` that come with a claim are not compared. */
int pools_put(struct pools *p, const char *name, const struct sandbox_spec *like, const struct pool_settings *set,
              struct err *err);
bool pools_remove(struct pools *p, const char *name);

/* Results of a request. PARTIAL: a member that was still being created, or that lacked its
 * interpreter. */
enum pool_result { POOL_MISS, POOL_PARTIAL, POOL_HIT, POOL_RESULT_COUNT };
extern const char *const pool_result_names[];

/* Takes a member that fits the spec (sandbox_spec_fits_claim), for sandbox_handle_claim; the
 * caller frees it. Chooses the best: with an interpreter, without one, or still being created.
 * ret may be NULL. Returns NULL when the caller must create a sandbox. After two consecutive
 * requests for a spec without a pool, the auto pool keeps one sandbox of that spec ready. */
struct sandbox_handle *pools_take(struct pools *p, const struct sandbox_spec *want, enum pool_result *ret);

/* Like pools_take, for an owner that may return the sandbox: the owner gets a sandbox that it
 * used before, if one waits. */
struct pool_loan {
    char pool[POOL_NAME_MAX]; /* "": it cannot be returned */
    uint64_t pool_serial, created_ns;
    uint32_t uses; /* before this one; more than 0: the sandbox is recycled */
    enum pool_result result;
};
struct sandbox_handle *pools_lend(struct pools *p, const struct sandbox_spec *want, const char *owner,
                                  struct pool_loan *ret);
/* False if a return would be refused in any case. */
bool pools_accepts_return(const struct pools *p, const struct pool_loan *loan);
struct pool_return {
    const char *owner;
    const struct sandbox_spec *claimed_spec; /* the spec of its claim */
    bool ended_by_itself;                    /* the program ended without being stopped */
    bool space_ran_out;                      /* disk space ran out in the sandbox */
    struct sandbox_handle_usage usage;
};
/* Destroys the recycled sandboxes of this owner. */
void pools_drop_owner(struct pools *p, const char *owner);
/* True: the sandbox now belongs to the pool. False: the caller destroys it. Its executions get
 * no more callbacks. */
bool pools_return(struct pools *p, struct sandbox_handle *sandbox, const struct pool_loan *loan,
                  const struct pool_return *r);
/* Changes the number of requests that wait to take a sandbox: no replacement is created
 * meanwhile for requests that find a ready member. */
void pools_adjust_queue_length(struct pools *p, int by);
/* The sandbox that was taken, or created instead, is ready after ns; 0: it will not be. Until
 * then members that are not urgent are not created. */
void pools_claim_finished(struct pools *p, const struct sandbox_spec *want, uint64_t ns);

enum pool_zygote_state {
    POOL_ZYGOTE_NONE,
    POOL_ZYGOTE_STARTING,
    POOL_ZYGOTE_READY,
    POOL_ZYGOTE_FAILED,
    POOL_ZYGOTE_UNSUPPORTED, /* the driver has no zygotes: interpreters are started one by one */
};
extern const char *const pool_zygote_names[]; /* NULL-terminated */

struct pool_info {
    char name[POOL_NAME_MAX];
    uint64_t generation; /* how often the pool was put with another spec */
    struct pool_settings settings;
    uint32_t size, starting, target; /* members that are ready; being created; wanted */
    uint32_t without_interpreter;    /* ready members that lack their interpreter */
    /* requests, which are hits + misses + cold; with a ready member; without a member */
    uint64_t claims, hits, misses;
    /* Requests that found a member without its interpreter, or one that was being created. */
    uint64_t cold;
    /* unused members evicted: after ttl_ms or for a lower target; for their age */
    uint64_t expired, replaced;
    uint64_t failed, lost;                    /* members that could not be created; that died while they waited */
    uint32_t recycled;                        /* recycled sandboxes that wait for their owners */
    uint64_t recycled_hits;                   /* hits with a recycled sandbox */
    uint64_t recycle_verdicts[RECYCLE_COUNT]; /* returned sandboxes, by verdict */
    uint64_t claims_ready, claim_ns;          /* claims that became ready; total time those claims took */
    uint64_t refill_ns;                       /* average time to create a member */
    uint64_t arrivals_milli;                  /* claims per 1000 seconds */
    enum pool_zygote_state zygote;            /* NONE also when the spec has no zygote */
    char zygote_error[sizeof(((struct err *)0)->msg)]; /* FAILED: the error, with the preload that caused it */
    uint64_t zygotes_started, zygotes_renewed;         /* zygotes_renewed: those that replaced an older one */
    uint64_t zygote_forks;                             /* forks of the current zygote */
    uint64_t joins, joins_failed;
};
/* Ordered by name; returns the number written. */
size_t pools_list(const struct pools *p, struct pool_info *ret, size_t max);
/* name "": the auto pool. */
bool pools_get(const struct pools *p, const char *name, struct pool_info *ret);
