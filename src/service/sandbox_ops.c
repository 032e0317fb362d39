/* Requests to a sandbox, one after another: each is sent to the jailer, then committed, then
 * answered. The end of the sandbox answers all pending requests with its reason. A request begins
 * at the end of the loop iteration, and a refusal is reported there, so no caller is answered
 * before its call has returned.
 *
 * Idleness causes such a request too. It is measured here and not by the engine, because file
 * requests count as use, and because an idle sandbox may be paused instead of ended. The next use
 * resumes a sandbox that was paused for idleness. */
#include "service/sandbox_internal.h"
#include "service/bound_secrets.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

/* --- lookup --- */

struct sandbox_lookup { /* for an id that is not in the table */
    struct sandbox_reply reply;
    bool include_ended; /* return the row of an ended sandbox instead of an error */
};

static void sandbox_lookup_on_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    auto_free struct sandbox_lookup *l = arg;
    struct err why = { 0 };
    char at[32];

    if (err) {
        sandbox_reply_send(&l->reply, err, NULL);
    } else if (row->state != STORE_SANDBOX_ENDED) { /* its end is being committed, or it is being loaded */
        err_set(&why, ERR_BUSY, "sandbox %s is being created, recovered or ended; try again", row->id);
        sandbox_reply_send(&l->reply, &why, NULL);
    } else if (l->include_ended) {
        sandbox_reply_send(&l->reply, NULL, row);
    } else {
        err_set(&why, ERR_SANDBOX_ENDED, "sandbox %s ended at %s (%s)", row->id,
                clock_rfc3339(row->ended_ms * NS_PER_MS, at), row->ended_by ? row->ended_by : "it was not created");
        sandbox_reply_send(&l->reply, &why, NULL);
    }
}

/* NULL: the request will be answered. */
static struct sandbox *sandbox_find_or_answer(struct sandbox_services *s, const char *owner, const char *id,
                                              const struct sandbox_lookup *l)
{
    struct sandbox *sb = recovery_is_loaded(s->recovery) ? registry_find(s->registry, owner, id) : NULL;
    struct err err = { 0 };

    if (!id_valid(id, "sb")) {
        err_set(&err, ERR_MISSING, "there is no such sandbox");
    } else if (!recovery_is_loaded(s->recovery) || (sb && sb->state == SANDBOX_STATE_LOADED)) {
        err_set(&err, ERR_BUSY, "the server has just started and is still recovering its sandboxes; try again");
    } else if (!sb || sb->is_end_committed) {
        store_sandbox_get(s->store, owner, id, sandbox_lookup_on_row, mem_copy(l, sizeof(*l)));
        return NULL;
    } else if (sb->state == SANDBOX_STATE_ENDING && !l->include_ended) {
        sandbox_ended_error(sb, &err);
    } else if (sb->state == SANDBOX_STATE_CREATING && !l->include_ended) {
        err_set(&err, ERR_EXISTS, "sandbox %s is still being created", id);
    } else {
        return sb;
    }
    sandbox_refuse(s, &l->reply, &err);
    return NULL;
}

/* --- operations --- */

static void sandbox_op_run_queue(struct sandbox *sb);

void sandbox_op_free(struct sandbox_op *op)
{
    sandbox_update_free(op->update);
    free(op);
}

static void sandbox_op_pop(struct sandbox *sb)
{
    struct sandbox_op *op = sb->ops;

    sb->ops = op->next;
    sandbox_op_free(op);
}

void sandbox_fail_ops(struct sandbox *sb, const struct err *err)
{
    while (sb->ops) {
        struct sandbox_op *op = sb->ops;

        sb->ops = op->next;
        sandbox_reply_send(&op->reply, err, NULL);
        sandbox_op_free(op);
    }
}

/* The request at the front whose answer has arrived; NULL if the sandbox ended meanwhile and the
 * request was answered. */
static struct sandbox_op *sandbox_op_in_progress(struct sandbox *sb)
{
    return sb->state == SANDBOX_STATE_ENDING || !sb->ops || !sb->ops->in_progress ? NULL : sb->ops;
}

static void sandbox_op_finish(struct sandbox *sb, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox_op op = *sb->ops;

    sandbox_op_pop(sb);
    sandbox_reply_send(&op.reply, err, row);
    sandbox_op_run_queue(sb);
}

static void sandbox_op_on_committed(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);

    if (!op)
        return;
    if (op->kind == SANDBOX_OP_ACQUIRE && !err) {
        op->in_progress = false;
        sandbox_op_run_queue(sb);
    } else {
        sandbox_op_finish(sb, err, row);
    }
}

