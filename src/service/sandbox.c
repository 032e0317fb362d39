/* A sandbox as an object in memory, and its stored state. */
#include "service/sandbox_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

uint64_t sandbox_mono_ms(const struct sandbox *sb)
{
    return ev_now(sb->services->ev) / NS_PER_MS;
}

struct sandbox *sandbox_new(struct sandbox_services *s, const char *id, const char *owner)
{
    struct sandbox *sb = mem_new(struct sandbox);

    sb->services = s;
    (void)str_copy(sb->id, sizeof(sb->id), id);
    (void)str_copy(sb->owner, sizeof(sb->owner), owner);
    spec_init(&sb->spec);
    sb->quota = tenant_quotas_get(s->quotas, owner);
    registry_add(s->registry, sb);
    return sb;
}

void sandbox_free(struct sandbox *sb)
{
    struct sandbox_services *s = sb->services;

    for (struct sandbox_subscription *a = sb->subscriptions; a; a = a->next)
        a->sandbox = NULL;
    fair_queue_release(&sb->create_slot);
    quota_release(sb->quota, sb->quota_reserved);
    budget_span_cancel(sb->quota, &sb->span);
    contexts_free(sb);
    sandbox_free_executions(sb);
    ev_timer_clear(s->ev, &sb->idle_timer);
    ev_timer_clear(s->ev, &sb->retry_timer);
    ev_defer_clear(s->ev, &sb->ops_defer);
    exec_handle_free(sb->first_exec);
    sandbox_handle_free(sb->handle);
    while (sb->ops) {
        struct sandbox_op *op = sb->ops;

        sb->ops = op->next;
        sandbox_op_free(op);
    }
    while (sb->end_waiters) {
        struct sandbox_end_waiter *w = sb->end_waiters;

        sb->end_waiters = w->next;
        free(w);
    }
    spec_done(&sb->spec);
    free(sb->template);
    registry_remove(s->registry, sb);
    free(sb);
}

bool manager_sandbox_is_live(const struct manager *m, const char *owner, const char *id)
{
    const struct sandbox_services *s = manager_sandbox_services(m);
    const struct sandbox *sb = registry_find(s->registry, owner, id);

    return sb ? sb->state != SANDBOX_STATE_ENDING : !recovery_is_loaded(s->recovery);
}

const char *manager_sandbox_owner(const struct manager *m, const char *sandbox)
{
    const struct sandbox *sb = registry_find(manager_sandbox_services(m)->registry, STORE_ANY_OWNER, sandbox);

    return sb ? sb->owner : NULL;
}

void sandbox_fail_callers(struct sandbox *sb, const struct err *why)
{
    store_sandbox_fn *created = sb->on_created;

    sb->on_created = NULL;
    if (created)
        created(sb->on_created_arg, why, NULL);
    sandbox_answer_end_waiters(sb, why, NULL);
    sandbox_fail_ops(sb, why);
    contexts_fail_waiters(sb, why);
    sandbox_fail_execution_callers(sb, why);
}

/* --- stored state --- */

/* Limits that executions of an adopted sandbox still use. */
static const enum limit sandbox_stored_limits[] = { LIMIT_OUTPUT, LIMIT_CPU_TIME };

static char *sandbox_stored_json(const struct sandbox *sb)
{
    uint64_t cpus = sb->spec.limits.v[LIMIT_CPUSET];
    char text[LIMIT_TEXT];
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "spec");
    jsonw_object(&w);
    spec_json(&sb->spec, &w);
    jsonw_end_object(&w);
    /* Also limits that a request cannot set: they come from a policy or the operator limits. */
    jsonw_key(&w, "limits");
    jsonw_object(&w);
    for (size_t i = 0; i < ARRAY_LEN(sandbox_stored_limits); i++)
        jsonw_ku64(&w, limit_info(sandbox_stored_limits[i])->name, sb->spec.limits.v[sandbox_stored_limits[i]]);
    if (cpus)
        jsonw_kstr(&w, limit_info(LIMIT_CPUSET)->name, limit_print(LIMIT_CPUSET, cpus, text));
    jsonw_end_object(&w);
    jsonw_ku64(&w, "expiresMonoMs", sb->expires_mono_ms);
    jsonw_ku64(&w, "pausedMs", sb->paused_total_ms);
    jsonw_ku64(&w, "pausedAtMonoMs", sb->paused_at_ms);
    jsonw_kbool(&w, "pausedByIdle", sb->paused_by_idle);
    contexts_json(sb, &w);
    jsonw_end_object(&w);
    return out.data;
}

