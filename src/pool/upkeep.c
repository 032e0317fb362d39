/* Keeping pools at what they should hold: who goes, who is made, who gets an interpreter that came later, and when the
 * next look is due. All of it happens in one place, at the end of a turn in which something changed, or when the one
 * timer says so; that timer is set only if something will be due without anybody's doing.
 *
 * While claims are under way, and for a moment after, nothing is made, unless a pool has less than half of what it
 * wants, and not one for each who stands in line: then those who come next would wait longer than those who are here. A
 * claim whose end nobody tells holds for a moment only. */
#include "pool/inside.h"

#include "base/log.h"

#define FAILING_MIN (100 * NS_PER_MS)
#define FAILING_MAX (30 * NS_PER_S)
#define SCALE_DOWN_MIN (1 * NS_PER_S)
#define REHEARSALS 2u /* at a time, and how long they take */
#define REHEARSAL_NS (5 * NS_PER_MS)

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a && (!b || a < b) ? a : b;
}

/* --- how many --- */

static struct forecast_settings forecast_set(const struct pool *pool)
{
    const struct pool_settings *s = &pool->set;
    uint64_t down = s->scale_down_ms * NS_PER_MS;

    return (struct forecast_settings){ .min = s->min,
                                       .max = s->max,
                                       .target_hit_permille = s->target_hit_permille,
                                       .scale_down_ns = down > SCALE_DOWN_MIN ? down : SCALE_DOWN_MIN };
}

static uint64_t retarget(struct pool *pool, uint64_t now)
{
    struct forecast_settings set = forecast_set(pool);

    if (pool == &pool->pools->ahead || !pool->set.autoscale) {
        pool->target = pool->set.min;
        return 0;
    }
    pool->target = forecast_target(&pool->forecast, now, pool->refill_ns ? pool->refill_ns : 5 * NS_PER_MS, &set);
    return forecast_next_ns(&pool->forecast, &set);
}

void upkeep_made(struct pool *pool, uint64_t ns)
{
    pool->refill_ns = pool->refill_ns ? (pool->refill_ns * 7 + ns) / 8 : ns;
    pool->failing_ns = pool->not_before = 0;
}

void upkeep_failed(struct pool *pool)
{
    pool->count.failed++;
    pool->failing_ns = pool->failing_ns ? min_u64(pool->failing_ns * 2, FAILING_MAX) : FAILING_MIN;
    pool->not_before = ev_now(pool->pools->ev) + pool->failing_ns;
}

/* --- who goes --- */

/* Its successor is made from here on, before it has to go. */
static uint64_t ages_at(const struct pool *pool, const struct member *m)
{
    return m->began_ns + pool->set.max_age_ms * NS_PER_MS / 8 * 7;
}

static uint32_t aging(const struct pool *pool, uint64_t now)
{
    uint32_t n = 0;

    for (const struct member *m = pool->first; m && pool->set.max_age_ms && now >= ages_at(pool, m); m = m->next)
        n += m->state == MEMBER_READY;
    return n;
}

static bool too_old(const struct pool *pool, const struct member *m, uint32_t old, uint64_t now)
{
    if (!pool->set.max_age_ms || now < ages_at(pool, m))
        return false;
    return pool->ready - old >= pool->target || now >= m->began_ns + pool->set.max_age_ms * NS_PER_MS;
}

static bool in_vain(const struct pool *pool, const struct member *m, uint64_t now)
{
    if (pool->ready + pool->starting > pool->target && pool->ready > pool->target)
        return true;
    return pool->set.ttl_ms && pool->ready > pool->set.min && now >= m->began_ns + pool->set.ttl_ms * NS_PER_MS;
}

static void let_go(struct pool *pool, uint64_t now)
{
    uint32_t old = aging(pool, now);

    for (struct member *m = pool->first, *next; m; m = next) {
        next = m->next;
        if (m->state != MEMBER_READY)
            continue;
        if (too_old(pool, m, old, now)) {
            pool->count.replaced++;
            old--;
        } else if (in_vain(pool, m, now)) {
            pool->count.expired++;
        } else {
            return; /* those behind it are younger */
        }
        member_drop(m);
    }
}

static uint64_t goes_next(const struct pool *pool, uint64_t now)
{
    const struct member *m = pool->first;
    uint64_t at = 0;

    if (!m)
        return 0;
    if (pool->set.ttl_ms && pool->ready > pool->set.min)
        at = m->began_ns + pool->set.ttl_ms * NS_PER_MS;
    if (pool->set.max_age_ms) {
        at = earlier(at, m->began_ns + pool->set.max_age_ms * NS_PER_MS);
        for (; m; m = m->next)
            if (ages_at(pool, m) > now) {
                at = earlier(at, ages_at(pool, m));
                break;
            }
    }
    return at;
}

/* --- who is made --- */

static uint32_t has(const struct pool *pool, uint64_t now)
{
    return pool->ready + pool->starting - aging(pool, now);
}

static uint64_t hold_end(const struct pools *p)
{
    return p->claims && p->claims_until > p->quiet_until ? p->claims_until : p->quiet_until;
}

