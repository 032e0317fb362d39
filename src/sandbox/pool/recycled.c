/* A used sandbox that was returned: it is reset, verified from outside, gets an interpreter, and
 * waits for its previous owner. Any failure on the way destroys the sandbox and is counted under
 * its verdict.
 *
 * PID 1 was exposed to its owner's programs for a whole run, so its report is not trusted and no
 * other owner ever gets the sandbox: sandbox_handle_reset() also checks the kernel's own
 * counters, when only PID 1 may be left in the sandbox. */
#include "sandbox/pool/pool_internal.h"

#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

enum recycled_state { RECYCLED_RESETTING, RECYCLED_JOINING, RECYCLED_WAITING };
struct recycled_sandbox {
    struct recycled_sandbox *next, **link;
    struct pool *pool;
    struct sandbox_handle *sandbox;
    enum recycled_state state;
    char *owner;
    enum level level;
    struct recycle_facts facts;
    struct pool_loan loan;
    uint64_t waiting_since_ns;
};

static struct sandbox_handle *recycled_detach(struct recycled_sandbox *u)
{
    struct sandbox_handle *sandbox = u->sandbox;

    linked_remove(u);
    free(u->owner);
    free(u);
    return sandbox;
}

static void recycled_destroy(struct recycled_sandbox *u)
{
    struct pools *p = u->pool->pools;

    sandbox_handle_free(recycled_detach(u));
    pool_reconcile_soon(p);
}

static void recycled_reject(struct recycled_sandbox *u, enum recycle_verdict why)
{
    u->pool->counters.recycle_verdicts[why]++;
    recycled_destroy(u);
}

static void recycled_set_waiting(struct recycled_sandbox *u)
{
    u->state = RECYCLED_WAITING;
    u->waiting_since_ns = ev_now(u->pool->pools->ev);
    u->pool->counters.recycle_verdicts[RECYCLE_YES]++;
    pool_reconcile_soon(u->pool->pools);
}

static void recycled_on_joined(void *arg, const struct err *err)
{
    struct recycled_sandbox *u = arg;
    struct zygote_keeper *b = u->pool->zygote_keeper;

    if (err)
        recycled_reject(u, RECYCLE_INTERPRETER);
    else
        recycled_set_waiting(u);
    zygote_keeper_on_join(b, err);
}

/* An interpreter that the owner would have to start costs more than a new sandbox that has one. */
static void recycled_join_interpreter(struct recycled_sandbox *u)
{
    struct pool *pool = u->pool;

    if (!pool->zygote_keeper) {
        recycled_set_waiting(u);
    } else if (zygote_keeper_ensure_ready(pool->zygote_keeper, &pool->settings)) {
        u->state = RECYCLED_JOINING;
        sandbox_handle_join_interpreter(u->sandbox, recycled_on_joined, u);
    } else {
        recycled_reject(u, RECYCLE_INTERPRETER);
    }
}

static void recycled_on_reset(void *arg)
{
    struct recycled_sandbox *u = arg;
    struct recycle_facts *f = &u->facts;
    const struct sandbox_reset_report *found = sandbox_handle_reset_report(u->sandbox);

    f->was_reset = true;
    f->has_denials = found->has_denials;
    f->at_limit |= found->limit_reached;
    f->processes_left = found->processes;
    f->sockets = found->sockets;
    f->init_altered = found->init_altered;
    f->pids = found->pids;
    f->memory = found->memory;
    enum recycle_verdict why = recycle_decide(f);
    if (why == RECYCLE_REFUSED) /* its execution was reported as ended, so no receipt will contain it */
        log_warn("sandbox %s of %s: a system call was denied while its execution ended", sandbox_handle_id(u->sandbox),
                 u->owner);
    if (why == RECYCLE_YES)
        recycled_join_interpreter(u);
    else
        recycled_reject(u, why);
}

static void recycled_on_failed(void *arg, const struct err *why UNUSED)
{
    struct recycled_sandbox *u = arg;

    if (u->state != RECYCLED_WAITING) {
        recycled_reject(u, RECYCLE_RESET);
    } else {
        u->pool->counters.lost++;
        recycled_destroy(u);
    }
}

static void recycled_on_interpreter_lost(void *arg)
{
    struct recycled_sandbox *u = arg;

    u->pool->counters.lost++;
    recycled_destroy(u);
}

static const struct sandbox_handle_ops recycled_ops = { .on_ready = recycled_on_reset,
                                                        .on_failed = recycled_on_failed,
                                                        .on_interpreter_lost = recycled_on_interpreter_lost };

