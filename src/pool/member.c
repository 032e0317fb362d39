/* One member: a box that is being prepared, then an interpreter on its way into it, then it waits.
 *
 * Invariants:
 * 1. A member is in its pool's list from the moment its box exists until that is given away or freed.
 * 2. pool->ready and pool->starting count the list; pools->under_way is the sum of the latter. */
#include "pool/inside.h"

#include "base/mem.h"

static void count(struct member *m, int by)
{
    bool ready = m->state == MEMBER_READY;

    *(ready ? &m->pool->ready : &m->pool->starting) += (uint32_t)by;
    m->pool->pools->under_way += ready ? 0 : (uint32_t)by;
}

static void set_state(struct member *m, enum member_state state)
{
    count(m, -1);
    m->state = state;
    count(m, 1);
}

static void detach(struct member *m)
{
    struct pool *pool = m->pool;

    count(m, -1);
    *(m->prev ? &m->prev->next : &pool->first) = m->next;
    *(m->next ? &m->next->prev : &pool->last) = m->prev;
}

struct box *member_give(struct member *m)
{
    struct box *box = m->box;

    detach(m);
    free(m);
    return box;
}

void member_drop(struct member *m)
{
    box_free(member_give(m));
}

bool member_bare(const struct member *m)
{
    return m->state == MEMBER_READY && m->pool->breeder && !box_has_member(m->box);
}

static void settle(struct member *m)
{
    struct pool *pool = m->pool;

    set_state(m, MEMBER_READY);
    if (!m->upgraded)
        upkeep_made(pool, ev_now(pool->pools->ev) - m->began_ns);
    upkeep_soon(pool->pools);
}

static void on_joined(void *arg, const struct err *err)
{
    struct member *m = arg;

    m->mourned = m->rehearsed = false;
    m->unjoinable = err && err->id != ERR_LOST && err->id != ERR_MISSING && err->id != ERR_BUSY;
    settle(m);
    breeder_joined(m->pool->breeder, err);
}

void member_join(struct member *m)
{
    m->upgraded = m->state == MEMBER_READY;
    set_state(m, MEMBER_JOINING);
    box_join(m->box, on_joined, m);
}

static void on_prepared(void *arg)
{
    struct member *m = arg;
    struct pool *pool = m->pool;

    if (pool->breeder && breeder_want(pool->breeder, &pool->set))
        member_join(m);
    else
        settle(m);
}

static void on_failed(void *arg, const struct err *why UNUSED)
{
    struct member *m = arg;
    struct pool *pool = m->pool;

    if (m->state == MEMBER_READY)
        pool->count.lost += !m->mourned;
    else
        upkeep_failed(pool);
    member_drop(m);
    upkeep_soon(pool->pools);
}

static void on_member_lost(void *arg)
{
    struct member *m = arg;

    m->mourned = true;
    m->pool->count.lost++;
    upkeep_soon(m->pool->pools);
}

static const struct box_ops ops = { .on_ready = on_prepared, .on_failed = on_failed, .on_member_lost = on_member_lost };

int member_make(struct pool *pool, struct err *err)
{
    struct member *m = mem_new(struct member);

    m->pool = pool;
    m->began_ns = ev_now(pool->pools->ev);
    if (box_prepare(pool->pools->engine, &pool->shape.spec, &ops, m, &m->box, err) < 0) {
        free(m);
        return -1;
    }
    m->prev = pool->last;
    *(pool->last ? &pool->last->next : &pool->first) = m;
    pool->last = m;
    count(m, 1);
    return 0;
}