static void sandbox_op_commit(struct sandbox *sb)
{
    struct store_sandbox row = { .state = sb->state == SANDBOX_STATE_PAUSED ? STORE_SANDBOX_PAUSED
                                                                            : STORE_SANDBOX_RUNNING,
                                 .expires_ms = sb->expires_ms };

    auto_free char *metadata = sb->ops->kind == SANDBOX_OP_UPDATE ? spec_metadata_json(&sb->spec) : NULL;
    sandbox_fill_spec_row(sb, &row);
    row.metadata_json = metadata;
    store_sandbox_update(sb->services->store, sb->owner, &row,
                         STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_SPEC | STORE_SANDBOX_SET_EXPIRES |
                             (metadata ? STORE_SANDBOX_SET_METADATA : 0u),
                         &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, sandbox_op_on_committed, sb);
    free(row.spec_json);
}

static void sandbox_op_on_frozen(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);

    if (!op)
        return;
    if (err) {
        sandbox_op_finish(sb, err, NULL);
        return;
    }
    sandbox_set_state(sb, SANDBOX_STATE_PAUSED);
    sb->paused_at_ms = sandbox_mono_ms(sb);
    sb->paused_by_idle = op->idle_initiated;
    sandbox_append_event(sb, "sandbox_paused", NULL, op->idle_initiated ? "\"by\":\"idle\"" : "\"by\":\"request\"");
    sandbox_notify_subscribers(sb);
    sandbox_op_commit(sb);
}

static void sandbox_op_on_thawed(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;

    if (!sandbox_op_in_progress(sb))
        return;
    if (err) {
        sandbox_op_finish(sb, err, NULL);
        return;
    }
    uint64_t now = sandbox_mono_ms(sb);
    sandbox_set_state(sb, SANDBOX_STATE_RUNNING);
    if (now > sb->paused_at_ms)
        sb->paused_total_ms += now - sb->paused_at_ms;
    sb->paused_at_ms = 0;
    sb->paused_by_idle = false;
    sandbox_append_event(sb, "sandbox_resumed", NULL, NULL);
    sandbox_notify_subscribers(sb);
    sandbox_op_commit(sb);
}

/* --- updates --- */

/* The listeners of a sandbox stay, so "none" means that nothing is allowed. */
static struct network_policy sandbox_op_new_network(const struct sandbox_update *u)
{
    return (struct network_policy){ .mode = NETWORK_EGRESS, .rules = u->network.rules ? u->network.rules : "" };
}

static void sandbox_op_store_network(struct sandbox *sb, const struct sandbox_update *u)
{
    struct network_policy network = sandbox_op_new_network(u);

    if (sb->spec.network.mode == NETWORK_NONE)
        return;
    network_policy_done(&sb->spec.network);
    network_policy_copy(&sb->spec.network, &network);
}

/* The jailer has the new lifetime, and the egress proxy the new rules. */
static void sandbox_op_apply_update(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);
    auto_buf body = { 0 };
    struct err why = { 0 };
    struct jsonw w;

    if (!op)
        return;
    const struct sandbox_update *u = op->update;
    if (err || sandbox_update_merge_metadata(u, &sb->spec.metadata, &why) < 0) {
        sandbox_op_finish(sb, err ? err : &why, NULL);
        return;
    }
    if (u->lifetime_ms) {
        sb->spec.limits.v[LIMIT_LIFETIME] = u->lifetime_ms;
        sb->expires_ms = clock_real_ms() + u->lifetime_ms;
        sb->expires_mono_ms = sandbox_mono_ms(sb) + u->lifetime_ms;
    }
    if (u->sets_idle_timeout)
        sb->spec.limits.v[LIMIT_IDLE] = u->idle_timeout_ms;
    if (u->sets_idle_action)
        sb->spec.idle_action = u->idle_action;
    if (u->sets_network)
        sandbox_op_store_network(sb, u);
    jsonw_init(&w, &body, 0);
    jsonw_object(&w);
    sandbox_update_json(u, &w);
    auto_free char *metadata = u->metadata || u->clears_metadata ? spec_metadata_json(&sb->spec) : NULL;
    if (metadata)
        jsonw_kraw(&w, "metadata", metadata);
    jsonw_end_object(&w);
    auto_free char *members = str_dup_n(body.data + 1, body.len - 2);
    sandbox_append_event(sb, "sandbox_updated", NULL, members);
    sandbox_op_commit(sb);
}

