/* One sandbox from its creation to its tombstone.
 *
 *     CREATING -> RUNNING <-> PAUSED -> ENDING -> (row only)
 *
 * Requests between creation and end are in sandbox_ops.c.
 *
 * Invariants:
 * 1. The row is inserted before the sandbox is requested, so a kill leaves at most a row without a
 *    sandbox, never a sandbox without a row. The next manager ends such rows, and the jailer ends
 *    sandboxes that it was not asked to keep.
 * 2. `running` is reported only after the jailer has promised to keep the sandbox and the row is
 *    committed.
 * 3. A sandbox has one end, the first that was noticed. The end is reported when the sandbox is
 *    destroyed and the row is committed; if the store refuses, the commit is retried until it
 *    succeeds. */
#include "service/sandbox_internal.h"
#include "service/result.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <limits.h>
#include <stdio.h>

void sandbox_set_state(struct sandbox *sb, enum sandbox_state state)
{
    static const char *const names[] = { "loaded", "creating", "running", "paused", "ending" };

    log_debug("sandbox %s: %s -> %s", sb->id, names[sb->state], names[state]);
    sb->state = state;
}

void sandbox_ended_error(const struct sandbox *sb, struct err *ret)
{
    err_set(ret, ERR_SANDBOX_ENDED, "sandbox %s %s%s%s: %.140s", sb->id,
            sb->creation_failed ? "was not created" : "has ended (",
            sb->creation_failed ? "" : ended_by_name(sb->ended_by), sb->creation_failed ? "" : ")", sb->end_error.msg);
}

/* The sandbox has its own copy; keeping secrets here would only risk a leak. */
static void sandbox_free_env(struct sandbox *sb)
{
    spec_env_free(take_ptr(&sb->spec.env));
    sb->spec.nenv = 0;
}

/* --- the end --- */

static void sandbox_commit_end(void *arg);

void sandbox_answer_end_waiters(struct sandbox *sb, const struct err *err, const struct store_sandbox *row)
{
    while (sb->end_waiters) {
        struct sandbox_end_waiter *w = sb->end_waiters;

        sb->end_waiters = w->next;
        w->done(w->arg, err, row);
        free(w);
    }
}

static void sandbox_on_end_committed(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox *sb = arg;
    struct sandbox_services *s = sb->services;
    store_sandbox_fn *created = sb->on_created;

    if (err && err->id != ERR_MISSING && err->id != ERR_EXISTS) {
        log_error("cannot store the end of sandbox %s, will retry: %s", sb->id, err->msg);
        /* The sandbox is destroyed; only its row is not up to date yet. */
        sandbox_answer_end_waiters(sb, err, NULL);
        ev_timer_set(s->ev, &sb->retry_timer, ev_now(s->ev) + RETRY_NS, sandbox_commit_end, sb);
        return;
    }
    sb->on_created = NULL;
    if (created)
        created(sb->on_created_arg, &sb->end_error, NULL);
    sandbox_answer_end_waiters(sb, row ? NULL : &sb->end_error, row);
    if (sb->executions) { /* the store refused the end of an execution, which is retried */
        sb->is_end_committed = true;
        ev_timer_set(s->ev, &sb->retry_timer, ev_now(s->ev) + RETRY_NS, sandbox_commit_end, sb);
        return;
    }
    sandbox_notify_end(sb);
    sandbox_free(sb);
}

static void sandbox_commit_end(void *arg)
{
    struct sandbox *sb = arg;
    struct store_sandbox row = { .state = STORE_SANDBOX_ENDED,
                                 .ended_ms = sb->ended_ms,
                                 .cpu_us = sandbox_read_cpu_us(sb) };
    auto_free char *why = result_error_json(&sb->end_error);

    if (sb->handle && sandbox_handle_memory_peak(sb->handle) != SANDBOX_USAGE_UNKNOWN)
        row.usage_memory_peak = sandbox_handle_memory_peak(sb->handle);
    memcpy(row.id, sb->id, sizeof(row.id));
    row.ended_by = sb->creation_failed ? NULL : (char *)ended_by_name(sb->ended_by);
    row.why_json = why;
    store_sandbox_update(sb->services->store, sb->owner, &row, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED,
                         &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, sandbox_on_end_committed, sb);
    budget_span_stored(&sb->span);
}

