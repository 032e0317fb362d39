/* The list of pools, and the requests to them. pool_reconcile.c does the work, pool_member.c has
 * the lifecycle of a member, zygote_keeper.c the zygotes.
 *
 * In addition to the configured pools there is one without a name, the auto pool: after two
 * consecutive requests for a spec without a pool, it keeps one sandbox of that spec ready,
 * because a third request is likely.
 *
 * A member is used only for a spec that it fits (sandbox_spec_fits_claim), because its walls and
 * most of its limits are in place already. */
#include "sandbox/pool/pool_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

/* A claim that is not reported as finished counts as finished after this. */
#define POOL_CLAIM_TIMEOUT_NS (20 * NS_PER_MS)
#define QUIET_NS (10 * NS_PER_MS)
#define POOL_IDLE_AFTER_NS (250 * NS_PER_MS)
#define ZYGOTE_START_TIMEOUT_NS (60 * NS_PER_S)

const char *const pool_result_names[] = { "miss", "partial", "hit" };

static struct pool *pools_find(const struct pools *p, const char *name)
{
    struct pool *pool = p->auto_pool.next;

    while (pool && !str_eq(pool->name, name))
        pool = pool->next;
    return pool;
}

void pool_clear(struct pool *pool)
{
    while (pool->first_member)
        pool_member_destroy(pool->first_member);
    recycled_clear(pool);
}

static void pool_init(struct pool *pool, struct pools *p)
{
    pool->pools = p;
    pool->create_backoff = (struct backoff){ .min_ns = 100 * NS_PER_MS, .max_ns = 30 * NS_PER_S };
    forecast_init(&pool->forecast, ev_now(p->ev));
}

/* --- lifecycle --- */

struct pools *pools_new(struct ev *ev)
{
    struct pools *p = mem_new(struct pools);

    p->ev = ev;
    p->zygote_start_timeout_ns = ZYGOTE_START_TIMEOUT_NS;
    pool_init(&p->auto_pool, p);
    return p;
}

static void pool_done(struct pool *pool)
{
    pool_clear(pool);
    owned_spec_done(&pool->owned_spec);
}

void pools_free(struct pools *p)
{
    if (!p)
        return;
    while (p->auto_pool.next) {
        struct pool *pool = p->auto_pool.next;

        p->auto_pool.next = pool->next;
        pool_done(pool);
        free(pool);
    }
    pool_done(&p->auto_pool);
    owned_spec_done(&p->last_requested);
    zygote_keepers_free(p);
    pool_reconcile_stop(p);
    free(p);
}

void pools_set_engine(struct pools *p, struct engine *e)
{
    if (!e || p->engine != e) {
        struct pool *pool = &p->auto_pool;

        do
            pool_clear(pool);
        while ((pool = pool->next));
        zygote_keepers_reset(p);
        p->claims_in_flight = 0;
    }
    p->engine = e;
    if (e)
        pool_reconcile_soon(p);
    else
        pool_reconcile_stop(p);
}

/* --- configuration --- */

static int pools_check_settings(const char *name, const struct sandbox_spec *like, const struct pool_settings *set,
                                struct err *err)
{
    if (!name[0] || strlen(name) >= POOL_NAME_MAX)
        return err_set(err, ERR_INVALID, "name: must have 1 to %d bytes", POOL_NAME_MAX - 1);
    if (set->min > POOL_SIZE_MAX || set->max > POOL_SIZE_MAX)
        return err_set(err, ERR_INVALID, "min, max: a pool holds at most %u sandboxes", POOL_SIZE_MAX);
    if (set->autoscale && (set->max < set->min || set->max == 0))
        return err_set(err, ERR_INVALID, "max: must be at least 1, and at least min, which is %u", set->min);
    if (set->autoscale && (set->target_hit_permille < 1 || set->target_hit_permille > 999))
        return err_set(err, ERR_INVALID, "targetHitRate: must be more than 0 and less than 1");
    if (set->recycle && set->max <= set->min)
        return err_set(
            err, ERR_INVALID,
            "max: must be more than min, which is %u, in a pool that recycles: the difference holds used sandboxes",
            set->min);
    if (like->nmounts)
        return err_set(err, ERR_INVALID, "a pool cannot hold sandboxes with mounts; remove the mounts");
    return limits_check(&like->limits, err);
}

