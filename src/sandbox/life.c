/* One sandbox from its creation to its tombstone.
 *
 *     CREATING -> RUNNING <-> PAUSED -> ENDING -> (row only)
 *
 * What is asked of it between its creation and its end is ops.c.
 *
 * Invariants:
 * 1. A row is inserted before the box is asked for, so a kill leaves at most a row without a sandbox, never a sandbox
 *    without a row: the next manager ends the former, and the jailer ends what was not kept.
 * 2. `running` is told when the jailer has promised to keep the sandbox and the row says so.
 * 3. A sandbox has one end, the first that was noticed. It is told when nothing of it is left and the row says so; a
 *    store that refuses is asked again until it does not. */
#include "sandbox/contexts.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/hide.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>

void sb_ended_error(const struct sb *sb, struct err *ret)
{
    err_set(ret, ERR_SANDBOX_ENDED, "sandbox %s %s%s%s: %.140s", sb->id, sb->unmade ? "was never made" : "has ended (",
            sb->unmade ? "" : ended_by_name(sb->ended_by), sb->unmade ? "" : ")", sb->why.msg);
}

static void claim_over(struct sb *sb, bool well);
static bool make_again(struct sb *sb, const struct err *err);

/* The sandbox has it; here it would only wait to be found. */
static void forget_env(struct sb *sb)
{
    spec_env_free(take_ptr(&sb->spec.env));
    sb->spec.nenv = 0;
}

/* --- the end --- */

static void store_end(void *arg);

void sb_answer_waiters(struct sb *sb, const struct err *err, const struct store_sandbox *row)
{
    while (sb->waiters) {
        struct waiter *w = sb->waiters;

        sb->waiters = w->next;
        w->done(w->arg, err, row);
        free(w);
    }
}

static void on_end_stored(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sb *sb = arg;
    struct manager *m = sb->m;

    if (err && err->id != ERR_MISSING && err->id != ERR_EXISTS) {
        log_error("the end of sandbox %s is not written down yet: %s", sb->id, err->msg);
        sb_answer_waiters(sb, err, NULL); /* nothing of it is left; only the row says otherwise for now */
        ev_timer_set(m->ev, &sb->retry, ev_now(m->ev) + RETRY_NS, store_end, sb);
        return;
    }
    if (sb->created)
        sb->created(sb->created_arg, &sb->why, NULL);
    sb_answer_waiters(sb, row ? NULL : &sb->why, row);
    sb_tell_end(sb);
    sb_free(sb);
}

static void store_end(void *arg)
{
    struct sb *sb = arg;
    struct store_sandbox row = { .state = STORE_SB_ENDED, .ended_ms = sb->ended_ms, .cpu_us = meter_read(sb) };
    auto_free char *why = why_json(&sb->why);

    if (sb->box && box_memory_peak(sb->box) != BOX_UNKNOWN)
        row.usage_memory_peak = box_memory_peak(sb->box);
    memcpy(row.id, sb->id, sizeof(row.id));
    row.ended_by = sb->unmade ? NULL : (char *)ended_by_name(sb->ended_by);
    row.why_json = why;
    store_sandbox_update(sb->m->store, sb->owner, &row, STORE_SB_SET_STATE | STORE_SB_SET_ENDED,
                         &(struct store_when){ .states = STORE_SB_LIVE }, on_end_stored, sb);
}

static void on_first_final(void *arg UNUSED, const struct err *err, const struct store_execution *row UNUSED)
{
    if (err && err->id != ERR_MISSING)
        log_warn("a final receipt was not written down: %s", err->msg);
}

static void finish_first(struct sb *sb)
{
    auto_buf out = { 0 };
    struct jsonw w;
    struct store_execution row = { 0 };

    if (!sb->first || !exec_receipt(sb->first)->final)
        return;
    jsonw_init(&w, &out, 0);
    receipt_json(exec_receipt(sb->first), &w);
    memcpy(row.id, sb->first_id, sizeof(row.id));
    row.receipt_json = out.data;
    store_execution_update(sb->m->store, sb->owner, &row, STORE_EX_SET_RECEIPT, NULL, on_first_final, NULL);
}