static void sandbox_on_first_receipt_committed(void *arg UNUSED, const struct err *err,
                                               const struct store_execution *row UNUSED)
{
    if (err && err->id != ERR_MISSING)
        log_warn("cannot store a final receipt: %s", err->msg);
}

void sandbox_commit_first_receipt(struct sandbox *sb)
{
    auto_buf out = { 0 };
    struct jsonw w;
    struct store_execution row = { 0 };

    if (!sb->first_exec || !exec_handle_receipt(sb->first_exec)->final)
        return;
    jsonw_init(&w, &out, 0);
    struct receipt final = *exec_handle_receipt(sb->first_exec);
    final.ended_by = sb->first_exec_ended_by;
    receipt_json(&final, &w);
    memcpy(row.id, sb->first_execution_id, sizeof(row.id));
    row.receipt_json = out.data;
    store_execution_update(sb->services->store, sb->owner, &row, STORE_EXECUTION_SET_RECEIPT, NULL,
                           sandbox_on_first_receipt_committed, NULL);
}

static void sandbox_finish_end(struct sandbox *sb)
{
    auto_buf body = { 0 };
    struct err err;

    sb->is_destroyed = true;
    sandbox_end_executions(sb);
    sandbox_commit_first_receipt(sb);
    sandbox_ended_error(sb, &err);
    contexts_fail_waiters(sb, &err);
    sandbox_fail_ops(sb, &err);
    if (!sb->creation_failed) {
        sb->services->stats->ended[sb->ended_by]++;
        buf_addf(&body, "\"endedBy\":\"%s\"", ended_by_name(sb->ended_by));
    }
    if (sb->row_inserted)
        sandbox_append_event(sb, "sandbox_ended", NULL, body.data);
    if (!sb->creation_failed && !sb->delete_requested && sb->services->on_end)
        sb->services->on_end(sb->services->on_end_arg, sb->id, sb->owner, sb->ended_by, &sb->end_error);
    executions_flush_acknowledged(sb->services->executions); /* the ends of its executions are committed first */
    sandbox_commit_end(sb);
}

static void sandbox_on_destroyed(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;

    if (err && err->id != ERR_MISSING && err->id != ERR_LOST)
        log_warn("sandbox %s: %s", sb->id, err->msg);
    sandbox_finish_end(sb);
}

void sandbox_end(struct sandbox *sb, enum ended_by by, const struct err *why)
{
    bool made = sb->handle != NULL && !sb->is_destroyed;

    if (sb->state == SANDBOX_STATE_ENDING)
        return;
    sandbox_set_state(sb, SANDBOX_STATE_ENDING);
    sb->ended_by = by;
    sb->end_error = *why;
    sb->ended_ms = clock_real_ms();
    sandbox_source_finish(&sb->source, false);
    sandbox_free_env(sb);
    if (sb->creation_failed)
        budget_span_cancel(sb->quota, &sb->span);
    else
        budget_span_end(sb->services->budgets, sb->quota, &sb->span, sb->ended_ms);
    (void)sandbox_read_cpu_us(sb); /* used if the counter cannot be read at the end */
    ev_timer_clear(sb->services->ev, &sb->idle_timer);
    fair_queue_release(&sb->create_slot);
    if (made)
        sandbox_handle_destroy(sb->handle, sandbox_on_destroyed, sb);
    else
        sandbox_finish_end(sb);
}

