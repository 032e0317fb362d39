/* What is asked of a sandbox, carried out one thing after another: each is put to the jailer, then written down, then
 * answered. An end passes all of them: they are answered with its reason.
 *
 * Idleness is one more that asks. It is measured here and not by the engine, because file requests count too, and
 * because an idle sandbox may be paused instead of ended; one that was is woken up by the next that has a use for it.
 */
#include "sandbox/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

/* --- finding it --- */

struct lookup { /* for an id that is not in the table */
    store_sandbox_fn *done;
    box_usage_fn *usage;
    manager_box_fn *use;
    void *arg;
    bool ended_too; /* bring one that has ended instead of refusing */
};

static void tell_lookup(const struct lookup *l, const struct err *err, const struct store_sandbox *row)
{
    if (l->usage)
        l->usage(l->arg, NULL, err);
    else if (l->use)
        l->use(l->arg, NULL, err);
    else if (l->done)
        l->done(l->arg, err, row);
}

static void on_looked_up(void *arg, const struct err *err, const struct store_sandbox *row)
{
    auto_free struct lookup *l = arg;
    struct err why = { 0 };
    char at[32];

    if (err) {
        tell_lookup(l, err, NULL);
    } else if (row->state != STORE_SB_ENDED) { /* its end is being written down, or it is being loaded */
        err_set(&why, ERR_BUSY, "sandbox %s is not settled yet; ask again", row->id);
        tell_lookup(l, &why, NULL);
    } else if (l->ended_too) {
        tell_lookup(l, NULL, row);
    } else {
        err_set(&why, ERR_SANDBOX_ENDED, "sandbox %s ended at %s (%s)", row->id,
                clock_rfc3339(row->ended_ms * NS_PER_MS, at), row->ended_by ? row->ended_by : "it was never made");
        tell_lookup(l, &why, NULL);
    }
}

/* NULL: it was answered, or will be. */
static struct sb *find_or_tell(struct manager *m, const char *owner, const char *id, const struct lookup *l)
{
    struct sb *sb = m->loaded ? sb_find(m, owner, id) : NULL;
    struct err err = { 0 };

    if (!id_valid(id, "sb")) {
        err_set(&err, ERR_MISSING, "there is no such sandbox");
    } else if (!m->loaded || (sb && sb->state == SB_LOADED)) {
        err_set(&err, ERR_BUSY, "the server has just started and is still finding its sandboxes");
    } else if (!sb) {
        store_sandbox_get(m->store, owner, id, on_looked_up, mem_copy(l, sizeof(*l)));
        return NULL;
    } else if (sb->state == SB_ENDING && !l->ended_too) {
        sb_ended_error(sb, &err);
    } else if (sb->state == SB_CREATING && !l->ended_too) {
        err_set(&err, ERR_EXISTS, "sandbox %s is still being created", id);
    } else {
        return sb;
    }
    tell_lookup(l, &err, NULL);
    return NULL;
}

/* --- operations --- */

static void op_start(struct sb *sb);

static void op_pop(struct sb *sb)
{
    struct op *op = sb->ops;

    sb->ops = op->next;
    free(op);
}

static void op_tell(const struct op *op, const struct err *err, const struct store_sandbox *row)
{
    if (op->usage)
        op->usage(op->arg, NULL, err);
    else if (op->use)
        op->use(op->arg, NULL, err);
    else if (op->done)
        op->done(op->arg, err, row);
}

void sb_fail_ops(struct sb *sb, const struct err *err)
{
    while (sb->ops) {
        struct op *op = sb->ops;

        sb->ops = op->next;
        op_tell(op, err, NULL);
        free(op);
    }
}

/* The answer of the one at the front; what it said may come after the sandbox's end, and then nobody waits. */
static struct op *op_answered(struct sb *sb)
{
    return sb->state == SB_ENDING || !sb->ops || !sb->ops->active ? NULL : sb->ops;
}

static void op_finish(struct sb *sb, const struct err *err, const struct store_sandbox *row)
{
    struct op op = *sb->ops;

    op_pop(sb);
    op_tell(&op, err, row);
    op_start(sb);
}

