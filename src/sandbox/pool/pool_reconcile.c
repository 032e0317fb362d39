/* Reconciles pools with their targets: evicts and creates members, brings interpreters into
 * members that lack one, and computes when to run next. All of it happens in one place, at the
 * end of a loop iteration in which something changed, or when the one timer fires; that timer is
 * set only if something becomes due without an outside event.
 *
 * While claims are in flight, and for a moment after, no member is created, except for a pool that
 * has less than half of its target and, if requests are queued, fewer ready members than queued
 * requests: without new members, later requests would wait longer than the current ones. A claim
 * that is never reported as finished counts only for a moment. */
#include "sandbox/pool/pool_internal.h"

#include "core/base/log.h"

#define SCALE_DOWN_MIN (1 * NS_PER_S)
#define POOL_WARM_UPS_AT_A_TIME 2u /* warm-ups at a time */
#define POOL_WARM_UP_NS (5 * NS_PER_MS)

static uint64_t pool_earlier_deadline(uint64_t a, uint64_t b)
{
    return a && (!b || a < b) ? a : b;
}

/* --- target --- */

static struct forecast_settings pool_forecast_settings(const struct pool *pool)
{
    const struct pool_settings *s = &pool->settings;
    uint64_t down = s->scale_down_ms * NS_PER_MS;

    return (struct forecast_settings){ .min = s->min,
                                       .max = s->max,
                                       .target_hit_permille = s->target_hit_permille,
                                       .scale_down_ns = down > SCALE_DOWN_MIN ? down : SCALE_DOWN_MIN };
}

static uint64_t pool_update_target(struct pool *pool, uint64_t now)
{
    struct forecast_settings set = pool_forecast_settings(pool);

    if (pool == &pool->pools->auto_pool || !pool->settings.autoscale) {
        pool->target = pool->settings.min;
        return 0;
    }
    pool->target = forecast_target(&pool->forecast, now, pool->refill_ns ? pool->refill_ns : 5 * NS_PER_MS, &set);
    return forecast_next_ns(&pool->forecast, &set);
}

void pool_reconcile_member_created(struct pool *pool, uint64_t ns)
{
    pool->refill_ns = pool->refill_ns ? (pool->refill_ns * 7 + ns) / 8 : ns;
    backoff_reset(&pool->create_backoff);
    pool->create_not_before = 0;
}

void pool_reconcile_member_failed(struct pool *pool)
{
    pool->counters.failed++;
    pool->create_not_before = ev_now(pool->pools->ev) + backoff_next(&pool->create_backoff);
}

/* --- eviction --- */

/* From here on its replacement is created, before the member must go. */
static uint64_t pool_member_aging_at(const struct pool *pool, const struct pool_member *m)
{
    return m->created_ns + pool->settings.max_age_ms * NS_PER_MS / 8 * 7;
}

static uint32_t pool_count_aging(const struct pool *pool, uint64_t now)
{
    uint32_t n = 0;

    for (const struct pool_member *m = pool->first_member;
         m && pool->settings.max_age_ms && now >= pool_member_aging_at(pool, m); m = m->next)
        n += m->state == POOL_MEMBER_READY;
    return n;
}

static bool pool_member_is_too_old(const struct pool *pool, const struct pool_member *m, uint32_t old, uint64_t now)
{
    if (!pool->settings.max_age_ms || now < pool_member_aging_at(pool, m))
        return false;
    return pool->ready - old >= pool->target || now >= m->created_ns + pool->settings.max_age_ms * NS_PER_MS;
}

static bool pool_member_is_surplus(const struct pool *pool, const struct pool_member *m, uint64_t now)
{
    if (pool->ready + pool->starting > pool->target && pool->ready > pool->target)
        return true;
    return pool->settings.ttl_ms && pool->ready > pool->settings.min &&
           now >= m->created_ns + pool->settings.ttl_ms * NS_PER_MS;
}