static int pools_add(struct pools *p, const char *name, struct pool **ret, struct err *err)
{
    struct pool **at = &p->auto_pool.next;
    size_t n = 0;

    for (const struct pool *i = p->auto_pool.next; i; i = i->next)
        n++;
    if (n >= POOLS_MAX)
        return err_set(err, ERR_LIMIT, "there are %u pools already, the maximum; delete one first", POOLS_MAX);
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

static void pool_set_spec(struct pool *pool, const struct sandbox_spec *like)
{
    pool_clear(pool);
    owned_spec_set(&pool->owned_spec, like);
    pool->zygote_keeper = zygote_keeper_for_spec(pool->pools, &pool->owned_spec.spec);
    if (pool->zygote_keeper)
        zygote_keeper_retry_failed(pool->zygote_keeper);
    pool->generation++;
    pool->serial = ++pool->pools->last_serial;
    backoff_reset(&pool->create_backoff);
    pool->create_not_before = 0;
}

/* Members of the same spec stay. Failed operations are retried, as after every put. */
static void pool_keep_spec(struct pool *pool, const struct sandbox_spec *like)
{
    owned_spec_set(&pool->owned_spec, like); /* limits that the claim sets may differ */
    if (pool->zygote_keeper)
        zygote_keeper_retry_failed(pool->zygote_keeper);
    for (struct pool_member *m = pool->first_member; m; m = m->next)
        m->join_impossible = false;
    backoff_reset(&pool->create_backoff);
    pool->create_not_before = 0;
}

int pools_put(struct pools *p, const char *name, const struct sandbox_spec *like, const struct pool_settings *set,
              struct err *err)
{
    struct pool *pool = pools_find(p, name);

    if (pools_check_settings(name, like, set, err) < 0 || (!pool && pools_add(p, name, &pool, err) < 0))
        return -1;
    bool same = pool->generation && pool->settings.version == set->version &&
                sandbox_spec_equal(&pool->owned_spec.spec, like);
    pool->settings = *set;
    pool->target = set->min;
    if (!set->recycle)
        recycled_clear(pool);
    if (same)
        pool_keep_spec(pool, like);
    else
        pool_set_spec(pool, like);
    zygote_keepers_drop_unused(p);
    pool_reconcile_soon(p);
    return 0;
}

bool pools_remove(struct pools *p, const char *name)
{
    struct pool *pool = pools_find(p, name);

    if (!pool)
        return false;
    list_remove(&p->auto_pool.next, pool);
    pool_done(pool);
    free(pool);
    zygote_keepers_drop_unused(p);
    pool_reconcile_soon(p);
    return true;
}

/* --- claims --- */

/* The pool for exactly this spec, or else one whose members can be given these limits. */
static struct pool *pools_find_for_spec(struct pools *p, const struct sandbox_spec *want)
{
    struct pool *fits = NULL;

    for (struct pool *pool = p->auto_pool.next; pool; pool = pool->next) {
        if (sandbox_spec_equal(&pool->owned_spec.spec, want))
            return pool;
        if (!fits && sandbox_spec_fits_claim(&pool->owned_spec.spec, want))
            fits = pool;
    }
    return fits;
}

/* For a spec without a pool. */
static struct pool *pools_auto_pool_for(struct pools *p, const struct sandbox_spec *want)
{
    struct pool *pool = &p->auto_pool;

    if (want->nmounts)
        return NULL;
    p->requested_twice = sandbox_spec_equal(&p->last_requested.spec, want);
    owned_spec_set(&p->last_requested, want);
    if (p->requested_twice && (pool->generation == 0 || !sandbox_spec_equal(&pool->owned_spec.spec, want))) {
        pool->settings = (struct pool_settings){ .min = 1, .max = 1 };
        pool_set_spec(pool, want);
    }
    return pool->generation && sandbox_spec_equal(&pool->owned_spec.spec, want) ? pool : NULL;
}

static unsigned pool_member_readiness_rank(const struct pool_member *m)
{
    if (m->state == POOL_MEMBER_READY)
        return pool_member_lacks_interpreter(m) ? 2 : 4;
    return m->state == POOL_MEMBER_JOINING ? 3 : 1;
}

/* The first of the best: warmed-up members come before others. */

static struct pool_member *pool_find_best_member(const struct pool *pool)
{
    struct pool_member *best = NULL;

    for (struct pool_member *m = pool->first_member; m && (!best || pool_member_readiness_rank(best) < 4); m = m->next)
        if (!best || pool_member_readiness_rank(m) > pool_member_readiness_rank(best))
            best = m;
    return best;
}

static struct sandbox_handle *pool_lend_member(struct pool_member *m, struct pool_loan *ret)
{
    ret->pool_serial = m->pool->serial;
    ret->created_ns = m->created_ns;
    if (m->pool->settings.recycle)
        memcpy(ret->pool, m->pool->name, sizeof(ret->pool));
    return pool_member_release(m);
}

struct sandbox_handle *pools_lend(struct pools *p, const struct sandbox_spec *want, const char *owner,
                                  struct pool_loan *ret)
{
    struct pool *pool = pools_find_for_spec(p, want);
    struct pool_member *m = NULL;
    struct sandbox_handle *used = NULL;

    *ret = (struct pool_loan){ 0 };
    p->claims_in_flight++;
    p->claims_expire_at = ev_now(p->ev) + POOL_CLAIM_TIMEOUT_NS;
    p->idle_from = ev_now(p->ev) + POOL_IDLE_AFTER_NS;
    if (!pool)
        pool = pools_auto_pool_for(p, want);
    if (pool) {
        forecast_arrival(&pool->forecast, ev_now(p->ev));
        pool->counters.claims++;
        if (*owner && sandbox_spec_equal(&pool->owned_spec.spec, want))
            used = recycled_take(pool, owner, want->level, ret);
        m = used ? NULL : pool_find_best_member(pool);
        if (m && !sandbox_spec_equal(&pool->owned_spec.spec, want) &&
            (m->state != POOL_MEMBER_READY || !sandbox_handle_can_freeze(m->sandbox)))
            m = NULL; /* it has no cgroup, or that is not known yet: its limits cannot be changed */
        ret->result = used || (m && pool_member_readiness_rank(m) == 4) ? POOL_HIT : m ? POOL_PARTIAL : POOL_MISS;
        pool->counters.recycled_hits += used != NULL;
        *(ret->result == POOL_HIT ? &pool->counters.hits : m ? &pool->counters.cold : &pool->counters.misses) += 1;
    }
    pool_reconcile_soon(p);
    return m ? pool_lend_member(m, ret) : used;
}

struct sandbox_handle *pools_take(struct pools *p, const struct sandbox_spec *want, enum pool_result *ret)
{
    struct pool_loan loan;
    struct sandbox_handle *sandbox = pools_lend(p, want, "", &loan);

    if (ret)
        *ret = loan.result;
    return sandbox;
}

bool pools_accepts_return(const struct pools *p, const struct pool_loan *loan)
{
    const struct pool *pool = loan->pool[0] ? pools_find(p, loan->pool) : NULL;

    return pool && p->engine && pool->settings.recycle;
}

bool pools_return(struct pools *p, struct sandbox_handle *sandbox, const struct pool_loan *loan,
                  const struct pool_return *r)
{
    return pools_accepts_return(p, loan) && recycled_add(pools_find(p, loan->pool), sandbox, loan, r);
}

void pools_drop_owner(struct pools *p, const char *owner)
{
    for (struct pool *pool = &p->auto_pool; pool; pool = pool->next)
        recycled_drop_owner(pool, owner);
}

void pools_adjust_queue_length(struct pools *p, int by)
{
    p->queue_length += (uint32_t)by;
}

void pools_claim_finished(struct pools *p, const struct sandbox_spec *want, uint64_t ns)
{
    struct pool *pool = ns ? pools_find_for_spec(p, want) : NULL;

    if (p->claims_in_flight)
        p->claims_in_flight--;
    p->refill_paused_until = ns ? ev_now(p->ev) + QUIET_NS : 0;
    if (ns && !pool && p->auto_pool.generation && sandbox_spec_equal(&p->auto_pool.owned_spec.spec, want))
        pool = &p->auto_pool;
    if (pool) {
        pool->counters.claims_ready++;
        pool->counters.claim_ns += ns;
    }
    if (p->claims_in_flight == 0)
        pool_reconcile_soon(p);
}

/* --- reports --- */

static void pool_fill_zygote_info(const struct zygote_keeper *b, struct pool_info *ret)
{
    ret->zygote = b->state;
    if (b->state == POOL_ZYGOTE_FAILED)
        (void)str_copy(ret->zygote_error, sizeof(ret->zygote_error), b->why.msg);
    ret->zygotes_started = b->starts;
    ret->zygotes_renewed = b->renewals;
    ret->zygote_forks = b->forks;
    ret->joins = b->joins;
    ret->joins_failed = b->joins_failed;
}

static void pool_fill_info(const struct pool *pool, struct pool_info *ret)
{
    *ret = pool->counters;
    memcpy(ret->name, pool->name, sizeof(ret->name));
    ret->generation = pool->generation;
    ret->settings = pool->settings;
    ret->size = pool->ready;
    ret->starting = pool->starting;
    ret->recycled = recycled_count(pool, true);
    ret->target = pool->target;
    for (const struct pool_member *m = pool->first_member; m; m = m->next)
        ret->without_interpreter += pool_member_lacks_interpreter(m);
    ret->refill_ns = pool->refill_ns;
    ret->arrivals_milli = forecast_rate_milli(&pool->forecast, ev_now(pool->pools->ev));
    if (pool->zygote_keeper)
        pool_fill_zygote_info(pool->zygote_keeper, ret);
    else if (!sandbox_spec_supports_zygote(&pool->owned_spec.spec))
        ret->zygote = POOL_ZYGOTE_UNSUPPORTED;
}

size_t pools_list(const struct pools *p, struct pool_info *ret, size_t max)
{
    size_t n = 0;

    for (const struct pool *pool = p->auto_pool.next; pool && n < max; pool = pool->next)
        pool_fill_info(pool, &ret[n++]);
    return n;
}

bool pools_get(const struct pools *p, const char *name, struct pool_info *ret)
{
    const struct pool *pool = name[0] ? pools_find(p, name) : &p->auto_pool;

    if (!pool)
        return false;
    pool_fill_info(pool, ret);
    return true;
}