static bool held(const struct pool *pool, uint64_t now)
{
    const struct pools *p = pool->pools;

    if (pool == &p->ahead)
        return p->claims && now < p->claims_until;
    bool enough = has(pool, now) * 2 > pool->target || (p->expected && pool->ready >= p->expected);

    return now < hold_end(p) && enough;
}

/* Who has the smallest part of what it wants. */
static struct pool *neediest(struct pools *p, uint64_t now, uint64_t *ret_next)
{
    struct pool *best = NULL, *pool = &p->ahead;
    uint64_t best_part = UINT64_MAX;

    for (; pool; pool = pool->next) {
        uint32_t n = has(pool, now);

        if (n >= pool->target)
            continue;
        if (now < pool->not_before) {
            *ret_next = earlier(*ret_next, pool->not_before);
        } else if (held(pool, now)) {
            *ret_next = earlier(*ret_next, hold_end(p));
        } else if ((uint64_t)n * 1000 / pool->target < best_part) {
            best = pool;
            best_part = (uint64_t)n * 1000 / pool->target;
        }
    }
    return best;
}

/* Each step of making one waits for another process, so more at a time are made sooner; and whoever comes meanwhile
 * waits for all of them. */
static uint32_t at_a_time(const struct pool *pool, uint64_t now)
{
    uint64_t lacks = pool->target - has(pool, now);

    if (now < pool->pools->calm_from || lacks / 16 < POOLS_UNDER_WAY)
        return POOLS_UNDER_WAY;
    return (uint32_t)min_u64(lacks / 16, POOLS_UNDER_WAY_CALM);
}

static void refill(struct pools *p, uint64_t now, uint64_t *ret_next)
{
    struct err err = { 0 };

    for (;;) {
        struct pool *pool = neediest(p, now, ret_next);

        if (!pool || p->under_way >= at_a_time(pool, now))
            return;
        if (pool->breeder)
            (void)breeder_want(pool->breeder, &pool->set); /* it starts while the walls go up */
        if (member_make(pool, &err) < 0) {
            if (pool->failing_ns == 0)
                log_warn("pool '%s': a member cannot be made: %s", pool->name, err.msg);
            upkeep_failed(pool);
        }
    }
}

/* Those that were ready before the zygote was. */
static void upgrade(struct pool *pool, uint64_t now, uint64_t *ret_next)
{
    struct breeder *b = pool->breeder;

    for (struct member *m = pool->first, *next; b && m && pool->pools->under_way < POOLS_UNDER_WAY; m = next) {
        next = m->next;
        if (!member_bare(m) || m->unjoinable)
            continue;
        if (!breeder_want(b, &pool->set)) {
            if (now < b->busy_until)
                *ret_next = earlier(*ret_next, b->busy_until);
            return;
        }
        member_join(m);
    }
}

/* --- who rehearses --- */

/* For whoever is taken at once it would be work for nothing, and others wait for the processor meanwhile. */
static bool too_busy(const struct pool *pool)
{
    return pool->pools->expected > 0 || pool->ready * 4 < pool->target;
}

static void rehearse(struct pool *pool, uint64_t now, uint64_t *ret_next)
{
    struct pools *p = pool->pools;
    uint32_t seen = 0, begun = 0;

    for (struct member *m = pool->first; m && pool->breeder && seen < POOL_REHEARSED; m = m->next) {
        if (m->state != MEMBER_READY || !box_has_member(m->box))
            continue;
        seen++;
        if (m->rehearsed)
            continue;
        if (too_busy(pool)) /* whoever changes that has us look again */
            return;
        if (now < p->rehearse_at || begun == REHEARSALS) {
            p->rehearse_at = begun ? now + REHEARSAL_NS : p->rehearse_at;
            *ret_next = earlier(*ret_next, p->rehearse_at);
            return;
        }
        box_rehearse(m->box);
        m->rehearsed = true;
        begun++;
    }
    p->rehearse_at = begun ? now + REHEARSAL_NS : p->rehearse_at;
}

/* --- the look --- */

static void on_timer(void *arg)
{
    upkeep_soon(arg);
}

static void look(void *arg)
{
    struct pools *p = arg;
    struct pool *pool = &p->ahead;
    uint64_t now = ev_now(p->ev), next = 0;

    ev_timer_clear(p->ev, &p->timer);
    if (!p->engine)
        return;
    for (; pool; pool = pool->next) {
        next = earlier(next, retarget(pool, now));
        let_go(pool, now);
        next = earlier(next, used_let_go(pool, now));
        upgrade(pool, now, &next);
        rehearse(pool, now, &next);
    }
    refill(p, now, &next);
    for (pool = &p->ahead; pool; pool = pool->next)
        next = earlier(next, goes_next(pool, now));
    if (next)
        ev_timer_set(p->ev, &p->timer, next > now ? next : now + NS_PER_MS, on_timer, p);
}

void upkeep_soon(struct pools *p)
{
    ev_defer(p->ev, &p->work, look, p);
}

void upkeep_stop(struct pools *p)
{
    ev_defer_clear(p->ev, &p->work);
    ev_timer_clear(p->ev, &p->timer);
}