static void pool_evict(struct pool *pool, uint64_t now)
{
    uint32_t old = pool_count_aging(pool, now);

    for (struct pool_member *m = pool->first_member, *next; m; m = next) {
        next = m->next;
        if (m->state != POOL_MEMBER_READY)
            continue;
        if (pool_member_is_too_old(pool, m, old, now)) {
            pool->counters.replaced++;
            old--;
        } else if (pool_member_is_surplus(pool, m, now)) {
            pool->counters.expired++;
        } else {
            return; /* the members after it are younger */
        }
        pool_member_destroy(m);
    }
}

static uint64_t pool_next_eviction(const struct pool *pool, uint64_t now)
{
    const struct pool_member *m = pool->first_member;
    uint64_t at = 0;

    if (!m)
        return 0;
    if (pool->settings.ttl_ms && pool->ready > pool->settings.min)
        at = m->created_ns + pool->settings.ttl_ms * NS_PER_MS;
    if (pool->settings.max_age_ms) {
        at = pool_earlier_deadline(at, m->created_ns + pool->settings.max_age_ms * NS_PER_MS);
        for (; m; m = m->next)
            if (pool_member_aging_at(pool, m) > now) {
                at = pool_earlier_deadline(at, pool_member_aging_at(pool, m));
                break;
            }
    }
    return at;
}

/* --- creation --- */

static uint32_t pool_effective_size(const struct pool *pool, uint64_t now)
{
    return pool->ready + pool->starting - pool_count_aging(pool, now);
}

static uint64_t pools_refill_resumes_at(const struct pools *p)
{
    return p->claims_in_flight && p->claims_expire_at > p->refill_paused_until ? p->claims_expire_at
                                                                               : p->refill_paused_until;
}

static bool pool_refill_is_paused(const struct pool *pool, uint64_t now)
{
    const struct pools *p = pool->pools;

    if (pool == &p->auto_pool)
        return p->claims_in_flight && now < p->claims_expire_at;
    bool enough = pool_effective_size(pool, now) * 2 > pool->target ||
                  (p->queue_length && pool->ready >= p->queue_length);

    return now < pools_refill_resumes_at(p) && enough;
}

/* The pool with the smallest share of its target. */
static struct pool *pools_find_neediest(struct pools *p, uint64_t now, uint64_t *ret_next)
{
    struct pool *best = NULL, *pool = &p->auto_pool;
    uint64_t best_part = UINT64_MAX;

    for (; pool; pool = pool->next) {
        uint32_t n = pool_effective_size(pool, now);

        if (n >= pool->target)
            continue;
        if (now < pool->create_not_before) {
            *ret_next = pool_earlier_deadline(*ret_next, pool->create_not_before);
        } else if (pool_refill_is_paused(pool, now)) {
            *ret_next = pool_earlier_deadline(*ret_next, pools_refill_resumes_at(p));
        } else if ((uint64_t)n * 1000 / pool->target < best_part) {
            best = pool;
            best_part = (uint64_t)n * 1000 / pool->target;
        }
    }
    return best;
}

/* Each step of a creation waits for another process, so several at a time are faster; but a
 * request that arrives meanwhile waits for all of them. */
static uint32_t pool_refill_concurrency(const struct pool *pool, uint64_t now)
{
    uint64_t lacks = pool->target - pool_effective_size(pool, now);

    if (now < pool->pools->idle_from || lacks / 16 < POOLS_STARTING_MAX)
        return POOLS_STARTING_MAX;
    return (uint32_t)min_u64(lacks / 16, POOLS_STARTING_MAX_IDLE);
}

static void pools_refill(struct pools *p, uint64_t now, uint64_t *ret_next)
{
    struct err err = { 0 };

    for (;;) {
        struct pool *pool = pools_find_neediest(p, now, ret_next);

        if (!pool || p->starting_members >= pool_refill_concurrency(pool, now))
            return;
        if (pool->zygote_keeper)
            /* The zygote starts while the walls are raised. */
            (void)zygote_keeper_ensure_ready(pool->zygote_keeper, &pool->settings);
        if (pool_member_create(pool, &err) < 0) {
            if (pool->create_backoff.wait_ns == 0)
                log_warn("pool '%s': cannot create a member: %s", pool->name, err.msg);
            pool_reconcile_member_failed(pool);
        }
    }
}