static void sb_gone(struct sb *sb)
{
    auto_buf body = { 0 };
    struct err err;

    sb->gone = true;
    for (struct ex *ex = sb->execs, *next; ex; ex = next) {
        next = ex->next;
        if (ex->ended)
            continue;
        ex->ended_by = sb->ended_by;
        ex->has_ended_by = true;
        ex_end(ex, STORE_EX_FAILED, NULL, &sb->why);
    }
    finish_first(sb);
    sb_ended_error(sb, &err);
    contexts_end(sb, &err);
    sb_fail_ops(sb, &err);
    if (!sb->unmade)
        budget_sandbox(sb);
    if (!sb->unmade) {
        sb->m->stats.ended[sb->ended_by]++;
        buf_addf(&body, "\"endedBy\":\"%s\"", ended_by_name(sb->ended_by));
    }
    if (sb->inserted)
        sb_event(sb, "sandbox_ended", NULL, body.data);
    if (!sb->unmade && !sb->deleted && sb->m->set.on_end)
        sb->m->set.on_end(sb->m->set.arg, sb->id, sb->owner, sb->ended_by, &sb->why);
    store_end(sb);
}

static void on_destroyed(void *arg, const struct err *err)
{
    struct sb *sb = arg;

    if (err && err->id != ERR_MISSING && err->id != ERR_LOST)
        log_warn("sandbox %s: %s", sb->id, err->msg);
    sb_gone(sb);
}

void sb_end(struct sb *sb, enum ended_by by, const struct err *why)
{
    bool made = sb->box != NULL && !sb->gone;

    if (sb->state == SB_ENDING)
        return;
    sb->state = SB_ENDING;
    sb->ended_by = by;
    sb->why = *why;
    sb->ended_ms = now_ms();
    (void)meter_read(sb); /* where the end tells no figure, this one is the last */
    ev_timer_clear(sb->m->ev, &sb->idle);
    turn_end(&sb->turn);
    if (made)
        box_destroy(sb->box, on_destroyed, sb);
    else
        sb_gone(sb);
}

/* --- creating --- */

/* Nothing ended what was never made, so its row has a reason and no endedBy. A jailer that died over it took it along,
 * and that is a loss. */
static void fail_create(struct sb *sb, const struct err *err)
{
    claim_over(sb, false);
    sb->m->stats.create_failed++;
    if (sb->state != SB_ENDING)
        sb->unmade = err->id != ERR_LOST;
    sb_end(sb, ENDED_LOST, err); /* which answers */
}

static void count_start(const struct sb *sb)
{
    size_t nruntimes, at = 0;
    const struct runtime *all = runtimes_all(&nruntimes);
    uint64_t ns = ev_now(sb->m->ev) - sb->began_ns;
    unsigned i = 0;

    while (at < nruntimes && !str_eq(all[at].name, sb->spec.runtime))
        at++;
    if (at == nruntimes || at >= MANAGER_RUNTIMES_MAX)
        return;
    struct manager_starts *s = &sb->m->stats.starts[at][sb->warm];
    while (i < MANAGER_START_BUCKETS - 1 && ns >= (UINT64_C(1) << i) * NS_PER_MS)
        i++;
    s->n[i]++;
    s->sum_ns += ns;
}

static void on_running(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sb *sb = arg;
    store_sandbox_fn *created = sb->created;

    if (err) {
        fail_create(sb, err);
        return;
    }
    sb->created = NULL;
    sb->m->stats.created++;
    count_start(sb);
    sb_event(sb, "sandbox_created", NULL, NULL);
    if (created)
        created(sb->created_arg, NULL, row);
    sb_busy(sb);
}