void sandbox_fill_spec_row(const struct sandbox *sb, struct store_sandbox *row)
{
    memcpy(row->id, sb->id, sizeof(row->id));
    row->spec_json = sandbox_stored_json(sb);
    row->memory_bytes = sb->spec.limits.v[LIMIT_MEMORY];
    row->storage_bytes = sb->spec.limits.v[LIMIT_WORKSPACE];
}

static int sandbox_parse_stored_json(const char *text, struct sandbox *sb, struct spec *spec, struct err *err)
{
    auto_json *root = NULL;
    json_t *inner = NULL, *limits = NULL;
    const char *cpus = NULL;

    if (!text)
        return err_set(err, ERR_STORE_CORRUPT, "the row has no spec");
    if (json_input_parse(text, strlen(text), &root, err) < 0 || json_input_object(root, "", "spec", &inner, err) < 0)
        return -1;
    if (!inner)
        return err_set(err, ERR_STORE_CORRUPT, "the row has no spec");
    if (spec_read(spec, inner, SPEC_OF_SANDBOX, NULL, err) < 0 || spec_finish(spec, err) < 0 ||
        json_input_object(root, "", "limits", &limits, err) < 0)
        return -1;
    for (size_t i = 0; limits && i < ARRAY_LEN(sandbox_stored_limits); i++)
        if (json_input_u64(limits, "limits.", limit_info(sandbox_stored_limits[i])->name, 0, UINT64_MAX,
                           &spec->limits.v[sandbox_stored_limits[i]], NULL, err) < 0)
            return -1;
    if (limits && json_input_text(limits, "limits.", limit_info(LIMIT_CPUSET)->name, 1, LIMIT_TEXT, &cpus, err) < 0)
        return -1;
    if (cpus && limit_parse(LIMIT_CPUSET, cpus, &spec->limits.v[LIMIT_CPUSET], err) < 0)
        return -1;
    spec_env_free(take_ptr(&spec->env)); /* a policy names variables; their values are in the sandbox already */
    spec->nenv = 0;
    if (!sb)
        return 0;
    if (json_input_u64(root, "", "expiresMonoMs", 0, UINT64_MAX, &sb->expires_mono_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "pausedMs", 0, UINT64_MAX, &sb->paused_total_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "pausedAtMonoMs", 0, UINT64_MAX, &sb->paused_at_ms, NULL, err) < 0 ||
        contexts_read(sb, root, err) < 0)
        return -1;
    return json_input_bool(root, "", "pausedByIdle", &sb->paused_by_idle, err);
}

int sandbox_read_stored_json(struct sandbox *sb, const char *text, struct err *err)
{
    return sandbox_parse_stored_json(text, sb, &sb->spec, err);
}

int manager_read_stored_spec(const struct store_sandbox *row, struct spec *ret, struct err *err)
{
    spec_init(ret);
    if (sandbox_parse_stored_json(row->spec_json, NULL, ret, err) == 0)
        return 0;
    spec_done(ret);
    return err_wrap(err, "the row of sandbox %s", row->id);
}

static void sandbox_on_event_appended(void *arg UNUSED, const struct err *err, uint64_t seq UNUSED)
{
    if (err)
        log_warn("cannot store an event: %s", err->msg);
}

void sandbox_append_event(struct sandbox *sb, const char *kind, const char *execution, const char *body_json)
{
    auto_buf body = { 0 };
    struct store_event row = { .at_ms = clock_real_ms(), .kind = (char *)kind };

    str_copy(row.owner, sizeof(row.owner), sb->owner);
    str_copy(row.sandbox, sizeof(row.sandbox), sb->id);
    if (execution)
        buf_addf(&body, "{\"executionId\":\"%s\"%s%s}", execution, body_json ? "," : "", body_json ? body_json : "");
    else
        buf_addf(&body, "{%s}", body_json ? body_json : "");
    row.body_json = body.data;
    store_event_append(sb->services->store, &row, sandbox_on_event_appended, NULL);
}