/* For members that became ready before the zygote did. */
static void pool_join_missing_interpreters(struct pool *pool, uint64_t now, uint64_t *ret_next)
{
    struct zygote_keeper *b = pool->zygote_keeper;

    for (struct pool_member *m = pool->first_member, *next;
         b && m && pool->pools->starting_members < POOLS_STARTING_MAX; m = next) {
        next = m->next;
        if (!pool_member_lacks_interpreter(m) || m->join_impossible)
            continue;
        if (!zygote_keeper_ensure_ready(b, &pool->settings)) {
            if (now < b->busy_until)
                *ret_next = pool_earlier_deadline(*ret_next, b->busy_until);
            return;
        }
        pool_member_join_interpreter(m);
    }
}

/* --- warm-up --- */

/* A member that is taken at once would not profit, and requests wait for the CPU meanwhile. */
static bool pool_is_too_busy(const struct pool *pool)
{
    return pool->pools->queue_length > 0 || pool->ready * 4 < pool->target;
}

static void pool_warm_up_members(struct pool *pool, uint64_t now, uint64_t *ret_next)
{
    struct pools *p = pool->pools;
    uint32_t seen = 0, begun = 0;

    for (struct pool_member *m = pool->first_member; m && pool->zygote_keeper && seen < POOL_WARMED_UP_MAX;
         m = m->next) {
        if (m->state != POOL_MEMBER_READY || !sandbox_handle_has_interpreter(m->sandbox))
            continue;
        seen++;
        if (m->is_warmed_up)
            continue;
        if (pool_is_too_busy(pool)) /* an event that changes this runs the reconciliation again */
            return;
        if (now < p->warm_up_done_at || begun == POOL_WARM_UPS_AT_A_TIME) {
            p->warm_up_done_at = begun ? now + POOL_WARM_UP_NS : p->warm_up_done_at;
            *ret_next = pool_earlier_deadline(*ret_next, p->warm_up_done_at);
            return;
        }
        sandbox_handle_warm_up(m->sandbox);
        m->is_warmed_up = true;
        begun++;
    }
    p->warm_up_done_at = begun ? now + POOL_WARM_UP_NS : p->warm_up_done_at;
}

/* --- reconciliation --- */

static void pool_reconcile_on_timer(void *arg)
{
    pool_reconcile_soon(arg);
}

static void pool_reconcile(void *arg)
{
    struct pools *p = arg;
    struct pool *pool = &p->auto_pool;
    uint64_t now = ev_now(p->ev), next = 0;

    ev_timer_clear(p->ev, &p->reconcile_timer);
    if (!p->engine)
        return;
    for (; pool; pool = pool->next) {
        next = pool_earlier_deadline(next, pool_update_target(pool, now));
        pool_evict(pool, now);
        next = pool_earlier_deadline(next, recycled_evict(pool, now));
        pool_join_missing_interpreters(pool, now, &next);
        pool_warm_up_members(pool, now, &next);
    }
    pools_refill(p, now, &next);
    for (pool = &p->auto_pool; pool; pool = pool->next)
        next = pool_earlier_deadline(next, pool_next_eviction(pool, now));
    if (next)
        ev_timer_set(p->ev, &p->reconcile_timer, next > now ? next : now + NS_PER_MS, pool_reconcile_on_timer, p);
}

void pool_reconcile_soon(struct pools *p)
{
    ev_defer(p->ev, &p->reconcile_defer, pool_reconcile, p);
}

void pool_reconcile_stop(struct pools *p)
{
    ev_defer_clear(p->ev, &p->reconcile_defer);
    ev_timer_clear(p->ev, &p->reconcile_timer);
}