static struct recycle_facts recycled_facts(const struct pool *pool, const struct sandbox_handle *sandbox,
                                           const struct pool_loan *loan, const struct pool_return *r)
{
    return (struct recycle_facts){
        .pool_matches = loan->pool_serial == pool->serial &&
                        sandbox_spec_equal(&pool->owned_spec.spec, r->claimed_spec),
        .enabled = pool->settings.recycle,
        .pool_size = pool->ready + pool->starting + recycled_count(pool, false),
        .pool_max = pool->settings.max,
        .age_ms = (ev_now(pool->pools->ev) - loan->created_ns) / NS_PER_MS,
        .max_age_ms = pool->settings.max_age_ms,
        .ended_by_itself = r->ended_by_itself && sandbox_handle_can_reset(sandbox),
        .has_denials = sandbox_handle_has_denials(sandbox),
        .at_limit = r->space_ran_out || (r->usage.oom_kills != SANDBOX_USAGE_UNKNOWN && r->usage.oom_kills > 0) ||
                    (r->usage.pids_refused != SANDBOX_USAGE_UNKNOWN && r->usage.pids_refused > 0),
        .memory_peak = r->usage.memory_peak,
        .memory_limit = r->claimed_spec->limits.v[LIMIT_MEMORY],
        .uses = loan->uses + 1,
    };
}

bool recycled_add(struct pool *pool, struct sandbox_handle *sandbox, const struct pool_loan *loan,
                  const struct pool_return *r)
{
    struct recycle_facts facts = recycled_facts(pool, sandbox, loan, r);
    enum recycle_verdict why = recycle_decide(&facts);

    if (why != RECYCLE_YES) {
        pool->counters.recycle_verdicts[why]++;
        return false;
    }
    struct recycled_sandbox *u = mem_new(struct recycled_sandbox);
    u->pool = pool;
    u->sandbox = sandbox;
    u->owner = str_dup(r->owner);
    u->level = r->claimed_spec->level;
    u->facts = facts;
    u->loan = *loan;
    u->loan.uses++;
    linked_push(&pool->recycled, u);
    sandbox_handle_reset(sandbox, &recycled_ops, u);
    return true;
}

struct sandbox_handle *recycled_take(struct pool *pool, const char *owner, enum level level, struct pool_loan *ret)
{
    struct recycled_sandbox *u = pool->recycled;

    while (u && (u->state != RECYCLED_WAITING || u->level != level || !str_eq(u->owner, owner)))
        u = u->next;
    if (!u)
        return NULL;
    *ret = u->loan;
    return recycled_detach(u);
}

uint32_t recycled_count(const struct pool *pool, bool waiting)
{
    uint32_t n = 0;

    for (const struct recycled_sandbox *u = pool->recycled; u; u = u->next)
        n += !waiting || u->state == RECYCLED_WAITING;
    return n;
}

static uint64_t recycled_expires_at(const struct recycled_sandbox *u)
{
    const struct pool_settings *s = &u->pool->settings;
    uint64_t ttl = s->ttl_ms ? u->waiting_since_ns + s->ttl_ms * NS_PER_MS : 0;
    uint64_t age = s->max_age_ms ? u->loan.created_ns + s->max_age_ms * NS_PER_MS : 0;

    return ttl && (!age || ttl < age) ? ttl : age;
}

uint64_t recycled_evict(struct pool *pool, uint64_t now)
{
    uint64_t next = 0;

    for (struct recycled_sandbox *u = pool->recycled, *older; u; u = older) {
        uint64_t at = recycled_expires_at(u);
        bool crowded = pool->ready + pool->starting + recycled_count(pool, false) >
                       max_u64(pool->settings.max, pool->target);

        older = u->next;
        if (u->state != RECYCLED_WAITING)
            continue;
        if (crowded || (at && now >= at)) {
            pool->counters.expired++;
            recycled_destroy(u);
        } else if (at && (!next || at < next)) {
            next = at;
        }
    }
    return next;
}

void recycled_drop_owner(struct pool *pool, const char *owner)
{
    for (struct recycled_sandbox *u = pool->recycled, *older; u; u = older) {
        older = u->next;
        if (str_eq(u->owner, owner))
            recycled_destroy(u);
    }
}

void recycled_clear(struct pool *pool)
{
    for (struct recycled_sandbox *u = pool->recycled, *older; u; u = older) {
        older = u->next;
        sandbox_handle_free(recycled_detach(u));
    }
}