static void create_step(struct sb *sb)
{
    struct store_sandbox row = { .state = STORE_SB_RUNNING };

    if (sb->state != SB_CREATING || !sb->inserted || !sb->kept)
        return;
    turn_end(&sb->turn);
    sb->state = SB_RUNNING;
    sb->expires_ms = now_ms() + sb->spec.limits.v[LIMIT_LIFETIME];
    sb->expires_mono_ms = mono_ms(sb->m) + sb->spec.limits.v[LIMIT_LIFETIME];
    auto_free char *spec = sb_spec_json(sb);
    memcpy(row.id, sb->id, sizeof(row.id));
    row.expires_ms = sb->expires_ms;
    row.spec_json = spec;
    store_sandbox_update(sb->m->store, sb->owner, &row, STORE_SB_SET_STATE | STORE_SB_SET_EXPIRES | STORE_SB_SET_SPEC,
                         &(struct store_when){ .states = STORE_BIT(STORE_SB_CREATING) }, on_running, sb);
}

static void on_inserted(void *arg, const struct err *err)
{
    struct sb *sb = arg;

    if (err) {
        fail_create(sb, err);
        return;
    }
    sb->inserted = true;
    create_step(sb);
}

static void on_kept(void *arg, const struct err *err)
{
    struct sb *sb = arg;

    if (sb->state != SB_CREATING)
        return;
    if (err) {
        fail_create(sb, err);
        return;
    }
    sb->kept = true;
    create_step(sb);
}

static void on_ready(void *arg)
{
    struct sb *sb = arg;

    if (sb->state == SB_LOADED) {
        recover_adopted(sb);
        return;
    }
    box_keep(sb->box, on_kept, sb);
    claim_over(sb, true);
    if (sb->pooled)
        forget_env(sb);
    sb->pooled = false;
}

bool sb_lifetime_over(const struct sb *sb, uint64_t slack_ms)
{
    return sb->expires_mono_ms ? mono_ms(sb->m) + slack_ms >= sb->expires_mono_ms
                               : now_ms() + slack_ms >= sb->expires_ms;
}

static void on_failed(void *arg, const struct err *err)
{
    struct sb *sb = arg;
    bool loaded = sb->state == SB_LOADED, late = loaded && sb_lifetime_over(sb, 0);
    struct err why = *err;

    if (make_again(sb, err))
        return;
    if (loaded && err->id == ERR_MISSING && late)
        err_set(&why, ERR_TIMEOUT, "its lifetime was over while the server was away");
    else if (loaded && err->id == ERR_MISSING)
        err_set(&why, ERR_LOST, "it ended while the server was away");
    sb->gone = true;
    if (!loaded) {
        fail_create(sb, &why);
        return;
    }
    sb_end(sb, late ? ENDED_LIFETIME : ENDED_LOST, &why);
    recover_resolved(sb->m);
}

static void on_ended(void *arg, const struct err *why)
{
    struct sb *sb = arg;
    enum ended_by by = box_ended_by(sb->box);
    bool loaded = sb->state == SB_LOADED;

    /* The jailer runs the same clock, for a server that is away, and may be the first to look at it. */
    if (by == ENDED_LOST && sb->expires_ms && sb_lifetime_over(sb, 50))
        by = ENDED_LIFETIME;
    sb_end(sb, by, why);
    if (loaded)
        recover_resolved(sb->m);
}

const struct box_ops sb_box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };

/* As many processors as the share needs, of those that policy and floor leave (0: all), with the fewest others on
 * them. */
static uint64_t choose_pins(struct manager *m, uint64_t millis, uint64_t within)
{
    uint64_t chosen = 0, wanted = (millis + 999) / 1000;
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return 0;
    for (; wanted > 0; wanted--) {
        int best = -1;

        for (int i = 0; i < 64; i++) {
            if (!CPU_ISSET((size_t)i, &allowed) || chosen >> i & 1 || (within && !(within >> i & 1)))
                continue;
            if (best < 0 || m->pinned[i] < m->pinned[best])
                best = i;
        }
        if (best < 0)
            break;
        chosen |= 1ull << best;
    }
    return chosen;
}

