/* The list of pools, and what is asked of them. The work is in upkeep.c, a member's life in member.c, the zygotes are
 * in breeder.c.
 *
 * Beside those that somebody put there is one without a name, for who asks twice in a row for a shape that no pool
 * has: he will ask again. It holds one, of the last such shape.
 *
 * A shape fits or it does not: there is no "almost", because a member's walls and limits are up already. */
#include "pool/inside.h"

#include "base/mem.h"
#include "base/str.h"

#define CLAIM_NS (20 * NS_PER_MS) /* a claim whose end nobody told is taken to be over */
#define QUIET_NS (10 * NS_PER_MS)
#define CALM_NS (250 * NS_PER_MS)
#define ZYGOTE_NS (60 * NS_PER_S)

const char *const pool_found_names[] = { "miss", "partial", "hit" };

static struct pool *find(const struct pools *p, const char *name)
{
    struct pool *pool = p->ahead.next;

    while (pool && !str_eq(pool->name, name))
        pool = pool->next;
    return pool;
}

void pool_empty(struct pool *pool)
{
    while (pool->first)
        member_drop(pool->first);
    used_empty(pool);
}

static void pool_init(struct pool *pool, struct pools *p)
{
    pool->pools = p;
    forecast_init(&pool->forecast, ev_now(p->ev));
}

/* --- life --- */

struct pools *pools_new(struct ev *ev)
{
    struct pools *p = mem_new(struct pools);

    p->ev = ev;
    p->zygote_ns = ZYGOTE_NS;
    pool_init(&p->ahead, p);
    return p;
}

static void pool_done(struct pool *pool)
{
    pool_empty(pool);
    shape_done(&pool->shape);
}

void pools_free(struct pools *p)
{
    if (!p)
        return;
    while (p->ahead.next) {
        struct pool *pool = p->ahead.next;

        p->ahead.next = pool->next;
        pool_done(pool);
        free(pool);
    }
    pool_done(&p->ahead);
    shape_done(&p->asked);
    breeders_free(p);
    upkeep_stop(p);
    free(p);
}

void pools_engine(struct pools *p, struct engine *e)
{
    if (!e || p->engine != e) {
        struct pool *pool = &p->ahead;

        do
            pool_empty(pool);
        while ((pool = pool->next));
        breeders_reset(p);
        p->claims = 0;
    }
    p->engine = e;
    if (e)
        upkeep_soon(p);
    else
        upkeep_stop(p);
}

/* --- what there is --- */

static int check(const char *name, const struct box_spec *like, const struct pool_settings *set, struct err *err)
{
    if (!name[0] || strlen(name) >= POOL_NAME_MAX)
        return err_set(err, ERR_INVALID, "a pool's name has 1 to %d bytes", POOL_NAME_MAX - 1);
    if (set->min > POOL_SIZE_MAX || set->max > POOL_SIZE_MAX)
        return err_set(err, ERR_INVALID, "a pool holds at most %u", POOL_SIZE_MAX);
    if (set->autoscale && (set->max < set->min || set->max == 0))
        return err_set(err, ERR_INVALID, "max: it has to be at least 1, and not less than min, %u", set->min);
    if (set->autoscale && (set->target_hit_permille < 1 || set->target_hit_permille > 999))
        return err_set(err, ERR_INVALID, "targetHitRate: more than 0 and less than 1");
    if (set->recycle && set->max <= set->min)
        return err_set(
            err, ERR_INVALID,
            "max: a pool that recycles needs it to be more than min, %u: used sandboxes wait between the two",
            set->min);
    if (like->nmounts)
        return err_set(err, ERR_INVALID, "a sandbox with mounts cannot be made before it is asked for");
    return limits_check(&like->limits, err);
}

