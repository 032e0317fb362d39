/* The table of live sandboxes.
 *
 * Only live sandboxes are in memory; ended ones are in the store. A sandbox enters the table when
 * its creation begins or when it is loaded, and leaves it when its end is committed, so for any id
 * the table and the store together give one answer. */
#include "service/context_internal.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>

#define QUEUE_MAX_WAIT_NS (60 * NS_PER_S)
/* Many times the usual duration; limits how long a hanging request delays others. */
#define CREATE_MAX_HOLD_NS (2 * NS_PER_S)
#define START_MAX_HOLD_NS (1 * NS_PER_S)

uint64_t manager_mono_ms(const struct manager *m)
{
    return ev_now(m->ev) / NS_PER_MS;
}

/* --- the table --- */

static struct sandbox **sandbox_bucket(const struct manager *m, const char *id)
{
    return (struct sandbox **)&m->sandboxes[hash_str(HASH_INIT, id) % SANDBOX_BUCKETS];
}

struct sandbox *sandbox_find(const struct manager *m, const char *owner, const char *id)
{
    struct sandbox *sb = *sandbox_bucket(m, id);

    while (sb && !str_eq(sb->id, id))
        sb = sb->next;
    return sb && (str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner)) ? sb : NULL;
}

bool manager_sandbox_is_live(const struct manager *m, const char *owner, const char *id)
{
    const struct sandbox *sb = sandbox_find(m, owner, id);

    return sb ? sb->state != SANDBOX_STATE_ENDING : !m->loaded;
}

const char *manager_sandbox_owner(const struct manager *m, const char *sandbox)
{
    const struct sandbox *sb = sandbox_find(m, STORE_ANY_OWNER, sandbox);

    return sb ? sb->owner : NULL;
}

struct sandbox *sandbox_new(struct manager *m, const char *id, const char *owner)
{
    struct sandbox *sb = mem_new(struct sandbox);
    struct sandbox **p = sandbox_bucket(m, id);

    sb->manager = m;
    (void)str_copy(sb->id, sizeof(sb->id), id);
    (void)str_copy(sb->owner, sizeof(sb->owner), owner);
    spec_init(&sb->spec);
    sb->quota = tenant_quotas_get(m->quotas, owner);
    sb->next = *p;
    *p = sb;
    m->nsandboxes++;
    return sb;
}

static void sandbox_unlist(struct sandbox *sb)
{
    list_remove(sandbox_bucket(sb->manager, sb->id), sb);
}

void sandbox_set_id(struct sandbox *sb, const char *id)
{
    sandbox_unlist(sb);
    (void)str_copy(sb->id, sizeof(sb->id), id);
    struct sandbox **p = sandbox_bucket(sb->manager, id);
    sb->next = *p;
    *p = sb;
}

void sandbox_set_pinned_cpus(struct sandbox *sb, uint64_t pins)
{
    sb->pinned_cpus = pins;
    for (unsigned i = 0; i < 64; i++)
        sb->manager->pinned_per_cpu[i] += pins >> i & 1;
}

void sandbox_free(struct sandbox *sb)
{
    struct manager *m = sb->manager;

    sandbox_unlist(sb);
    m->nsandboxes--;
    for (unsigned i = 0; i < 64; i++)
        if (sb->pinned_cpus >> i & 1)
            m->pinned_per_cpu[i]--;
    ev_timer_clear(m->ev, &sb->idle_timer);
    ev_timer_clear(m->ev, &sb->retry_timer);
    ev_defer_clear(m->ev, &sb->ops_defer);
    for (struct sandbox_subscription *a = sb->subscriptions; a; a = a->next)
        a->sandbox = NULL;
    fair_queue_release(&sb->create_slot);
    quota_release(sb->quota, sb->quota_reserved);
    budget_span_cancel(sb->quota, &sb->span);
    while (sb->contexts)
        context_free(sb->contexts);
    while (sb->executions)
        execution_free(sb->executions);
    exec_handle_free(sb->first_exec);
    sandbox_handle_free(sb->handle);
    while (sb->ops) {
        struct sandbox_op *op = sb->ops;

        sb->ops = op->next;
        free(op);
    }
    while (sb->end_waiters) {
        struct sandbox_end_waiter *w = sb->end_waiters;

        sb->end_waiters = w->next;
        free(w);
    }
    spec_done(&sb->spec);
    free(sb->template);
    free(sb);
    if (m->nsandboxes == 0 && m->on_empty)
        m->on_empty(m->on_empty_arg);
}