void sandbox_end_suspended(struct sandbox *sb)
{
    struct err why;

    err_set(&why, ERR_TENANT_SUSPENDED, "its tenant, %s, was suspended or removed", sb->quota->tenant);
    sandbox_end(sb, ENDED_KILLED, &why);
}

/* --- creation --- */

/* A sandbox that was never created has a reason but no endedBy. If the jailer was lost meanwhile,
 * the sandbox counts as lost. */
static void sandbox_fail_create(struct sandbox *sb, const struct err *err)
{
    sb->services->stats->create_failed++;
    if (sb->state != SANDBOX_STATE_ENDING)
        sb->creation_failed = err->id != ERR_LOST;
    sandbox_end(sb, ENDED_LOST, err); /* answers the caller */
}

static void sandbox_count_start_time(const struct sandbox *sb)
{
    size_t nruntimes, at = 0;
    const struct language *all = languages_all(&nruntimes);
    uint64_t ns = ev_now(sb->services->ev) - sb->create_began_ns;

    while (at < nruntimes && !str_eq(all[at].name, sb->spec.runtime))
        at++;
    if (at == nruntimes || at >= MANAGER_LANGUAGES_MAX)
        return;
    histogram_add(&sb->services->stats->starts[at][sb->source.loan.result == POOL_HIT], ns);
}

static void sandbox_on_running_committed(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox *sb = arg;
    store_sandbox_fn *created = sb->on_created;

    if (err) {
        sandbox_fail_create(sb, err);
        return;
    }
    sb->on_created = NULL;
    sb->services->stats->created++;
    sandbox_count_start_time(sb);
    sandbox_append_event(sb, "sandbox_created", NULL, NULL);
    if (created)
        created(sb->on_created_arg, NULL, row);
    sandbox_restart_idle_timer(sb);
}

static void sandbox_create_step(struct sandbox *sb)
{
    struct store_sandbox row = { .state = STORE_SANDBOX_RUNNING };

    if (sb->state != SANDBOX_STATE_CREATING || !sb->row_inserted || !sb->kept_by_jailer)
        return;
    fair_queue_release(&sb->create_slot);
    sandbox_set_state(sb, SANDBOX_STATE_RUNNING);
    sb->expires_ms = clock_real_ms() + sb->spec.limits.v[LIMIT_LIFETIME];
    sb->expires_mono_ms = sandbox_mono_ms(sb) + sb->spec.limits.v[LIMIT_LIFETIME];
    sandbox_fill_spec_row(sb, &row);
    row.expires_ms = sb->expires_ms;
    store_sandbox_update(sb->services->store, sb->owner, &row,
                         STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_EXPIRES | STORE_SANDBOX_SET_SPEC,
                         &(struct store_condition){ .states = STORE_BIT(STORE_SANDBOX_CREATING) },
                         sandbox_on_running_committed, sb);
    free(row.spec_json);
}

static void sandbox_on_row_inserted(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;

    if (err) {
        sandbox_fail_create(sb, err);
        return;
    }
    sb->row_inserted = true;
    sandbox_create_step(sb);
}

static void sandbox_on_kept_by_jailer(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;

    if (sb->state != SANDBOX_STATE_CREATING)
        return;
    if (err) {
        sandbox_fail_create(sb, err);
        return;
    }
    sb->kept_by_jailer = true;
    sandbox_create_step(sb);
}

static void sandbox_on_ready(void *arg)
{
    struct sandbox *sb = arg;

    if (sb->state == SANDBOX_STATE_LOADED) {
        recovery_sandbox_ready(sb->services->recovery, sb);
        return;
    }
    sandbox_handle_keep(sb->handle, sandbox_on_kept_by_jailer, sb);
    sandbox_source_finish(&sb->source, true);
    sandbox_free_env(sb);
}

bool sandbox_lifetime_expired(const struct sandbox *sb, uint64_t slack_ms)
{
    return sb->expires_mono_ms ? sandbox_mono_ms(sb) + slack_ms >= sb->expires_mono_ms
                               : clock_real_ms() + slack_ms >= sb->expires_ms;
}