static void on_op_stored(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sb *sb = arg;
    struct op *op = op_answered(sb);

    if (!op)
        return;
    if (op->kind == OP_USE && !err) {
        op->active = false;
        op_start(sb);
    } else {
        op_finish(sb, err, row);
    }
}

static void op_store(struct sb *sb)
{
    auto_free char *spec = sb_spec_json(sb);
    struct store_sandbox row = { .state = sb->state == SB_PAUSED ? STORE_SB_PAUSED : STORE_SB_RUNNING,
                                 .expires_ms = sb->expires_ms };

    memcpy(row.id, sb->id, sizeof(row.id));
    row.spec_json = spec;
    store_sandbox_update(sb->m->store, sb->owner, &row, STORE_SB_SET_STATE | STORE_SB_SET_SPEC | STORE_SB_SET_EXPIRES,
                         &(struct store_when){ .states = STORE_SB_LIVE }, on_op_stored, sb);
}

static void on_frozen(void *arg, const struct err *err)
{
    struct sb *sb = arg;
    struct op *op = op_answered(sb);

    if (!op)
        return;
    if (err) {
        op_finish(sb, err, NULL);
        return;
    }
    sb->state = SB_PAUSED;
    sb->paused_at_ms = mono_ms(sb->m);
    sb->paused_by_idle = op->by_idle;
    sb_event(sb, "sandbox_paused", NULL, op->by_idle ? "\"by\":\"idle\"" : "\"by\":\"request\"");
    sb_tell(sb);
    op_store(sb);
}

static void on_thawed(void *arg, const struct err *err)
{
    struct sb *sb = arg;

    if (!op_answered(sb))
        return;
    if (err) {
        op_finish(sb, err, NULL);
        return;
    }
    uint64_t now = mono_ms(sb->m);
    sb->state = SB_RUNNING;
    if (now > sb->paused_at_ms)
        sb->paused_ms += now - sb->paused_at_ms;
    sb->paused_at_ms = 0;
    sb->paused_by_idle = false;
    sb_event(sb, "sandbox_resumed", NULL, NULL);
    sb_tell(sb);
    op_store(sb);
}

static void on_extended(void *arg, const struct err *err)
{
    struct sb *sb = arg;
    struct op *op = op_answered(sb);
    auto_buf body = { 0 };

    if (!op)
        return;
    if (err) {
        op_finish(sb, err, NULL);
        return;
    }
    sb->spec.limits.v[LIMIT_LIFETIME] = op->lifetime_ms;
    sb->expires_ms = now_ms() + op->lifetime_ms;
    sb->expires_mono_ms = mono_ms(sb->m) + op->lifetime_ms;
    buf_addf(&body, "\"lifetimeMs\":%" PRIu64, op->lifetime_ms);
    sb_event(sb, "sandbox_extended", NULL, body.data);
    op_store(sb);
}

static void on_idle(void *arg);

static void on_used(void *arg, const struct box_usage *u, const struct err *err)
{
    struct sb *sb = arg;
    struct op *op = op_answered(sb);

    if (!op)
        return;
    struct op told = *op;
    uint64_t idle_at = sb->idle.slot ? sb->idle.at : 0;
    op_pop(sb);
    told.usage(told.arg, u, err);
    op_start(sb);
    if (idle_at && sb->idle.slot) /* looking is not using: idleness goes on where it was */
        ev_timer_set(sb->m->ev, &sb->idle, idle_at, on_idle, sb);
}

static void start_use(struct sb *sb)
{
    struct op op = *sb->ops;
    struct err err;

    if (sb->state == SB_PAUSED && sb->paused_by_idle) {
        sb->ops->active = true;
        box_thaw(sb->box, on_thawed, sb);
        return;
    }
    op_pop(sb);
    if (sb->state == SB_PAUSED) {
        err_set(&err, ERR_SANDBOX_PAUSED, "sandbox %s is paused", sb->id);
        op.use(op.arg, NULL, &err);
    } else {
        sb->uses++;
        op.use(op.arg, sb->box, NULL);
    }
}

