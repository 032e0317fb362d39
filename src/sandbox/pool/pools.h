/* pools.h - sandboxes that are made before they are asked for, and interpreters that wait in them.
 *
 * A pool holds members of one shape: boxes that were prepared and belong to nobody, each with a fork of the shape's
 * zygote in it where there is one. Taking one costs what a claim costs. What was taken comes back to nobody: whoever
 * took it owns it, and it is used once, unless its pool recycles: then it can be given back, is reset, looked at from
 * outside, and waits for the same owner, who is the only one to get it again.
 *
 * Making a member never delays who asks for one: at most POOLS_STARTING_MAX are made at a time (more for a pool that
 * lacks many, when nobody has asked for a while), none in the turn of a claim, and while claims are under way only for
 * a pool that runs low. A pool with nothing to do sets no timer.
 *
 * The first answer of a fork is slow, because it copies every page that it writes to. So those that are taken next have
 * run a cell for nobody; those behind them share their pages with the zygote, and cost a fraction of the memory. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "sandbox/engine.h"
#include "core/ev/ev.h"
#include "sandbox/pool/recycle.h"

#define POOLS_STARTING_MAX 2u
#define POOLS_STARTING_MAX_IDLE 8u
#define POOL_WARMED_UP_MAX 192u /* so many of a pool, the first to be taken, have run a cell for nobody */
#define POOLS_MAX 64u
#define POOL_NAME_MAX 64
#define POOL_SIZE_MAX 16384u

struct pools;

struct pool_settings {
    uint64_t version; /* of what the shape comes from: members of another one are let go */
    uint32_t min, max;
    uint64_t ttl_ms;     /* a member beyond min that nobody took is let go after it; 0: never */
    uint64_t max_age_ms; /* a member is replaced before it is older; 0: never */
    bool autoscale;      /* as many as the arrivals ask for, from min to max; otherwise min */
    uint32_t target_hit_permille;
    uint64_t scale_down_ms;
    uint64_t zygote_max_age_ms, zygote_max_members; /* then the next one is started; 0: never */
    bool recycle; /* what was used may come back, up to max together with what is ready and in the making */
};

struct pools *pools_new(struct ev *ev);
void pools_free(struct pools *p);
DEFINE_AUTO(pools, pools_free);

/* What the members are made with from now on. NULL: it was lost, or goes, and all members with it. */
void pools_set_engine(struct pools *p, struct engine *e);

/* `like` and name are copied. A pool of that name keeps its counters; of another shape, or version, it gets a new
 * generation: its members are let go. Of `like` the variables and what else comes with a claim do not count. */
int pools_put(struct pools *p, const char *name, const struct sandbox_spec *like, const struct pool_settings *set,
              struct err *err);
bool pools_remove(struct pools *p, const char *name);

/* What there was for who asked. PARTIAL: a member that was still in the making, or without its interpreter. */
enum pool_result { POOL_MISS, POOL_PARTIAL, POOL_HIT, POOL_RESULT_COUNT };
extern const char *const pool_result_names[];

/* A member of exactly that shape, for sandbox_handle_claim; whoever has it frees it. The best there is: with an
 * interpreter, without one, or still in the making; ret may be NULL. NULL: make one. Who asks twice in a row for a
 * shape that no pool has finds one ahead from then on. */
struct sandbox_handle *pools_take(struct pools *p, const struct sandbox_spec *want, enum pool_result *ret);

/* The same for an owner who may give it back: he is given what he has used before, if that waits. */
struct pool_loan {
    char pool[POOL_NAME_MAX]; /* "": it cannot be given back */
    uint64_t pool_serial, created_ns;
    uint32_t uses; /* before this one; more than 0: it is no fresh sandbox */
    enum pool_result result;
};
struct sandbox_handle *pools_lend(struct pools *p, const struct sandbox_spec *want, const char *owner,
                                  struct pool_loan *ret);
/* Whether there is any sense in giving it back. */
bool pools_accepts_return(const struct pools *p, const struct pool_loan *loan);
struct pool_return {
    const char *owner;
    const struct sandbox_spec *claimed_spec; /* what it was claimed for */
    bool ended_by_itself;                    /* the program ended, and nobody ended it */
    bool space_ran_out;                      /* space ran out in it */
    struct sandbox_handle_usage usage;
};
/* What this owner gave back goes. */
void pools_drop_owner(struct pools *p, const char *owner);
/* It is the pool's from now on; or, false, for the caller to destroy. Its executions are told nothing more. */
bool pools_return(struct pools *p, struct sandbox_handle *box, const struct pool_loan *loan,
                  const struct pool_return *r);
/* So many more, or fewer, stand in line to take one: those who find one ready need no other to be made meanwhile. */
void pools_adjust_queue_length(struct pools *p, int by);
/* The one that was taken, or made instead, is ready after so long; 0: it will not be. Until then nothing is made that
 * can wait. */
void pools_claim_finished(struct pools *p, const struct sandbox_spec *want, uint64_t ns);

enum pool_zygote_state { POOL_ZYGOTE_NONE, POOL_ZYGOTE_STARTING, POOL_ZYGOTE_READY, POOL_ZYGOTE_FAILED };
extern const char *const pool_zygote_names[]; /* NULL-terminated */

struct pool_info {
    char name[POOL_NAME_MAX];
    uint64_t generation; /* how often it was put with another shape */
    struct pool_settings settings;
    uint32_t size, starting, target; /* ready; in the making; wanted */
    uint32_t without_interpreter;    /* of those that are ready: without the interpreter that they should have */
    uint64_t claims, hits, misses;   /* asked for; with a ready one; with none */
    uint64_t cold;                   /* with one without its interpreter, or in the making: claims are all three */
    uint64_t expired, replaced;      /* let go unused: after ttl_ms or for a lower target; for their age */
    uint64_t failed, lost;           /* could not be made; died while they waited */
    uint32_t recycled;               /* recycled, and waiting for their owners */
    uint64_t recycled_hits;          /* of the hits, with a recycled one */
    uint64_t recycle_verdicts[RECYCLE_COUNT];          /* of those that were given back: what came of it */
    uint64_t claims_ready, claim_ns;                   /* claims that were ready, and the sum of what that took */
    uint64_t refill_ns;                                /* how long making one takes, on average */
    uint64_t arrivals_milli;                           /* claims in a thousand seconds */
    enum pool_zygote_state zygote;                     /* NONE also when its shape has none */
    char zygote_error[sizeof(((struct err *)0)->msg)]; /* FAILED: what went wrong, and with which preload */
    uint64_t zygotes_started, zygotes_renewed;         /* of them, to take an older one's place */
    uint64_t zygote_forks;                             /* forked by the present one */
    uint64_t joins, joins_failed;
};
/* In the order of their names; how many were written. */
size_t pools_list(const struct pools *p, struct pool_info *ret, size_t max);
/* "": what is kept ahead for those who asked twice. */
bool pools_get(const struct pools *p, const char *name, struct pool_info *ret);
