/* The zygote of a kind of sandboxes: started when the first member wants to be forked from it, started again when it
 * was lost, and renewed by age and by how often it was forked, so that what it holds of the machine does not grow for
 * ever. Its age is looked at when it is needed: one that nobody needs is not renewed, and no timer runs for it.
 *
 * Whether it lives is not asked: a join that finds it LOST or MISSING tells. Until the next one is ready, members have
 * no interpreter, and whoever takes one starts his own.
 *
 * What a preload does wrong it will do again: such a zygote is given up until somebody puts the pool anew, and its
 * reason stays. Everything else is tried again, each time later. An import may also go on for ever, so its time is
 * bounded, and the zygote is ended when that is over. */
#include "pool/inside.h"

#include "base/log.h"
#include "base/mem.h"

#define BACKOFF_MIN (1 * NS_PER_S)
#define BACKOFF_MAX (300 * NS_PER_S)
#define YOUNG_NS (10 * NS_PER_S) /* one that dies earlier is not started again at once */
#define BUSY_NS (50 * NS_PER_MS)
#define BAD_MAX 3u

const char *const pool_zygote_names[] = { "none", "starting", "ready", "failed", NULL };

static void start(struct breeder *b);

static void on_retry(void *arg)
{
    struct breeder *b = arg;

    b->state = POOL_ZYGOTE_NONE;
    upkeep_soon(b->pools); /* starts it, if anybody still wants it */
}

static void fail(struct breeder *b, const struct err *why)
{
    struct ev *ev = b->pools->ev;

    b->state = POOL_ZYGOTE_FAILED;
    b->renewing = false;
    b->why = *why;
    b->hopeless = why->id == ERR_INVALID || why->id == ERR_LIMIT;
    if (b->hopeless) {
        log_warn("interpreters are started one by one, because their zygote cannot be had: %s", why->msg);
        return;
    }
    ev_timer_set(ev, &b->retry, ev_now(ev) + b->backoff_ns, on_retry, b);
    b->backoff_ns = min_u64(b->backoff_ns * 2, BACKOFF_MAX);
}

static void on_started(void *arg, const struct err *err)
{
    struct breeder *b = arg;
    uint64_t now = ev_now(b->pools->ev);

    if (b->state != POOL_ZYGOTE_STARTING && !b->renewing)
        return;
    ev_timer_clear(b->pools->ev, &b->late);
    if (err && b->renewing) { /* the old one serves on */
        log_warn("a zygote could not be renewed: %s", err->msg);
        b->renewing = false;
        b->renew_ns = now + b->backoff_ns;
        b->backoff_ns = min_u64(b->backoff_ns * 2, BACKOFF_MAX);
        return;
    }
    if (err) {
        fail(b, err);
        upkeep_soon(b->pools);
        return;
    }
    b->started++;
    b->renewed += b->renewing;
    b->renewing = false;
    b->state = POOL_ZYGOTE_READY;
    b->born_ns = now;
    b->members = b->bad = 0;
    upkeep_soon(b->pools);
}

/* The jailer ends zygotes by their kind, so one that was to be renewed goes along, and both are tried again. */
static void on_late(void *arg)
{
    struct breeder *b = arg;
    const char *preload = b->shape.zygote.preload;
    struct err why;

    err_set(&why, b->renewing ? ERR_TIMEOUT : ERR_INVALID, "%s%.160s did not finish within %llu s",
            *preload ? "preload " : "the start of an interpreter", preload, b->pools->zygote_ns / NS_PER_S);
    engine_zygote_forget(b->pools->engine, b);
    engine_zygote_end(b->pools->engine, &b->shape.spec);
    fail(b, &why);
    upkeep_soon(b->pools);
}

static void start(struct breeder *b)
{
    struct err err = { 0 };

    ev_timer_set(b->pools->ev, &b->late, ev_now(b->pools->ev) + b->pools->zygote_ns, on_late, b);
    if (engine_zygote(b->pools->engine, &b->shape.spec, on_started, b, &err) < 0)
        on_started(b, &err);
}