static void sandbox_op_on_lifetime_set(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);
    struct bound_secrets bound = { 0 };
    struct network_policy network;
    struct err why = { 0 };

    if (!op)
        return;
    if (err || !op->update->sets_network || sb->spec.network.mode == NETWORK_NONE) {
        sandbox_op_apply_update(sb, err);
        return;
    }
    network = sandbox_op_new_network(op->update);
    if (bound_secrets_fill(sb->services->supply->secrets, sb->owner, &network, false, &bound, &why) < 0)
        sandbox_op_apply_update(sb, &why);
    else
        sandbox_handle_set_network(sb->handle, &network, bound.entries, bound.n, sandbox_op_apply_update, sb);
    bound_secrets_wipe(&bound);
}

static void sandbox_op_start_lifetime(struct sandbox *sb, const struct sandbox_update *u)
{
    if (u->lifetime_ms)
        sandbox_handle_set_lifetime(sb->handle, u->lifetime_ms, sandbox_op_on_lifetime_set, sb);
    else
        sandbox_op_on_lifetime_set(sb, NULL);
}

static void sandbox_op_on_name_committed(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);

    if (!op)
        return;
    if (err) {
        sandbox_op_finish(sb, err, NULL);
        return;
    }
    (void)str_copy(sb->spec.name, sizeof(sb->spec.name), op->update->name);
    sandbox_op_start_lifetime(sb, op->update);
}

static int sandbox_op_check_network(const struct sandbox *sb, const struct sandbox_update *u, struct err *err)
{
    if (!u->sets_network || u->network.mode == NETWORK_NONE || sb->spec.network.mode != NETWORK_NONE)
        return 0;
    return err_set(err, ERR_NETWORK_NOT_ENABLED,
                   "network: sandbox %s was created without a network; create one with \"network\": {\"egress\": []} "
                   "(--net egress), which allows nothing until it is changed",
                   sb->id);
}

/* The name comes first: another sandbox may have it, and then nothing is changed. */
static void sandbox_op_start_update(struct sandbox *sb, struct sandbox_op *op)
{
    struct sandbox_update *u = op->update;
    struct store_sandbox row = { .name = u->name[0] ? u->name : NULL };
    auto_json *metadata = sb->spec.metadata ? json_copy(sb->spec.metadata) : NULL;
    struct err err = { 0 };

    if (sandbox_update_merge_metadata(u, &metadata, &err) < 0 || sandbox_op_check_network(sb, u, &err) < 0) {
        sandbox_op_finish(sb, &err, NULL);
        return;
    }
    if (!u->sets_name || str_eq(u->name, sb->spec.name)) {
        sandbox_op_start_lifetime(sb, u);
        return;
    }
    memcpy(row.id, sb->id, sizeof(row.id));
    store_sandbox_update(sb->services->store, sb->owner, &row, STORE_SANDBOX_SET_NAME,
                         &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, sandbox_op_on_name_committed, sb);
}

static void sandbox_on_idle(void *arg);

/* Reading is not use: the idle timer continues where it was. */
static uint64_t sandbox_op_pop_reader(struct sandbox *sb)
{
    uint64_t idle_at = sb->idle_timer.slot ? sb->idle_timer.at : 0;

    sandbox_op_pop(sb);
    return idle_at;
}

static void sandbox_op_continue_idle(struct sandbox *sb, uint64_t idle_at)
{
    sandbox_op_run_queue(sb);
    if (idle_at && sb->idle_timer.slot)
        ev_timer_set(sb->services->ev, &sb->idle_timer, idle_at, sandbox_on_idle, sb);
}

static void sandbox_op_on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);

    if (!op)
        return;
    struct sandbox_op finished = *op;
    uint64_t idle_at = sandbox_op_pop_reader(sb);
    finished.reply.on_usage(finished.reply.arg, u, err);
    sandbox_op_continue_idle(sb, idle_at);
}

static void sandbox_op_on_connections(void *arg, const struct egress_listed *l, const struct err *err)
{
    struct sandbox *sb = arg;
    struct sandbox_op *op = sandbox_op_in_progress(sb);

    if (!op)
        return;
    struct sandbox_op finished = *op;
    uint64_t idle_at = sandbox_op_pop_reader(sb);
    finished.reply.on_connections(finished.reply.arg, l, err);
    sandbox_op_continue_idle(sb, idle_at);
}