static int add(struct pools *p, const char *name, struct pool **ret, struct err *err)
{
    struct pool **at = &p->ahead.next;
    size_t n = 0;

    for (const struct pool *i = p->ahead.next; i; i = i->next)
        n++;
    if (n >= POOLS_MAX)
        return err_set(err, ERR_LIMIT, "there are %u pools already, and more cannot be kept", POOLS_MAX);
    while (*at && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    struct pool *pool = mem_new(struct pool);
    pool_init(pool, p);
    (void)str_copy(pool->name, sizeof(pool->name), name);
    pool->next = *at;
    *at = pool;
    *ret = pool;
    return 0;
}

static void set_shape(struct pool *pool, const struct box_spec *like)
{
    pool_empty(pool);
    shape_set(&pool->shape, like);
    pool->breeder = breeder_of(pool->pools, &pool->shape.spec);
    if (pool->breeder)
        breeder_hope(pool->breeder);
    pool->generation++;
    pool->series = ++pool->pools->series;
    pool->failing_ns = pool->not_before = 0;
}

/* Members of this shape stay. What failed is tried anew, as with every shape that is put. */
static void keep_shape(struct pool *pool, const struct box_spec *like)
{
    shape_set(&pool->shape, like); /* limits that are chosen by who claims may be others */
    if (pool->breeder)
        breeder_hope(pool->breeder);
    for (struct member *m = pool->first; m; m = m->next)
        m->unjoinable = false;
    pool->failing_ns = pool->not_before = 0;
}

int pools_put(struct pools *p, const char *name, const struct box_spec *like, const struct pool_settings *set,
              struct err *err)
{
    struct pool *pool = find(p, name);

    if (check(name, like, set, err) < 0 || (!pool && add(p, name, &pool, err) < 0))
        return -1;
    bool same = pool->generation && pool->set.version == set->version && box_like(&pool->shape.spec, like);
    pool->set = *set;
    pool->target = set->min;
    if (!set->recycle)
        used_empty(pool);
    if (same)
        keep_shape(pool, like);
    else
        set_shape(pool, like);
    breeders_sweep(p);
    upkeep_soon(p);
    return 0;
}

bool pools_remove(struct pools *p, const char *name)
{
    struct pool **at = &p->ahead.next, *pool = find(p, name);

    if (!pool)
        return false;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    pool_done(pool);
    free(pool);
    breeders_sweep(p);
    upkeep_soon(p);
    return true;
}

/* --- taking --- */

/* The one for exactly this, or else one whose members can be given the limits that are wanted. */
static struct pool *of_shape(struct pools *p, const struct box_spec *want)
{
    struct pool *fits = NULL;

    for (struct pool *pool = p->ahead.next; pool; pool = pool->next) {
        if (box_like(&pool->shape.spec, want))
            return pool;
        if (!fits && box_fits(&pool->shape.spec, want))
            fits = pool;
    }
    return fits;
}

/* What nobody has a pool for. */
static struct pool *ahead_of(struct pools *p, const struct box_spec *want)
{
    struct pool *pool = &p->ahead;

    if (want->nmounts)
        return NULL;
    p->asked_again = box_like(&p->asked.spec, want);
    shape_set(&p->asked, want);
    if (p->asked_again && (pool->generation == 0 || !box_like(&pool->shape.spec, want))) {
        pool->set = (struct pool_settings){ .min = 1, .max = 1 };
        set_shape(pool, want);
    }
    return pool->generation && box_like(&pool->shape.spec, want) ? pool : NULL;
}

static unsigned worth(const struct member *m)
{
    if (m->state == MEMBER_READY)
        return member_bare(m) ? 2 : 4;
    return m->state == MEMBER_JOINING ? 3 : 1;
}

/* The first of the best: what rehearsed comes before what did not. */

static struct member *best_of(const struct pool *pool)
{
    struct member *best = NULL;

    for (struct member *m = pool->first; m && (!best || worth(best) < 4); m = m->next)
        if (!best || worth(m) > worth(best))
            best = m;
    return best;
}

static struct box *give(struct member *m, struct pool_loan *ret)
{
    ret->series = m->pool->series;
    ret->born_ns = m->began_ns;
    if (m->pool->set.recycle)
        memcpy(ret->pool, m->pool->name, sizeof(ret->pool));
    return member_give(m);
}

struct box *pools_lend(struct pools *p, const struct box_spec *want, const char *owner, struct pool_loan *ret)
{
    struct pool *pool = of_shape(p, want);
    struct member *m = NULL;
    struct box *used = NULL;

    *ret = (struct pool_loan){ 0 };
    p->claims++;
    p->claims_until = ev_now(p->ev) + CLAIM_NS;
    p->calm_from = ev_now(p->ev) + CALM_NS;
    if (!pool)
        pool = ahead_of(p, want);
    if (pool) {
        forecast_arrival(&pool->forecast, ev_now(p->ev));
        pool->count.claims++;
        if (*owner && box_like(&pool->shape.spec, want))
            used = used_give(pool, owner, want->level, ret);
        m = used ? NULL : best_of(pool);
        if (m && !box_like(&pool->shape.spec, want) && (m->state != MEMBER_READY || !box_can_freeze(m->box)))
            m = NULL; /* whether it has a cgroup is not known, or it has none: its limits stay as they are */
        ret->found = used || (m && worth(m) == 4) ? POOL_HIT : m ? POOL_PARTIAL : POOL_MISS;
        pool->count.reused += used != NULL;
        *(ret->found == POOL_HIT ? &pool->count.hits : m ? &pool->count.cold : &pool->count.misses) += 1;
    }
    upkeep_soon(p);
    return m ? give(m, ret) : used;
}

struct box *pools_take(struct pools *p, const struct box_spec *want, enum pool_found *ret)
{
    struct pool_loan loan;
    struct box *box = pools_lend(p, want, "", &loan);

    if (ret)
        *ret = loan.found;
    return box;
}

bool pools_takes_back(const struct pools *p, const struct pool_loan *loan)
{
    const struct pool *pool = loan->pool[0] ? find(p, loan->pool) : NULL;

    return pool && p->engine && pool->set.recycle;
}

bool pools_give_back(struct pools *p, struct box *box, const struct pool_loan *loan, const struct pool_return *r)
{
    return pools_takes_back(p, loan) && used_add(find(p, loan->pool), box, loan, r);
}

void pools_forget_owner(struct pools *p, const char *owner)
{
    for (struct pool *pool = &p->ahead; pool; pool = pool->next)
        used_forget(pool, owner);
}

void pools_expect(struct pools *p, int by)
{
    p->expected += (uint32_t)by;
}

void pools_claimed(struct pools *p, const struct box_spec *want, uint64_t ns)
{
    struct pool *pool = ns ? of_shape(p, want) : NULL;

    if (p->claims)
        p->claims--;
    p->quiet_until = ns ? ev_now(p->ev) + QUIET_NS : 0;
    if (ns && !pool && p->ahead.generation && box_like(&p->ahead.shape.spec, want))
        pool = &p->ahead;
    if (pool) {
        pool->count.claimed++;
        pool->count.claim_ns += ns;
    }
    if (p->claims == 0)
        upkeep_soon(p);
}

/* --- telling --- */

static void tell_zygote(const struct breeder *b, struct pool_info *ret)
{
    ret->zygote = b->state;
    if (b->state == POOL_ZYGOTE_FAILED)
        (void)str_copy(ret->zygote_why, sizeof(ret->zygote_why), b->why.msg);
    ret->zygotes_started = b->started;
    ret->zygotes_renewed = b->renewed;
    ret->zygote_members = b->members;
    ret->joins = b->joins;
    ret->joins_failed = b->joins_failed;
}

static void tell(const struct pool *pool, struct pool_info *ret)
{
    *ret = pool->count;
    memcpy(ret->name, pool->name, sizeof(ret->name));
    ret->generation = pool->generation;
    ret->settings = pool->set;
    ret->size = pool->ready;
    ret->starting = pool->starting;
    ret->used = used_count(pool, true);
    ret->target = pool->target;
    for (const struct member *m = pool->first; m; m = m->next)
        ret->bare += member_bare(m);
    ret->refill_ns = pool->refill_ns;
    ret->arrivals_milli = forecast_rate_milli(&pool->forecast, ev_now(pool->pools->ev));
    if (pool->breeder)
        tell_zygote(pool->breeder, ret);
}

size_t pools_list(const struct pools *p, struct pool_info *ret, size_t max)
{
    size_t n = 0;

    for (const struct pool *pool = p->ahead.next; pool && n < max; pool = pool->next)
        tell(pool, &ret[n++]);
    return n;
}

bool pools_get(const struct pools *p, const char *name, struct pool_info *ret)
{
    const struct pool *pool = name[0] ? find(p, name) : &p->ahead;

    if (!pool)
        return false;
    tell(pool, ret);
    return true;
}