static void sandbox_on_failed(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;
    bool loaded = sb->state == SANDBOX_STATE_LOADED, late = loaded && sandbox_lifetime_expired(sb, 0);
    struct err why = *err;

    if (sb->state == SANDBOX_STATE_CREATING && sb->services->supply->engine &&
        sandbox_source_member_died(&sb->source, err)) {
        /* The new sandbox has the id of the member, which may be stored already. */
        if (sandbox_source_replace(&sb->source, &why) < 0)
            sandbox_fail_create(sb, &why);
        return;
    }
    if (loaded && err->id == ERR_MISSING && late)
        err_set(&why, ERR_TIMEOUT, "its lifetime ended while the server was down");
    else if (loaded && err->id == ERR_MISSING)
        err_set(&why, ERR_LOST, "it ended while the server was down");
    sb->is_destroyed = true;
    if (!loaded) {
        sandbox_fail_create(sb, &why);
        return;
    }
    sandbox_end(sb, late ? ENDED_LIFETIME : ENDED_LOST, &why);
    recovery_sandbox_resolved(sb->services->recovery);
}

static void sandbox_on_ended(void *arg, const struct err *why)
{
    struct sandbox *sb = arg;
    enum ended_by by = sandbox_handle_ended_by(sb->handle);
    bool loaded = sb->state == SANDBOX_STATE_LOADED;

    /* The jailer enforces the same deadline, for the time when the server is down, and may notice
     * it first. */
    if (by == ENDED_LOST && sb->expires_ms && sandbox_lifetime_expired(sb, 50))
        by = ENDED_LIFETIME;
    sandbox_end(sb, by, why);
    if (loaded)
        recovery_sandbox_resolved(sb->services->recovery);
}

static void sandbox_on_secret_used(void *arg, const char *name, const char *host, uint32_t count)
{
    const struct sandbox *sb = arg;

    sandbox_supply_secret_used(sb->services->supply, sb->owner, sb->id, name, host, count);
}

const struct sandbox_handle_ops sandbox_engine_ops = { .on_ready = sandbox_on_ready,
                                                       .on_failed = sandbox_on_failed,
                                                       .on_ended = sandbox_on_ended,
                                                       .on_secret_used = sandbox_on_secret_used };

/* If no CPU can be chosen the set stays unchanged, and the jailer refuses CPUs that this host does
 * not have. */
static void sandbox_pin_cpus(struct sandbox *sb)
{
    uint64_t *set = &sb->spec.limits.v[LIMIT_CPUSET];
    uint64_t pins = registry_choose_cpus(sb->services->registry, sb->spec.limits.v[LIMIT_CPU], *set);

    if (!pins)
        return;
    *set = pins;
    registry_pin_cpus(sb->services->registry, sb, pins);
}

static void sandbox_insert_row(struct sandbox *sb)
{
    struct store_sandbox row = { .state = STORE_SANDBOX_CREATING, .created_ms = sb->created_ms };
    auto_free char *metadata = spec_metadata_json(&sb->spec);

    sandbox_fill_spec_row(sb, &row);
    memcpy(row.owner, sb->owner, sizeof(row.owner));
    row.name = sb->spec.name[0] ? sb->spec.name : NULL;
    row.template = sb->template;
    row.runtime = sb->spec.runtime;
    row.level = (char *)level_name(sb->spec.level);
    row.metadata_json = metadata;
    row.created_by = sb->spec.created_by[0] ? sb->spec.created_by : NULL;
    store_sandbox_insert(sb->services->store, &row,
                         sb->quota->limit[STORE_QUOTA_SANDBOXES] ? 0 : sb->services->live_max, sandbox_on_row_inserted,
                         sb);
    free(row.spec_json);
}