/* A sandbox without a network has none to ask the proxy for. */
static void sandbox_op_start_connections(struct sandbox *sb)
{
    static const struct egress_listed none;

    if (sb->spec.network.mode == NETWORK_NONE)
        sandbox_op_on_connections(sb, &none, NULL);
    else
        sandbox_handle_connections(sb->handle, sandbox_op_on_connections, sb);
}

static void sandbox_op_start_acquire(struct sandbox *sb)
{
    struct sandbox_op op = *sb->ops;
    struct err err;

    if (sb->state == SANDBOX_STATE_PAUSED && sb->paused_by_idle) {
        sb->ops->in_progress = true;
        sandbox_handle_thaw(sb->handle, sandbox_op_on_thawed, sb);
        return;
    }
    sandbox_op_pop(sb);
    if (sb->state == SANDBOX_STATE_PAUSED) {
        err_set(&err, ERR_SANDBOX_PAUSED, "sandbox %s is paused; resume it first", sb->id);
        op.reply.on_acquired(op.reply.arg, NULL, &err);
    } else {
        sb->use_count++;
        op.reply.on_acquired(op.reply.arg, sb->handle, NULL);
    }
}

static void sandbox_op_begin(struct sandbox *sb, struct sandbox_op *op)
{
    bool paused = sb->state == SANDBOX_STATE_PAUSED;

    op->in_progress = true;
    switch (op->kind) {
    case SANDBOX_OP_PAUSE:
        if (paused)
            sb->paused_by_idle = sb->paused_by_idle && op->idle_initiated;
        if (paused)
            sandbox_op_commit(sb);
        else
            sandbox_handle_freeze(sb->handle, sandbox_op_on_frozen, sb);
        break;
    case SANDBOX_OP_RESUME:
        if (paused)
            sandbox_handle_thaw(sb->handle, sandbox_op_on_thawed, sb);
        else
            sandbox_op_commit(sb);
        break;
    case SANDBOX_OP_UPDATE:
        sandbox_op_start_update(sb, op);
        break;
    case SANDBOX_OP_USAGE:
        sandbox_handle_usage(sb->handle, sandbox_op_on_usage, sb);
        break;
    case SANDBOX_OP_CONNECTIONS:
        sandbox_op_start_connections(sb);
        break;
    case SANDBOX_OP_ACQUIRE:
        op->in_progress = false;
        sandbox_op_start_acquire(sb);
        break;
    }
}

static void sandbox_op_run_queue(struct sandbox *sb)
{
    while (sb->ops && !sb->ops->in_progress &&
           (sb->state == SANDBOX_STATE_RUNNING || sb->state == SANDBOX_STATE_PAUSED))
        sandbox_op_begin(sb, sb->ops);
    if (!sb->ops)
        sandbox_restart_idle_timer(sb);
}

static void sandbox_op_on_deferred(void *arg)
{
    sandbox_op_run_queue(arg);
}

static void sandbox_op_add(struct sandbox *sb, const struct sandbox_op *op)
{
    list_append(&sb->ops, (struct sandbox_op *)mem_copy(op, sizeof(*op)));
    ev_defer(sb->services->ev, &sb->ops_defer, sandbox_op_on_deferred, sb);
}

static void sandbox_op_submit(struct sandbox_services *s, const char *owner, const char *id,
                              const struct sandbox_op *op)
{
    struct sandbox *sb = sandbox_find_or_answer(s, owner, id, &(struct sandbox_lookup){ .reply = op->reply });

    if (!sb) {
        sandbox_update_free(op->update);
        return;
    }
    if (op->kind == SANDBOX_OP_ACQUIRE) /* the idle period ends now, not when the request begins */
        ev_timer_clear(s->ev, &sb->idle_timer);
    sandbox_op_add(sb, op);
}

void manager_pause(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    sandbox_op_submit(manager_sandbox_services(m), owner, id,
                      &(struct sandbox_op){ .kind = SANDBOX_OP_PAUSE, .reply = { done, .arg = arg } });
}

void manager_resume(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    sandbox_op_submit(manager_sandbox_services(m), owner, id,
                      &(struct sandbox_op){ .kind = SANDBOX_OP_RESUME, .reply = { done, .arg = arg } });
}

void manager_update(struct manager *m, const char *owner, const char *id, const struct sandbox_update *update,
                    store_sandbox_fn *done, void *arg)
{
    sandbox_op_submit(manager_sandbox_services(m), owner, id,
                      &(struct sandbox_op){ .kind = SANDBOX_OP_UPDATE,
                                            .update = sandbox_update_copy(update),
                                            .reply = { done, .arg = arg } });
}

