/* A sandbox that was used and given back: it is reset, looked at from outside, gets an interpreter, and waits for the
 * owner it had. Whatever goes wrong on the way destroys it, and is counted under its name.
 *
 * Its first process was within reach of its owner's programs for a whole run, so its word is not enough and it is
 * nobody else's ever: box_reset() asks the kernel's own counters too, when nothing but that process may be in there. */
#include "pool/inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum used_state { USED_RESETTING, USED_JOINING, USED_WAITING };
struct used {
    struct used *next, **at;
    struct pool *pool;
    struct box *box;
    enum used_state state;
    char *owner;
    enum level level;
    struct recycle_facts facts;
    struct pool_loan loan;
    uint64_t since_ns;
};

static struct box *detach(struct used *u)
{
    struct box *box = u->box;

    *u->at = u->next;
    if (u->next)
        u->next->at = u->at;
    free(u->owner);
    free(u);
    return box;
}

static void drop(struct used *u)
{
    struct pools *p = u->pool->pools;

    box_free(detach(u));
    upkeep_soon(p);
}

static void refuse(struct used *u, enum recycle why)
{
    u->pool->count.recycle[why]++;
    drop(u);
}

static void settle(struct used *u)
{
    u->state = USED_WAITING;
    u->since_ns = ev_now(u->pool->pools->ev);
    u->pool->count.recycle[RECYCLE_YES]++;
    upkeep_soon(u->pool->pools);
}

static void on_joined(void *arg, const struct err *err)
{
    struct used *u = arg;
    struct breeder *b = u->pool->breeder;

    if (err)
        refuse(u, RECYCLE_INTERPRETER);
    else
        settle(u);
    breeder_joined(b, err);
}

/* What its owner would have to start himself costs him more than a fresh one that has it. */
static void bring_interpreter(struct used *u)
{
    struct pool *pool = u->pool;

    if (!pool->breeder) {
        settle(u);
    } else if (breeder_want(pool->breeder, &pool->set)) {
        u->state = USED_JOINING;
        box_join(u->box, on_joined, u);
    } else {
        refuse(u, RECYCLE_INTERPRETER);
    }
}

static void on_reset(void *arg)
{
    struct used *u = arg;
    struct recycle_facts *f = &u->facts;
    const struct box_found *found = box_found(u->box);

    f->reset = true;
    f->refused = found->refused;
    f->at_limit |= found->limit;
    f->left = found->processes;
    f->sockets = found->sockets;
    f->altered = found->altered;
    f->pids = found->pids;
    f->memory = found->memory;
    enum recycle why = recycle_decide(f);
    if (why == RECYCLE_REFUSED) /* its run was told as over, so no receipt will say it */
        log_warn("sandbox %s of %s: a call was refused as its run ended", box_id(u->box), u->owner);
    if (why == RECYCLE_YES)
        bring_interpreter(u);
    else
        refuse(u, why);
}

static void on_failed(void *arg, const struct err *why UNUSED)
{
    struct used *u = arg;

    if (u->state != USED_WAITING) {
        refuse(u, RECYCLE_RESET);
    } else {
        u->pool->count.lost++;
        drop(u);
    }
}

static void on_member_lost(void *arg)
{
    struct used *u = arg;

    u->pool->count.lost++;
    drop(u);
}

static const struct box_ops ops = { .on_ready = on_reset, .on_failed = on_failed, .on_member_lost = on_member_lost };

static struct recycle_facts facts_of(const struct pool *pool, const struct box *box, const struct pool_loan *loan,
                                     const struct pool_return *r)
{
    return (struct recycle_facts){
        .pool = loan->series == pool->series && box_like(&pool->shape.spec, r->as),
        .enabled = pool->set.recycle,
        .has = pool->ready + pool->starting + used_count(pool, false),
        .room = pool->set.max,
        .age_ms = (ev_now(pool->pools->ev) - loan->born_ns) / NS_PER_MS,
        .max_age_ms = pool->set.max_age_ms,
        .by_itself = r->by_itself && box_can_reset(box),
        .refused = box_refused(box),
        .at_limit = r->full || (r->usage.oom_kills != BOX_UNKNOWN && r->usage.oom_kills > 0) ||
                    (r->usage.pids_refused != BOX_UNKNOWN && r->usage.pids_refused > 0),
        .memory_peak = r->usage.memory_peak,
        .memory_limit = r->as->limits.v[LIMIT_MEMORY],
        .uses = loan->uses + 1,
    };
}

bool used_add(struct pool *pool, struct box *box, const struct pool_loan *loan, const struct pool_return *r)
{
    struct recycle_facts facts = facts_of(pool, box, loan, r);
    enum recycle why = recycle_decide(&facts);

    if (why != RECYCLE_YES) {
        pool->count.recycle[why]++;
        return false;
    }
    struct used *u = mem_new(struct used);
    u->pool = pool;
    u->box = box;
    u->owner = str_dup(r->owner);
    u->level = r->as->level;
    u->facts = facts;
    u->loan = *loan;
    u->loan.uses++;
    u->next = pool->used;
    u->at = &pool->used;
    if (u->next)
        u->next->at = &u->next;
    pool->used = u;
    box_reset(box, &ops, u);
    return true;
}

struct box *used_give(struct pool *pool, const char *owner, enum level level, struct pool_loan *ret)
{
    struct used *u = pool->used;

    while (u && (u->state != USED_WAITING || u->level != level || !str_eq(u->owner, owner)))
        u = u->next;
    if (!u)
        return NULL;
    *ret = u->loan;
    return detach(u);
}

uint32_t used_count(const struct pool *pool, bool waiting)
{
    uint32_t n = 0;

    for (const struct used *u = pool->used; u; u = u->next)
        n += !waiting || u->state == USED_WAITING;
    return n;
}

static uint64_t due(const struct used *u)
{
    const struct pool_settings *s = &u->pool->set;
    uint64_t ttl = s->ttl_ms ? u->since_ns + s->ttl_ms * NS_PER_MS : 0;
    uint64_t age = s->max_age_ms ? u->loan.born_ns + s->max_age_ms * NS_PER_MS : 0;

    return ttl && (!age || ttl < age) ? ttl : age;
}

uint64_t used_let_go(struct pool *pool, uint64_t now)
{
    uint64_t next = 0;

    for (struct used *u = pool->used, *older; u; u = older) {
        uint64_t at = due(u);
        bool crowded = pool->ready + pool->starting + used_count(pool, false) > max_u64(pool->set.max, pool->target);

        older = u->next;
        if (u->state != USED_WAITING)
            continue;
        if (crowded || (at && now >= at)) {
            pool->count.expired++;
            drop(u);
        } else if (at && (!next || at < next)) {
            next = at;
        }
    }
    return next;
}

void used_forget(struct pool *pool, const char *owner)
{
    for (struct used *u = pool->used, *older; u; u = older) {
        older = u->next;
        if (str_eq(u->owner, owner))
            drop(u);
    }
}

void used_empty(struct pool *pool)
{
    for (struct used *u = pool->used, *older; u; u = older) {
        older = u->next;
        box_free(detach(u));
    }
}