/* Where none can be chosen the set stays as it was, and the jailer refuses one that this host does not have. */
static void pin(struct sb *sb)
{
    uint64_t *set = &sb->spec.limits.v[LIMIT_CPUSET];
    uint64_t pins = choose_pins(sb->m, sb->spec.limits.v[LIMIT_CPU], *set);

    if (!pins)
        return;
    *set = pins;
    sb_pinned(sb, pins);
}

static void insert(struct sb *sb)
{
    struct store_sandbox row = { .state = STORE_SB_CREATING, .created_ms = sb->created_ms };
    auto_free char *spec = sb_spec_json(sb);
    auto_free char *metadata = spec_metadata_json(&sb->spec);

    memcpy(row.id, sb->id, sizeof(row.id));
    memcpy(row.owner, sb->owner, sizeof(row.owner));
    row.template = sb->template;
    row.runtime = sb->spec.runtime;
    row.level = (char *)level_name(sb->spec.level);
    row.spec_json = spec;
    row.metadata_json = metadata;
    row.created_by = sb->spec.created_by[0] ? sb->spec.created_by : NULL;
    store_sandbox_insert(sb->m->store, &row, sb->share->quota[STORE_QUOTA_SANDBOXES] ? 0 : sb->m->set.live_max,
                         on_inserted, sb);
}