void manager_sandbox_usage(struct manager *m, const char *owner, const char *id, sandbox_handle_usage_fn *done,
                           void *arg)
{
    sandbox_op_submit(manager_sandbox_services(m), owner, id,
                      &(struct sandbox_op){ .kind = SANDBOX_OP_USAGE, .reply = { .on_usage = done, .arg = arg } });
}

void manager_sandbox_connections(struct manager *m, const char *owner, const char *id,
                                 sandbox_handle_connections_fn *done, void *arg)
{
    sandbox_op_submit(
        manager_sandbox_services(m), owner, id,
        &(struct sandbox_op){ .kind = SANDBOX_OP_CONNECTIONS, .reply = { .on_connections = done, .arg = arg } });
}

static void sandbox_op_submit_acquire(struct sandbox_services *s, const char *owner, const char *id,
                                      manager_acquire_fn *done, void *arg)
{
    sandbox_op_submit(s, owner, id,
                      &(struct sandbox_op){ .kind = SANDBOX_OP_ACQUIRE, .reply = { .on_acquired = done, .arg = arg } });
}

void manager_acquire_sandbox(struct manager *m, const char *owner, const char *id, manager_acquire_fn *done, void *arg)
{
    sandbox_op_submit_acquire(manager_sandbox_services(m), owner, id, done, arg);
}

void sandbox_acquire_at_once(struct sandbox_services *s, const char *owner, const char *id, manager_acquire_fn *done,
                             void *arg)
{
    struct sandbox *sb = recovery_is_loaded(s->recovery) ? registry_find(s->registry, owner, id) : NULL;

    if (!sb || sb->state != SANDBOX_STATE_RUNNING || sb->ops) {
        sandbox_op_submit_acquire(s, owner, id, done, arg);
        return;
    }
    sb->use_count++;
    done(arg, sb->handle, NULL);
    sandbox_restart_idle_timer(sb);
}

void sandbox_release(struct sandbox *sb)
{
    if (sb->use_count == 0)
        return;
    sb->use_count--;
    sandbox_restart_idle_timer(sb);
}

void manager_release_sandbox(struct manager *m, const char *id)
{
    struct sandbox *sb = registry_find(manager_sandbox_services(m)->registry, STORE_ANY_OWNER, id);

    if (sb)
        sandbox_release(sb);
}

void manager_delete(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg)
{
    struct sandbox_lookup l = { .reply = { done, .arg = arg }, .include_ended = true };
    struct sandbox *sb = sandbox_find_or_answer(manager_sandbox_services(m), owner, id, &l);
    struct err why;

    if (!sb)
        return;
    struct sandbox_end_waiter *w = mem_new(struct sandbox_end_waiter);
    w->done = done;
    w->arg = arg;
    w->next = sb->end_waiters;
    sb->end_waiters = w;
    err_set(&why, ERR_SANDBOX_ENDED, "deleted on request");
    sb->delete_requested |= sb->state != SANDBOX_STATE_ENDING;
    sandbox_end(sb, ENDED_KILLED, &why);
}

/* --- idleness --- */

static void sandbox_on_idle(void *arg)
{
    struct sandbox *sb = arg;
    struct err why;
    char text[32];

    if (sb->spec.idle_action == IDLE_PAUSE) {
        sandbox_op_add(sb, &(struct sandbox_op){ .kind = SANDBOX_OP_PAUSE, .idle_initiated = true });
        return;
    }
    err_set(&why, ERR_TIMEOUT, "nothing ran in the sandbox for %s", str_ms(sb->spec.limits.v[LIMIT_IDLE], text));
    sandbox_end(sb, ENDED_IDLE, &why);
}

void sandbox_restart_idle_timer(struct sandbox *sb)
{
    struct ev *ev = sb->services->ev;
    uint64_t idle_ns = sb->spec.limits.v[LIMIT_IDLE] * NS_PER_MS;

    usage_meter_activity(sb->services->usage_meter, registry_count(sb->services->registry));
    if (idle_ns && sb->state == SANDBOX_STATE_RUNNING && !sb->nexecutions && !sb->use_count && !sb->ops)
        ev_timer_set(ev, &sb->idle_timer, ev_now(ev) + idle_ns, sandbox_on_idle, sb);
    else
        ev_timer_clear(ev, &sb->idle_timer);
}