static bool worn(const struct breeder *b, const struct pool_settings *set)
{
    uint64_t now = ev_now(b->pools->ev);

    if (now < b->renew_ns)
        return false;
    return (set->zygote_max_members && b->members >= set->zygote_max_members) ||
           (set->zygote_max_age_ms && now - b->born_ns >= set->zygote_max_age_ms * NS_PER_MS);
}

bool breeder_want(struct breeder *b, const struct pool_settings *set)
{
    if (!b->pools->engine)
        return false;
    if (b->state == POOL_ZYGOTE_NONE) {
        b->state = POOL_ZYGOTE_STARTING;
        start(b);
    } else if (b->state == POOL_ZYGOTE_READY && !b->renewing && worn(b, set)) {
        b->renewing = true;
        start(b);
    }
    return b->state == POOL_ZYGOTE_READY && ev_now(b->pools->ev) >= b->busy_until;
}

static void lost(struct breeder *b, const struct err *why)
{
    uint64_t lived = ev_now(b->pools->ev) - b->born_ns;

    if (b->state != POOL_ZYGOTE_READY || b->renewing)
        return; /* the next one is on its way */
    log_warn("a zygote has ended, and another is started: %s", why->msg);
    if (lived < YOUNG_NS) {
        fail(b, why);
        return;
    }
    b->backoff_ns = BACKOFF_MIN;
    b->state = POOL_ZYGOTE_NONE;
    upkeep_soon(b->pools);
}

void breeder_joined(struct breeder *b, const struct err *err)
{
    b->joins++;
    if (!err) {
        b->members++;
        b->bad = 0;
        return;
    }
    b->joins_failed++;
    if (err->id == ERR_LOST || err->id == ERR_MISSING) {
        lost(b, err);
    } else if (err->id == ERR_BUSY) {
        b->busy_until = ev_now(b->pools->ev) + BUSY_NS;
    } else if (++b->bad == BAD_MAX && b->state == POOL_ZYGOTE_READY && !b->renewing) {
        struct err why = *err;

        why.id = ERR_LOST;
        fail(b, &why);
    }
}

void breeder_hope(struct breeder *b)
{
    if (b->state == POOL_ZYGOTE_FAILED && b->hopeless)
        b->state = POOL_ZYGOTE_NONE;
    b->hopeless = false;
}

static void forget(struct breeder *b)
{
    if (b->pools->engine)
        engine_zygote_forget(b->pools->engine, b);
    ev_timer_clear(b->pools->ev, &b->retry);
    ev_timer_clear(b->pools->ev, &b->late);
}

void breeders_reset(struct pools *p)
{
    for (struct breeder *b = p->breeders; b; b = b->next) {
        forget(b);
        b->state = POOL_ZYGOTE_NONE;
        b->renewing = b->hopeless = false;
        b->backoff_ns = BACKOFF_MIN;
        b->busy_until = b->renew_ns = b->members = b->bad = 0;
    }
}

static void breeder_free(struct breeder *b)
{
    forget(b);
    shape_done(&b->shape);
    free(b);
}

void breeders_free(struct pools *p)
{
    while (p->breeders) {
        struct breeder *b = p->breeders;

        p->breeders = b->next;
        breeder_free(b);
    }
}

static bool needed(const struct breeder *b)
{
    const struct pool *pool = &b->pools->ahead;

    while (pool && pool->breeder != b)
        pool = pool->next;
    return pool;
}

void breeders_sweep(struct pools *p)
{
    for (struct breeder **at = &p->breeders, *b; (b = *at);) {
        if (needed(b)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        if (p->engine && b->state != POOL_ZYGOTE_NONE)
            engine_zygote_end(p->engine, &b->shape.spec);
        breeder_free(b);
    }
}

/* What is made ahead without a pool changes its kind as often as others are asked for, so those of its earlier kinds
 * stay until a pool is put or removed: starting one costs more than keeping it. */
struct breeder *breeder_of(struct pools *p, const struct box_spec *like)
{
    if (!like->zygote)
        return NULL;
    for (struct breeder *b = p->breeders; b; b = b->next)
        if (box_same_kind(&b->shape.spec, like))
            return b;
    struct breeder *b = mem_new(struct breeder);
    b->pools = p;
    b->backoff_ns = BACKOFF_MIN;
    shape_set(&b->shape, like);
    b->next = p->breeders;
    p->breeders = b;
    return b;
}
