/* The zygote of one kind of sandbox: started when the first member needs an interpreter,
 * restarted after it was lost, and replaced by age and by number of forks, so that its use of
 * resources does not grow for ever. Its age is checked only when it is needed: an unused zygote
 * is not replaced, and no timer runs for it.
 *
 * The zygote is not polled: a join that fails with LOST or MISSING shows that it has ended.
 * Until the next one is ready, members have no interpreter, and their executions start their
 * own.
 *
 * A preload that fails will fail again: such a zygote is given up until the pool is put again,
 * and the error is kept. All other failures are retried with back-off. An import may also never
 * end, so the start has a timeout, after which the zygote is ended. */
#include "sandbox/pool/pool_internal.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#define BACKOFF_MIN (1 * NS_PER_S)
#define BACKOFF_MAX (300 * NS_PER_S)
#define ZYGOTE_MIN_LIFE_NS (10 * NS_PER_S) /* a zygote that dies earlier is restarted with back-off */
#define ZYGOTE_BUSY_NS (50 * NS_PER_MS)
#define ZYGOTE_JOIN_FAILURES_MAX 3u

const char *const pool_zygote_names[] = { "none", "starting", "ready", "failed", "unsupported", NULL };

static void zygote_keeper_start(struct zygote_keeper *b);

static void zygote_keeper_on_retry(void *arg)
{
    struct zygote_keeper *b = arg;

    b->state = POOL_ZYGOTE_NONE;
    pool_reconcile_soon(b->pools); /* starts it, if it is still needed */
}

static void zygote_keeper_set_failed(struct zygote_keeper *b, const struct err *why)
{
    struct ev *ev = b->pools->ev;

    b->state = POOL_ZYGOTE_FAILED;
    b->renewing = false;
    b->why = *why;
    b->permanently_failed = why->id == ERR_INVALID || why->id == ERR_LIMIT;
    if (b->permanently_failed) {
        log_warn("cannot start the zygote; interpreters are started one by one: %s", why->msg);
        return;
    }
    ev_timer_set(ev, &b->retry_timer, ev_now(ev) + backoff_next(&b->backoff), zygote_keeper_on_retry, b);
}

static void zygote_keeper_on_started(void *arg, const struct err *err)
{
    struct zygote_keeper *b = arg;
    uint64_t now = ev_now(b->pools->ev);

    if (b->state != POOL_ZYGOTE_STARTING && !b->renewing)
        return;
    ev_timer_clear(b->pools->ev, &b->start_timer);
    if (err && b->renewing) { /* the old zygote stays in use */
        log_warn("cannot replace a zygote: %s", err->msg);
        b->renewing = false;
        b->renew_not_before_ns = now + backoff_next(&b->backoff);
        return;
    }
    if (err) {
        zygote_keeper_set_failed(b, err);
        pool_reconcile_soon(b->pools);
        return;
    }
    b->starts++;
    b->renewals += b->renewing;
    b->renewing = false;
    b->state = POOL_ZYGOTE_READY;
    b->started_ns = now;
    b->forks = b->join_failures_in_a_row = 0;
    pool_reconcile_soon(b->pools);
}

/* The jailer ends zygotes by kind, so the old zygote ends too, and the start is retried for
 * both. */
static void zygote_keeper_on_start_timeout(void *arg)
{
    struct zygote_keeper *b = arg;
    const char *preload = b->owned_spec.zygote.preload;
    struct err why;

    err_set(&why, b->renewing ? ERR_TIMEOUT : ERR_INVALID, "%s%.160s did not finish within %llu s",
            *preload ? "preload " : "the start of an interpreter", preload,
            b->pools->zygote_start_timeout_ns / NS_PER_S);
    engine_forget_zygote_request(b->pools->engine, b);
    engine_stop_zygote(b->pools->engine, &b->owned_spec.spec);
    zygote_keeper_set_failed(b, &why);
    pool_reconcile_soon(b->pools);
}

static void zygote_keeper_start(struct zygote_keeper *b)
{
    struct err err = { 0 };

    ev_timer_set(b->pools->ev, &b->start_timer, ev_now(b->pools->ev) + b->pools->zygote_start_timeout_ns,
                 zygote_keeper_on_start_timeout, b);
    if (engine_start_zygote(b->pools->engine, &b->owned_spec.spec, zygote_keeper_on_started, b, &err) < 0)
        zygote_keeper_on_started(b, &err);
}

static bool zygote_keeper_needs_renewal(const struct zygote_keeper *b, const struct pool_settings *set)
{
    uint64_t now = ev_now(b->pools->ev);

    if (now < b->renew_not_before_ns)
        return false;
    return (set->zygote_max_members && b->forks >= set->zygote_max_members) ||
           (set->zygote_max_age_ms && now - b->started_ns >= set->zygote_max_age_ms * NS_PER_MS);
}

