/* inside.h - what pools.c, upkeep.c, member.c, used.c, breeder.c and shape.c know of one another. Nothing outside this
 * room includes it. */
#pragma once

#include "pool/forecast.h"
#include "pool/pools.h"

/* --- shape.c: a spec that outlives the one it was copied from --- */

struct shape {
    struct box_spec spec; /* points into the rest */
    struct zygote_spec zygote;
    char *language, *preload, *hostname;
};
void shape_set(struct shape *s, const struct box_spec *like); /* s is zeroed, or set */
void shape_done(struct shape *s);

/* --- breeder.c: the zygote of one kind of sandboxes --- */

struct breeder {
    struct breeder *next;
    struct pools *pools;
    struct shape shape;
    enum pool_zygote state;
    bool renewing;              /* READY: the next one is being started */
    bool hopeless;              /* FAILED: it would fail again */
    struct err why;             /* FAILED */
    uint64_t born_ns, renew_ns; /* renew_ns: not before */
    uint64_t backoff_ns;
    struct ev_timer retry, late;
    unsigned bad;        /* joins that failed, in a row */
    uint64_t busy_until; /* it had too many forks to make */
    uint64_t started, renewed, members, joins, joins_failed;
};
struct breeder *breeder_of(struct pools *p, const struct box_spec *like); /* NULL: its kind has none */
/* One that joins are possible with: it is started, or the next one, where that is due. */
bool breeder_want(struct breeder *b, const struct pool_settings *set);
void breeder_joined(struct breeder *b, const struct err *err); /* NULL: it went well */
void breeder_hope(struct breeder *b);                          /* what failed for good is tried once more */
void breeders_reset(struct pools *p);                          /* the jailer is gone */
void breeders_free(struct pools *p);
void breeders_sweep(struct pools *p); /* those of kinds that no pool has any more end */

/* --- member.c --- */

enum member_state { MEMBER_MAKING, MEMBER_JOINING, MEMBER_READY };
struct member {
    struct member *next, *prev; /* the oldest is the first */
    struct pool *pool;
    struct box *box;
    enum member_state state;
    bool unjoinable;
    bool upgraded; /* its interpreter came later than itself */
    bool mourned;  /* the end of its interpreter is counted */
    bool rehearsed;
    uint64_t began_ns;
};
int member_make(struct pool *pool, struct err *err);
void member_join(struct member *m);
struct box *member_give(struct member *m); /* it is the caller's; the member is gone */
void member_drop(struct member *m);
bool member_bare(const struct member *m); /* ready, and without what it should have */

/* --- used.c: what was given back --- */

struct used;
bool used_add(struct pool *pool, struct box *box, const struct pool_loan *loan, const struct pool_return *r);
struct box *used_give(struct pool *pool, const char *owner, enum level level, struct pool_loan *ret); /* NULL: none */
uint32_t used_count(const struct pool *pool, bool waiting); /* those that wait, or all */
uint64_t used_let_go(struct pool *pool, uint64_t now);      /* the old ones; when the next is due, or 0 */
void used_forget(struct pool *pool, const char *owner);
void used_empty(struct pool *pool);

/* --- pools.c, upkeep.c --- */

struct pool {
    struct pool *next;
    struct pools *pools;
    char name[POOL_NAME_MAX]; /* "": the automatic one */
    uint64_t generation;
    uint64_t series; /* the same, but never again of another pool */
    struct pool_settings set;
    struct shape shape;
    struct breeder *breeder; /* NULL: it has none */
    struct member *first, *last;
    uint32_t ready, starting;
    struct used *used; /* the newest is the first */
    struct forecast forecast;
    uint32_t target;
    uint64_t refill_ns;
    uint64_t failing_ns, not_before; /* nothing is made before that: the last one could not be */
    struct pool_info count;          /* only its counters */
};

struct pools {
    struct ev *ev;
    struct engine *engine; /* NULL: none */
    struct pool ahead;     /* the automatic one: of what was asked for last, if twice; the others come behind it */
    struct shape asked;
    bool asked_again;
    struct breeder *breeders;
    uint64_t zygote_ns; /* within which one has to be ready */
    uint64_t series;
    uint32_t under_way;
    uint32_t expected;     /* claims to come: who makes them stands in line */
    uint32_t claims;       /* that are not ready yet, */
    uint64_t claims_until; /* unless nobody will say so any more */
    uint64_t calm_from;    /* nobody has asked for so long that more may be made at a time */
    uint64_t rehearse_at;  /* those that rehearse now are ready then */
    uint64_t quiet_until;  /* what was claimed last is only now put to use */
    struct ev_defer work;
    struct ev_timer timer;
};

void upkeep_soon(struct pools *p); /* at the end of this turn */
void upkeep_stop(struct pools *p);
void upkeep_made(struct pool *pool, uint64_t ns); /* a member is ready after so long */
void upkeep_failed(struct pool *pool);
void pool_empty(struct pool *pool);
