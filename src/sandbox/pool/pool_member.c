/* One member: first its sandbox is being prepared, then an interpreter joins, then the member
 * waits.
 *
 * Invariants:
 * 1. A member is in its pool's list from the creation of its sandbox_handle until that is given
 *    away or freed.
 * 2. pool->ready and pool->starting count the list; pools->starting_members is the sum of
 *    pool->starting. */
#include "sandbox/pool/pool_internal.h"

#include "core/base/mem.h"

static void pool_member_count(struct pool_member *m, int by)
{
    bool ready = m->state == POOL_MEMBER_READY;

    *(ready ? &m->pool->ready : &m->pool->starting) += (uint32_t)by;
    m->pool->pools->starting_members += ready ? 0 : (uint32_t)by;
}

static void pool_member_set_state(struct pool_member *m, enum pool_member_state state)
{
    pool_member_count(m, -1);
    m->state = state;
    pool_member_count(m, 1);
}

static void pool_member_detach(struct pool_member *m)
{
    struct pool *pool = m->pool;

    pool_member_count(m, -1);
    *(m->prev ? &m->prev->next : &pool->first_member) = m->next;
    *(m->next ? &m->next->prev : &pool->last_member) = m->prev;
}

struct sandbox_handle *pool_member_release(struct pool_member *m)
{
    struct sandbox_handle *sandbox = m->sandbox;

    pool_member_detach(m);
    free(m);
    return sandbox;
}

void pool_member_destroy(struct pool_member *m)
{
    sandbox_handle_free(pool_member_release(m));
}

bool pool_member_lacks_interpreter(const struct pool_member *m)
{
    return m->state == POOL_MEMBER_READY && m->pool->zygote_keeper && !sandbox_handle_has_interpreter(m->sandbox);
}

static void pool_member_set_ready(struct pool_member *m)
{
    struct pool *pool = m->pool;

    pool_member_set_state(m, POOL_MEMBER_READY);
    if (!m->interpreter_joined_later)
        pool_reconcile_member_created(pool, ev_now(pool->pools->ev) - m->created_ns);
    pool_reconcile_soon(pool->pools);
}

static void pool_member_on_joined(void *arg, const struct err *err)
{
    struct pool_member *m = arg;

    m->loss_counted = m->is_warmed_up = false;
    m->join_impossible = err && err->id != ERR_LOST && err->id != ERR_MISSING && err->id != ERR_BUSY;
    pool_member_set_ready(m);
    zygote_keeper_on_join(m->pool->zygote_keeper, err);
}

void pool_member_join_interpreter(struct pool_member *m)
{
    m->interpreter_joined_later = m->state == POOL_MEMBER_READY;
    pool_member_set_state(m, POOL_MEMBER_JOINING);
    sandbox_handle_join_interpreter(m->sandbox, pool_member_on_joined, m);
}

static void pool_member_on_prepared(void *arg)
{
    struct pool_member *m = arg;
    struct pool *pool = m->pool;

    if (pool->zygote_keeper && zygote_keeper_ensure_ready(pool->zygote_keeper, &pool->settings))
        pool_member_join_interpreter(m);
    else
        pool_member_set_ready(m);
}

static void pool_member_on_failed(void *arg, const struct err *why UNUSED)
{
    struct pool_member *m = arg;
    struct pool *pool = m->pool;

    if (m->state == POOL_MEMBER_READY)
        pool->counters.lost += !m->loss_counted;
    else
        pool_reconcile_member_failed(pool);
    pool_member_destroy(m);
    pool_reconcile_soon(pool->pools);
}

static void pool_member_on_interpreter_lost(void *arg)
{
    struct pool_member *m = arg;

    m->loss_counted = true;
    m->pool->counters.lost++;
    pool_reconcile_soon(m->pool->pools);
}

static const struct sandbox_handle_ops pool_member_ops = { .on_ready = pool_member_on_prepared,
                                                           .on_failed = pool_member_on_failed,
                                                           .on_interpreter_lost = pool_member_on_interpreter_lost };

int pool_member_create(struct pool *pool, struct err *err)
{
    struct pool_member *m = mem_new(struct pool_member);

    m->pool = pool;
    m->created_ns = ev_now(pool->pools->ev);
    if (sandbox_handle_prepare(pool->pools->engine, &pool->owned_spec.spec, &pool_member_ops, m, &m->sandbox, err) <
        0) {
        free(m);
        return -1;
    }
    m->prev = pool->last_member;
    *(pool->last_member ? &pool->last_member->next : &pool->first_member) = m;
    pool->last_member = m;
    pool_member_count(m, 1);
    return 0;
}