/* --- stored state --- */

char *manager_error_json(const struct err *why)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "code", err_info(why->id)->code);
    jsonw_kstr(&w, "message", why->msg);
    jsonw_end_object(&w);
    return out.data;
}

/* Limits that executions of an adopted sandbox still use. */
static const enum limit manager_stored_limits[] = { LIMIT_OUTPUT, LIMIT_CPU_TIME };

char *sandbox_stored_json(const struct sandbox *sb)
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
    for (size_t i = 0; i < ARRAY_LEN(manager_stored_limits); i++)
        jsonw_ku64(&w, limit_info(manager_stored_limits[i])->name, sb->spec.limits.v[manager_stored_limits[i]]);
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
    for (size_t i = 0; limits && i < ARRAY_LEN(manager_stored_limits); i++)
        if (json_input_u64(limits, "limits.", limit_info(manager_stored_limits[i])->name, 0, UINT64_MAX,
                           &spec->limits.v[manager_stored_limits[i]], NULL, err) < 0)
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

static void manager_on_event_appended(void *arg UNUSED, const struct err *err, uint64_t seq UNUSED)
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
    store_event_append(sb->manager->store, &row, manager_on_event_appended, NULL);
}

/* --- the jailer --- */

static void manager_on_jailer_connected(void *arg)
{
    struct manager *m = arg;

    m->supply.engine = jailer_link_engine(m->jailer_link);
    if (m->loaded)
        recovery_adopt_all(m);
}

static void manager_on_jailer_lost(void *arg)
{
    struct manager *m = arg;

    m->supply.engine = NULL;
    pools_set_engine(m->pools, NULL);
}

bool manager_ready(const struct manager *m, const char **ret_why)
{
    const char *why = NULL;

    if (!jailer_link_engine(m->jailer_link))
        why = jailer_link_why_lost(m->jailer_link);
    else if (!m->loaded)
        why = m->load_error[0] ? m->load_error : "the store is still being read";
    else if (m->nadopting > 0)
        why = "the sandboxes of the previous server are still being adopted";
    if (ret_why)
        *ret_why = why;
    return why == NULL;
}

void manager_stats(const struct manager *m, struct manager_stats *ret)
{
    *ret = m->stats;
    ret->reconnects = jailer_link_connections(m->jailer_link);
    ret->running = ret->paused = ret->executing = 0;
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (const struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next) {
            ret->running += sb->state == SANDBOX_STATE_RUNNING;
            ret->paused += sb->state == SANDBOX_STATE_PAUSED;
            ret->executing += sandbox_running_executions(sb);
        }
}

void manager_set_tenant(struct manager *m, const struct store_tenant *row)
{
    tenant_quotas_set(m->quotas, row);
}

bool manager_tenant_is_suspended(struct manager *m, const char *tenant)
{
    return tenant_quotas_get(m->quotas, tenant)->is_suspended;
}

void manager_tenant_quota_used(struct manager *m, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT])
{
    struct tenant_quota *q = tenant_quotas_get(m->quotas, tenant);

    memcpy(ret, q->used, sizeof(q->used));
    ret[STORE_QUOTA_EXECUTIONS] = quota_executions_last_hour(q, quota_now_ms(m->ev));
}

static const struct budgets_ops manager_budgets_ops = { .read_cpu = live_usage_read_cpu,
                                                        .commit_usage = live_usage_commit,
                                                        .stop = tenant_stop_over_budget,
                                                        .on_renewed = tenant_budget_renewed,
                                                        .now_ms = clock_real_ms };

void manager_set_budget(struct manager *m, const struct store_budget *row)
{
    budgets_set(m->budgets, row);
}

bool manager_get_budget(struct manager *m, const char *owner, struct manager_budget *ret)
{
    return budgets_get(m->budgets, owner, ret);
}

void manager_gc(struct manager *m, const struct store_retention *keep, bool strays, manager_gc_fn *done, void *arg)
{
    retention_run(m->retention, keep, strays, done, arg);
}

/* --- creation and end --- */