static int sandbox_create_check(const struct sandbox_services *s, const struct spec *spec, const char *template,
                                struct err *err)
{
    const struct language *rt = language_by_name(spec->runtime);
    char path[PATH_MAX];
    const char *why;

    if (!recovery_is_ready(s->recovery, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    return rt ? drivers_ops(spec->driver)->find_language(template ? template : "", rt, path, sizeof(path), err)
              : language_unknown_error("runtime", spec->runtime, err);
}

/* The sandbox has acquired its slot, or failed to. */
static void sandbox_on_create_slot(void *arg, const struct err *failed)
{
    struct sandbox *sb = arg;
    struct sandbox_services *s = sb->services;
    struct err err = { 0 };

    if (!failed && !jailer_link_engine(s->jailer_link))
        /* The jailer was lost while this sandbox waited. */
        failed = (err_set(&err, ERR_BUSY, "%s", jailer_link_why_lost(s->jailer_link)), &err);
    if (failed) {
        sandbox_fail_create(sb, failed);
        return;
    }
    if (sb->spec.cpu_pinning)
        sandbox_pin_cpus(sb);
    sb->source = (struct sandbox_source){ .supply = s->supply,
                                          .spec = &sb->spec,
                                          .tenant = sb->owner,
                                          .id = sb->id,
                                          .handle = &sb->handle,
                                          .ops = &sandbox_engine_ops,
                                          .arg = sb };
    if (!sb->id_chosen_by_caller) /* a member already has an id */
        sandbox_source_take(&sb->source, NULL);
    if (sb->handle)
        registry_rename(s->registry, sb, sandbox_handle_id(sb->handle));
    if (sb->on_id_assigned)
        sb->on_id_assigned(sb->on_created_arg, sb->id);
    sandbox_insert_row(sb);
    if (sandbox_source_start(&sb->source, &err) < 0)
        sandbox_fail_create(sb, &err);
}

void manager_create(struct manager *m, const char *owner, const char *id, struct spec *spec, const char *template,
                    manager_id_assigned_fn *named, store_sandbox_fn *done, void *arg)
{
    struct sandbox_services *s = manager_sandbox_services(m);
    struct err err = { 0 };
    char fresh[ID_SIZE]; /* used unless a pool member provides the id */
    uint64_t amounts[STORE_QUOTA_COUNT];

    quota_amounts_for_spec(spec, amounts);
    if (id && registry_find(s->registry, STORE_ANY_OWNER, id))
        err_set(&err, ERR_IDEMPOTENCY, "sandbox %s is being created already", id);
    if (err.id || sandbox_create_check(s, spec, template, &err) < 0 ||
        budget_check(s->budgets, tenant_quotas_get(s->quotas, owner), false, &err) < 0 ||
        quota_reserve(tenant_quotas_get(s->quotas, owner), amounts, &err) < 0) {
        spec_done(spec);
        s->stats->create_failed++;
        sandbox_refuse(s, &(struct sandbox_reply){ done, .arg = arg }, &err);
        return;
    }
    if (!id)
        id_new("sb", fresh);
    struct sandbox *sb = sandbox_new(s, id ? id : fresh, owner);
    spec_done(&sb->spec);
    sb->spec = *spec;
    *spec = (struct spec){ 0 };
    sandbox_set_state(sb, SANDBOX_STATE_CREATING);
    sb->id_chosen_by_caller = id != NULL && !named;
    sb->on_id_assigned = named;
    sb->created_ms = clock_real_ms();
    budget_span_begin(sb->quota, &sb->span, sb->created_ms);
    sb->create_began_ns = ev_now(s->ev);
    sb->on_created = done;
    sb->on_created_arg = arg;
    sb->template = template ? str_dup(template) : NULL;
    memcpy(sb->quota_reserved, amounts, sizeof(amounts));
    fair_queue_acquire(&s->create_queue, &sb->quota->create_line, &sb->create_slot, sandbox_on_create_slot, sb);
}