static int create_check(struct manager *m, const struct spec *spec, struct err *err)
{
    const struct runtime *rt = runtime_by_name(spec->runtime);
    char path[PATH_MAX];
    const char *why;

    if (!manager_ready(m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    return rt ? runtime_find(rt, runtime_dirs, path, sizeof(path), err)
              : err_set(err, ERR_RUNTIME_MISSING, "there is no runtime '%s'", spec->runtime);
}

/* What a policy hides, on the way to the jailer. */
struct hidden {
    struct box_mount mounts[POLICY_PATHS_MAX];
    char dst[POLICY_PATHS_MAX][POLICY_TARGET_TEXT + 1];
    size_t n;
};

static int open_hidden(const struct manager *m, const struct spec *spec, struct hidden *h, struct err *err)
{
    for (size_t i = 0; i < spec->nhide; i++) {
        int fd;

        if (hide_open(m->output_dir, NULL, spec->hide[i], h->dst[h->n], &fd, err) < 0)
            return -1;
        if (fd >= 0) {
            h->mounts[h->n] = (struct box_mount){ BOX_BIND_RO, fd, h->dst[h->n] };
            h->n++;
        }
    }
    return 0;
}

static void close_hidden(struct hidden *h)
{
    while (h->n > 0)
        close(h->mounts[--h->n].fd);
}

static void wanted_box(const struct sb *sb, struct box_spec *ret)
{
    spec_box(&sb->spec, ret);
    ret->id = sb->id;
    ret->enforce = sb->m->set.enforce;
    ret->every_wall = sb->m->set.every_wall;
}

/* One that was made ahead has its name already, so whoever chose one gets none of them. */
static void take_box(struct sb *sb)
{
    struct box_spec box;
    enum pool_found found;

    wanted_box(sb, &box);
    if (sb->named || sb->spec.nhide)
        return;
    sb->box = pools_take(sb->m->pools, &box, &found);
    sb->warm = found == POOL_HIT;
    sb->claiming = true;
    sb->claim_ns = ev_now(sb->m->ev);
    sb->pooled = sb->box != NULL;
    if (sb->box)
        sb_rename(sb, box_id(sb->box));
}

static void claim_over(struct sb *sb, bool well)
{
    struct box_spec box;

    if (!sb->claiming)
        return;
    sb->claiming = false;
    wanted_box(sb, &box);
    pools_claimed(sb->m->pools, &box, well ? ev_now(sb->m->ev) - sb->claim_ns + 1 : 0);
}

int manager_new_box(struct manager *m, const struct spec *spec, struct box_spec *box, const struct box_ops *ops,
                    void *arg, struct box **ret, struct err *err)
{
    struct hidden h = { .n = 0 };
    int rc = open_hidden(m, spec, &h, err);

    if (rc == 0) {
        box->mounts = h.mounts;
        box->nmounts = h.n;
        box->owner_uid = h.n ? geteuid() : 0;
        box->owner_gid = h.n ? getegid() : 0;
        rc = box_new(m->engine, box, ops, arg, ret, err);
    }
    close_hidden(&h);
    return rc;
}

static int make_box(struct sb *sb, struct err *err)
{
    struct box_spec box;
    int rc;

    wanted_box(sb, &box);
    if (sb->box)
        return box_claim(sb->box, &box, &sb_box_ops, sb, err);
    rc = manager_new_box(sb->m, &sb->spec, &box, &sb_box_ops, sb, &sb->box, err);
    if (rc == 0)
        forget_env(sb);
    return rc;
}

/* One that was made ahead and died before it could be claimed held nothing of anybody: another is made under its name,
 * once, and nobody learns of it. */
static bool make_again(struct sb *sb, const struct err *err)
{
    struct err why = { 0 };

    if (sb->state != SB_CREATING || !sb->pooled || err->id != ERR_LOST || !sb->m->engine)
        return false;
    claim_over(sb, false);
    sb->pooled = sb->warm = false;
    box_free(take_ptr(&sb->box));
    if (make_box(sb, &why) < 0)
        fail_create(sb, &why);
    return true;
}

/* Its turn has come, or will not. */
static void make(void *arg, const struct err *failed)
{
    struct sb *sb = arg;
    struct manager *m = sb->m;
    struct err err = { 0 };

    if (!failed && !m->engine)
        failed = (err_set(&err, ERR_BUSY, "%s", m->not_ready), &err); /* it went while this one waited */
    if (failed) {
        fail_create(sb, failed);
        return;
    }
    if (sb->spec.pinning)
        pin(sb);
    take_box(sb);
    if (sb->on_named)
        sb->on_named(sb->created_arg, sb->id);
    insert(sb);
    if (make_box(sb, &err) < 0 && !make_again(sb, &err))
        fail_create(sb, &err);
}

void manager_create(struct manager *m, const char *owner, const char *id, struct spec *spec, const char *template,
                    manager_named_fn *named, store_sandbox_fn *done, void *arg)
{
    struct err err = { 0 };
    char fresh[ID_SIZE]; /* until a box is taken that has a name */
    uint64_t amounts[STORE_QUOTA_COUNT];

    sb_amounts(spec, amounts);
    if (id && sb_find(m, STORE_ANY_OWNER, id))
        err_set(&err, ERR_IDEMPOTENCY, "sandbox %s is being made already", id);
    if (err.id || create_check(m, spec, &err) < 0 || budget_check(m, owner, false, &err) < 0 ||
        share_take(share_of(m, owner), amounts, &m->refusal, &err) < 0) {
        spec_done(spec);
        m->stats.create_failed++;
        done(arg, &err, NULL);
        return;
    }
    if (!id)
        id_new("sb", fresh);
    struct sb *sb = sb_new(m, id ? id : fresh, owner);
    spec_done(&sb->spec);
    sb->spec = *spec;
    *spec = (struct spec){ 0 };
    sb->state = SB_CREATING;
    sb->named = id != NULL && !named;
    sb->on_named = named;
    sb->created_ms = now_ms();
    sb->began_ns = ev_now(m->ev);
    sb->created = done;
    sb->created_arg = arg;
    sb->template = template ? str_dup(template) : NULL;
    memcpy(sb->holds, amounts, sizeof(amounts));
    turns_ask(&m->creates, &sb->share->creates, &sb->turn, make, sb);
}