static void op_begin(struct sb *sb, struct op *op)
{
    bool paused = sb->state == SB_PAUSED;

    op->active = true;
    switch (op->kind) {
    case OP_PAUSE:
        if (paused)
            sb->paused_by_idle = sb->paused_by_idle && op->by_idle;
        if (paused)
            op_store(sb);
        else
            box_freeze(sb->box, on_frozen, sb);
        break;
    case OP_RESUME:
        if (paused)
            box_thaw(sb->box, on_thawed, sb);
        else
            op_store(sb);
        break;
    case OP_EXTEND:
        box_extend(sb->box, op->lifetime_ms, on_extended, sb);
        break;
    case OP_USAGE:
        box_usage(sb->box, on_used, sb);
        break;
    case OP_USE:
        op->active = false;
        start_use(sb);
        break;
    }
}

static void op_start(struct sb *sb)
{
    while (sb->ops && !sb->ops->active && (sb->state == SB_RUNNING || sb->state == SB_PAUSED))
        op_begin(sb, sb->ops);
    if (!sb->ops)
        sb_busy(sb);
}

static void op_add(struct sb *sb, const struct op *op)
{
    struct op **p = &sb->ops;

    while (*p)
        p = &(*p)->next;
    *p = mem_copy(op, sizeof(*op));
    op_start(sb);
}

static void ask(struct manager *m, const char *owner, const char *id, const struct op *op)
{
    struct lookup l = { .done = op->done, .usage = op->usage, .use = op->use, .arg = op->arg };
    struct sb *sb = find_or_tell(m, owner, id, &l);

    if (sb)
        op_add(sb, op);
}

void manager_pause(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    ask(m, owner, id, &(struct op){ .kind = OP_PAUSE, .done = done, .arg = arg });
}

void manager_resume(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    ask(m, owner, id, &(struct op){ .kind = OP_RESUME, .done = done, .arg = arg });
}

void manager_extend(struct manager *m, const char *owner, const char *id, uint64_t lifetime_ms, store_sandbox_fn *done,
                    void *arg)
{
    ask(m, owner, id, &(struct op){ .kind = OP_EXTEND, .lifetime_ms = lifetime_ms, .done = done, .arg = arg });
}

void manager_usage(struct manager *m, const char *owner, const char *id, box_usage_fn *done, void *arg)
{
    ask(m, owner, id, &(struct op){ .kind = OP_USAGE, .usage = done, .arg = arg });
}

void manager_use(struct manager *m, const char *owner, const char *id, manager_box_fn *done, void *arg)
{
    ask(m, owner, id, &(struct op){ .kind = OP_USE, .use = done, .arg = arg });
}

void manager_release(struct manager *m, const char *id)
{
    struct sb *sb = sb_find(m, STORE_ANY_OWNER, id);

    if (!sb || sb->uses == 0)
        return;
    sb->uses--;
    sb_busy(sb);
}

void manager_delete(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    struct lookup l = { .done = done, .arg = arg, .ended_too = true };
    struct sb *sb = find_or_tell(m, owner, id, &l);
    struct err why;

    if (!sb)
        return;
    struct waiter *w = mem_new(struct waiter);
    w->done = done;
    w->arg = arg;
    w->next = sb->waiters;
    sb->waiters = w;
    err_set(&why, ERR_SANDBOX_ENDED, "it was deleted on request");
    sb->deleted |= sb->state != SB_ENDING;
    sb_end(sb, ENDED_KILLED, &why);
}

/* --- idleness --- */

static void on_idle(void *arg)
{
    struct sb *sb = arg;
    struct err why;
    char text[32];

    if (sb->spec.idle_action == IDLE_PAUSE) {
        op_add(sb, &(struct op){ .kind = OP_PAUSE, .by_idle = true });
        return;
    }
    err_set(&why, ERR_TIMEOUT, "nothing ran in the sandbox for %s", str_ms(sb->spec.limits.v[LIMIT_IDLE], text));
    sb_end(sb, ENDED_IDLE, &why);
}

void sb_busy(struct sb *sb)
{
    struct ev *ev = sb->m->ev;
    uint64_t idle_ns = sb->spec.limits.v[LIMIT_IDLE] * NS_PER_MS;

    meter_stir(sb->m);
    if (idle_ns && sb->state == SB_RUNNING && !sb->nexecs && !sb->uses && !sb->ops)
        ev_timer_set(ev, &sb->idle, ev_now(ev) + idle_ns, on_idle, sb);
    else
        ev_timer_clear(ev, &sb->idle);
}