bool zygote_keeper_ensure_ready(struct zygote_keeper *b, const struct pool_settings *set)
{
    if (!b->pools->engine)
        return false;
    if (b->state == POOL_ZYGOTE_NONE) {
        b->state = POOL_ZYGOTE_STARTING;
        zygote_keeper_start(b);
    } else if (b->state == POOL_ZYGOTE_READY && !b->renewing && zygote_keeper_needs_renewal(b, set)) {
        b->renewing = true;
        zygote_keeper_start(b);
    }
    return b->state == POOL_ZYGOTE_READY && ev_now(b->pools->ev) >= b->busy_until;
}

static void zygote_keeper_on_lost(struct zygote_keeper *b, const struct err *why)
{
    uint64_t lived = ev_now(b->pools->ev) - b->started_ns;

    if (b->state != POOL_ZYGOTE_READY || b->renewing)
        return; /* the replacement is being started */
    log_warn("a zygote has ended and is restarted: %s", why->msg);
    if (lived < ZYGOTE_MIN_LIFE_NS) {
        zygote_keeper_set_failed(b, why);
        return;
    }
    backoff_reset(&b->backoff);
    b->state = POOL_ZYGOTE_NONE;
    pool_reconcile_soon(b->pools);
}

void zygote_keeper_on_join(struct zygote_keeper *b, const struct err *err)
{
    b->joins++;
    if (!err) {
        b->forks++;
        b->join_failures_in_a_row = 0;
        return;
    }
    b->joins_failed++;
    if (err->id == ERR_LOST || err->id == ERR_MISSING) {
        zygote_keeper_on_lost(b, err);
    } else if (err->id == ERR_BUSY) {
        b->busy_until = ev_now(b->pools->ev) + ZYGOTE_BUSY_NS;
    } else if (++b->join_failures_in_a_row == ZYGOTE_JOIN_FAILURES_MAX && b->state == POOL_ZYGOTE_READY &&
               !b->renewing) {
        struct err why = *err;

        why.id = ERR_LOST;
        zygote_keeper_set_failed(b, &why);
    }
}

void zygote_keeper_retry_failed(struct zygote_keeper *b)
{
    if (b->state == POOL_ZYGOTE_FAILED && b->permanently_failed)
        b->state = POOL_ZYGOTE_NONE;
    b->permanently_failed = false;
}

static void zygote_keeper_cancel(struct zygote_keeper *b)
{
    if (b->pools->engine)
        engine_forget_zygote_request(b->pools->engine, b);
    ev_timer_clear(b->pools->ev, &b->retry_timer);
    ev_timer_clear(b->pools->ev, &b->start_timer);
}

void zygote_keepers_reset(struct pools *p)
{
    for (struct zygote_keeper *b = p->zygote_keepers; b; b = b->next) {
        zygote_keeper_cancel(b);
        b->state = POOL_ZYGOTE_NONE;
        b->renewing = b->permanently_failed = false;
        backoff_reset(&b->backoff);
        b->busy_until = b->renew_not_before_ns = b->forks = b->join_failures_in_a_row = 0;
    }
}

static void zygote_keeper_free(struct zygote_keeper *b)
{
    zygote_keeper_cancel(b);
    owned_spec_done(&b->owned_spec);
    free(b);
}

void zygote_keepers_free(struct pools *p)
{
    while (p->zygote_keepers) {
        struct zygote_keeper *b = p->zygote_keepers;

        p->zygote_keepers = b->next;
        zygote_keeper_free(b);
    }
}

static bool zygote_keeper_is_needed(const struct zygote_keeper *b)
{
    const struct pool *pool = &b->pools->auto_pool;

    while (pool && pool->zygote_keeper != b)
        pool = pool->next;
    return pool;
}

void zygote_keepers_drop_unused(struct pools *p)
{
    for (struct zygote_keeper **at = &p->zygote_keepers, *b; (b = *at);) {
        if (zygote_keeper_is_needed(b)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        if (p->engine && b->state != POOL_ZYGOTE_NONE)
            engine_stop_zygote(p->engine, &b->owned_spec.spec);
        zygote_keeper_free(b);
    }
}

/* The auto pool changes its kind as often as other specs are requested, so zygotes of its
 * earlier kinds stay until a pool is put or removed: starting a zygote costs more than keeping
 * it. */
struct zygote_keeper *zygote_keeper_for_spec(struct pools *p, const struct sandbox_spec *like)
{
    if (!like->zygote || !sandbox_spec_supports_zygote(like))
        return NULL;
    for (struct zygote_keeper *b = p->zygote_keepers; b; b = b->next)
        if (sandbox_spec_same_kind(&b->owned_spec.spec, like))
            return b;
    struct zygote_keeper *b = mem_new(struct zygote_keeper);
    b->pools = p;
    b->backoff = (struct backoff){ .min_ns = BACKOFF_MIN, .max_ns = BACKOFF_MAX };
    owned_spec_set(&b->owned_spec, like);
    b->next = p->zygote_keepers;
    p->zygote_keepers = b;
    return b;
}