int manager_new(struct ev *ev, const struct manager_settings *set, struct manager **ret, struct err *err)
{
    struct output_dir *dir;

    if (output_dir_new(set->output_dir, &dir, err) < 0)
        return -1;
    struct manager *m = mem_new(struct manager);
    m->ev = ev;
    m->settings = *set;
    m->settings.output_dir = NULL;
    m->store = set->store;
    m->pending_commits_last = &m->pending_commits;
    m->output_dir = dir;
    m->retention = retention_new(m->store, dir);
    m->quotas = tenant_quotas_new(ev, m->store, tenant_stop_suspended, m);
    m->usage_meter = usage_meter_new(ev, live_usage_sample, m);
    m->ephemeral_usage = usage_batch_new(ev, m->store);
    m->jailer_link = jailer_link_new(ev, &(struct jailer_link_ops){ .connect = set->connect,
                                                                    .connect_arg = set->arg,
                                                                    .on_connected = manager_on_jailer_connected,
                                                                    .on_lost = manager_on_jailer_lost,
                                                                    .arg = m });
    m->pools = set->pools ? set->pools : pools_new(ev);
    m->supply = (struct sandbox_supply){ .ev = ev,
                                         .pools = m->pools,
                                         .hidden_dir = output_dir_fd(m->output_dir),
                                         .required_limits = set->required_limits,
                                         .require_all_walls = set->require_all_walls };
    assert(set->executions_max && set->creating_max && set->starting_max);
    fair_queue_init(&m->create_queue, ev, set->creating_max, QUEUE_MAX_WAIT_NS, CREATE_MAX_HOLD_NS);
    fair_queue_init(&m->start_queue, ev, set->starting_max, QUEUE_MAX_WAIT_NS, START_MAX_HOLD_NS);
    *ret = m;
    m->budgets = budgets_new(ev, m->store, m->quotas, &manager_budgets_ops, m);
    m->end_journal = end_journal_new(ev, m->store, set->sync_full ? -1 : output_dir_fd(m->output_dir));
    recovery_start(m);
    jailer_link_start(m->jailer_link);
    return 0;
}

void manager_end_all(struct manager *m, const struct err *why, void (*done)(void *arg), void *arg)
{
    size_t n = 0;
    struct sandbox **all = mem_new_array(struct sandbox *, m->nsandboxes + 1);

    m->on_empty = done;
    m->on_empty_arg = arg;
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        sandbox_end(all[i], ENDED_KILLED, why);
    free(all);
    if (n == 0)
        done(arg);
}

static void manager_fail_execution_caller(struct execution *ex, const struct err *why)
{
    store_execution_fn *done = ex->done;

    ex->done = NULL;
    if (done)
        done(ex->done_arg, why, NULL);
}

static void manager_fail_sandbox_callers(struct sandbox *sb, const struct err *why)
{
    store_sandbox_fn *created = sb->on_created;

    sb->on_created = NULL;
    if (created)
        created(sb->on_created_arg, why, NULL);
    sandbox_answer_end_waiters(sb, why, NULL);
    sandbox_fail_ops(sb, why);
    contexts_fail_waiters(sb, why);
    for (struct execution *ex = sb->executions; ex; ex = ex->next)
        manager_fail_execution_caller(ex, why);
}

void manager_finish(struct manager *m)
{
    struct err why;

    if (!m)
        return;
    sandbox_refusals_report_all(m);
    err_set(&why, ERR_BUSY, "the server is stopping; programs in sandboxes keep running");
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            manager_fail_sandbox_callers(sb, &why);
}

/* The engine is freed first: without it, freeing an execution kills nothing. */
void manager_free(struct manager *m)
{
    if (!m)
        return;
    m->on_empty = NULL;
    ev_defer_clear(m->ev, &m->flush_defer);
    pools_set_engine(m->pools, NULL);
    jailer_link_free(m->jailer_link);
    if (!m->settings.pools)
        pools_free(m->pools);
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        while (m->sandboxes[i])
            sandbox_free(m->sandboxes[i]);
    sandbox_refusals_free(m);
    ephemeral_sandboxes_free(m);
    usage_batch_free(m->ephemeral_usage);
    fair_queue_done(&m->create_queue);
    fair_queue_done(&m->start_queue);
    budgets_free(m->budgets);
    tenant_quotas_free(m->quotas);
    end_journal_free(m->end_journal);
    retention_free(m->retention);
    output_dir_free(m->output_dir);
    usage_meter_free(m->usage_meter); /* only now: freeing a sandbox uses it */
    free(m);
}
