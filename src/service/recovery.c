/* Recovery: a new server reconciles the live rows of the store with the sandboxes of the jailer.
 *
 * It reads the tenants, then the live rows of sandboxes, then those of executions. As soon as the
 * jailer is connected, each sandbox is adopted under its own id. A sandbox that the jailer does not
 * know has ended meanwhile, and its end is committed. A sandbox of the jailer without a row was
 * being created or removed when the previous server died, and is destroyed.
 *
 * A frozen sandbox cannot answer, so each sandbox is thawed for its adoption, even if its row does
 * not say "paused": the previous server may have crashed between freezing the sandbox and
 * committing the state. */
#include "service/sandbox_internal.h"
#include "service/bound_secrets.h"
#include "service/result.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/output_dir.h"

#include <stdio.h>
#include <string.h>

struct recovery {
    struct sandbox_services *services;
    struct output_dir *output_dir;
    bool loaded;          /* all live rows of the store are loaded */
    size_t nadopting;     /* sandboxes still to be adopted */
    char load_error[160]; /* why the rows cannot be loaded; "": no error */
};

struct recovery *recovery_new(struct sandbox_services *services, struct output_dir *output_dir)
{
    struct recovery *r = mem_new(struct recovery);

    r->services = services;
    r->output_dir = output_dir;
    return r;
}

void recovery_free(struct recovery *r)
{
    free(r);
}

bool recovery_is_loaded(const struct recovery *r)
{
    return r->loaded;
}

bool recovery_is_ready(const struct recovery *r, const char **ret_why)
{
    const struct jailer_link *link = r->services->jailer_link;
    const char *why = NULL;

    if (!jailer_link_engine(link))
        why = jailer_link_why_lost(link);
    else if (!r->loaded)
        why = r->load_error[0] ? r->load_error : "the store is still being read";
    else if (r->nadopting > 0)
        why = "the sandboxes of the previous server are still being adopted";
    if (ret_why)
        *ret_why = why;
    return why == NULL;
}

/* --- loading --- */

static void recovery_load_sandboxes(struct recovery *r, const char *cursor);
static void recovery_load_executions(struct recovery *r, const char *cursor);

static void recovery_load_sandbox(struct recovery *r, const struct store_sandbox *row)
{
    struct sandbox *sb = sandbox_new(r->services, row->id, row->owner);
    struct err err = { 0 };

    sandbox_set_state(sb, row->state == STORE_SANDBOX_CREATING ? SANDBOX_STATE_CREATING : SANDBOX_STATE_LOADED);
    sb->row_inserted = true;
    sb->created_ms = row->created_ms;
    budget_span_begin(sb->quota, &sb->span, sb->created_ms);
    sb->expires_ms = row->expires_ms;
    sb->cpu_us = sb->committed_cpu_us = row->cpu_us;
    if (sandbox_read_stored_json(sb, row->spec_json, &err) < 0) {
        log_error("sandbox %s: cannot read its row: %s", sb->id, err.msg);
        spec_done(&sb->spec);
        spec_init(&sb->spec);
    }
    sb->template = row->template ? str_dup(row->template) : NULL;
    if (row->metadata_json)
        sb->spec.metadata = json_loads(row->metadata_json, 0, NULL);
    (void)str_copy(sb->spec.name, sizeof(sb->spec.name), row->name ? row->name : "");
    (void)str_copy(sb->spec.created_by, sizeof(sb->spec.created_by), row->created_by ? row->created_by : "");
    if (sb->spec.cpu_pinning)
        registry_pin_cpus(sb->services->registry, sb, sb->spec.limits.v[LIMIT_CPUSET]);
    quota_amounts_for_spec(&sb->spec, sb->quota_reserved);
    quota_add_reserved(sb->quota, sb->quota_reserved);
    if (row->state != STORE_SANDBOX_PAUSED)
        sb->paused_at_ms = 0;
    else if (!sb->paused_at_ms)
        sb->paused_at_ms = sandbox_mono_ms(sb);
}

static void recovery_load_failed(struct recovery *r, const struct err *err)
{
    log_error("cannot read the store: %s", err->msg);
    snprintf(r->load_error, sizeof(r->load_error), "cannot read the store: %.100s", err->msg);
}

static void recovery_on_sandboxes(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n,
                                  const char *next)
{
    struct recovery *r = arg;

    if (err) {
        recovery_load_failed(r, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        recovery_load_sandbox(r, &rows[i]);
    if (next)
        recovery_load_sandboxes(r, next);
    else
        recovery_load_executions(r, NULL);
}

static void recovery_load_sandboxes(struct recovery *r, const char *cursor)
{
    struct store_list q = { .owner = STORE_ANY_OWNER,
                            .states = STORE_SANDBOX_LIVE,
                            .cursor = cursor,
                            .limit = STORE_LIST_MAX,
                            .oldest_first = true };

    store_sandbox_list(r->services->store, &q, recovery_on_sandboxes, r);
}

static void recovery_on_orphan_committed(void *arg UNUSED, const struct err *err,
                                         const struct store_execution *row UNUSED)
{
    if (err)
        log_warn("cannot store the end of a lost execution: %s", err->msg);
}

/* Ends an execution whose sandbox has ended: the end of the sandbox was committed, that of the
 * execution was not. */
static void recovery_end_orphan(struct recovery *r, const struct store_execution *row)
{
    struct store_execution end = { .state = STORE_EXECUTION_FAILED, .ended_ms = clock_real_ms() };
    struct err lost;

    err_set(&lost, ERR_LOST, "its sandbox ended while the server was down");
    auto_free char *why = result_error_json(&lost);
    memcpy(end.id, row->id, sizeof(end.id));
    end.ended_by = (char *)ended_by_name(ENDED_LOST);
    end.error_json = why;
    result_set_row_outcome(&end);
    output_dir_file_sizes(r->output_dir, row->id, end.out_bytes);
    store_execution_update(r->services->store, row->owner, &end,
                           STORE_EXECUTION_SET_STATE | STORE_EXECUTION_SET_END | STORE_EXECUTION_SET_OUTPUT,
                           &(struct store_condition){ .states = STORE_EXECUTION_LIVE }, recovery_on_orphan_committed,
                           NULL);
}

static void recovery_load_execution(struct recovery *r, const struct store_execution *row)
{
    struct sandbox *sb = registry_find(r->services->registry, STORE_ANY_OWNER, row->sandbox);

    if (sb)
        sandbox_load_execution(sb, row);
    else
        recovery_end_orphan(r, row);
}

static void recovery_on_executions(void *arg, const struct err *err, const struct store_execution *rows, size_t n,
                                   const char *next)
{
    struct recovery *r = arg;

    if (err) {
        recovery_load_failed(r, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        recovery_load_execution(r, &rows[i]);
    if (next) {
        recovery_load_executions(r, next);
        return;
    }
    r->loaded = true;
    output_dir_resolve_temp_files(r->output_dir, r->services->store);
    if (jailer_link_engine(r->services->jailer_link))
        recovery_on_connected(r);
}

static void recovery_load_executions(struct recovery *r, const char *cursor)
{
    struct store_list q = { .owner = STORE_ANY_OWNER,
                            .states = STORE_EXECUTION_LIVE,
                            .cursor = cursor,
                            .limit = STORE_LIST_MAX,
                            .oldest_first = true };

    store_execution_list(r->services->store, &q, recovery_on_executions, r);
}

static void recovery_on_quotas_loaded(void *arg, const struct err *err)
{
    if (err)
        recovery_load_failed(arg, err);
    else
        recovery_load_sandboxes(arg, NULL);
}

void recovery_start(struct recovery *r)
{
    tenant_quotas_load(r->services->quotas, recovery_on_quotas_loaded, r);
}

/* --- adoption --- */

static void recovery_on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void recovery_adopt_sandbox(struct sandbox *sb)
{
    struct recovery *r = sb->services->recovery;
    uint64_t now = sb->expires_mono_ms ? sandbox_mono_ms(sb) : clock_real_ms();
    uint64_t until = sb->expires_mono_ms ? sb->expires_mono_ms : sb->expires_ms;
    uint64_t left = until > now ? until - now : 1;
    struct bound_secrets bound = { 0 };
    struct sandbox_spec sandbox;
    struct err err = { 0 };

    spec_fill_sandbox_spec(&sb->spec, &sandbox);
    (void)bound_secrets_fill(r->services->supply->secrets, sb->owner, &sb->spec.network, true, &bound, &err);
    sandbox.secrets = bound.entries;
    sandbox.nsecrets = bound.n;
    sandbox.tenant = sb->owner;
    sandbox.share = r->services->supply->egress_share;
    sandbox.limits.v[LIMIT_LIFETIME] = min_u64(left, limit_info(LIMIT_LIFETIME)->max);
    sandbox.limits.v[LIMIT_WALL] = min_u64(sandbox.limits.v[LIMIT_WALL], sandbox.limits.v[LIMIT_LIFETIME]);
    int rc = sandbox_handle_adopt(jailer_link_engine(r->services->jailer_link), sb->id, &sandbox, &sandbox_engine_ops,
                                  sb, &sb->handle, &err);
    bound_secrets_wipe(&bound);
    if (rc < 0) {
        sandbox_end(sb, ENDED_LOST, &err);
        recovery_sandbox_resolved(r);
        return;
    }
    sandbox_handle_thaw(sb->handle, recovery_on_thawed, sb);
}

static void recovery_on_refrozen(void *arg, const struct err *err)
{
    struct sandbox *sb = arg;

    if (sb->state != SANDBOX_STATE_LOADED)
        return;
    if (err)
        log_warn("sandbox %s: cannot pause it again: %s", sb->id, err->msg);
    sandbox_set_state(sb, err ? SANDBOX_STATE_RUNNING : SANDBOX_STATE_PAUSED);
    sandbox_restart_idle_timer(sb);
    recovery_sandbox_resolved(sb->services->recovery);
}

void recovery_sandbox_ready(struct recovery *r, struct sandbox *sb)
{
    sb->services->stats->adopted++;
    if (sb->quota->is_suspended) {
        sandbox_set_state(sb, SANDBOX_STATE_RUNNING);
        sandbox_end_suspended(sb);
        recovery_sandbox_resolved(r);
        return;
    }
    contexts_adopt(sb);
    sandbox_resume_executions(sb);
    sandbox_handle_resume_finish(sb->handle);
    if (sb->paused_at_ms) {
        sandbox_handle_freeze(sb->handle, recovery_on_refrozen, sb);
        return;
    }
    sandbox_set_state(sb, SANDBOX_STATE_RUNNING);
    sandbox_restart_idle_timer(sb);
    recovery_sandbox_resolved(r);
}

static void recovery_on_jailer_list(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err)
{
    struct recovery *r = arg;
    struct engine *engine = jailer_link_engine(r->services->jailer_link);

    if (err) {
        log_warn("cannot list the sandboxes of the jailer: %s", err->msg);
        pools_set_engine(r->services->supply->pools, engine);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!registry_find(r->services->registry, STORE_ANY_OWNER, ids[i])) {
            log_info("sandbox %s has no row and is destroyed", ids[i]);
            engine_destroy_sandbox(engine, ids[i]);
        }
    if (n == ENGINE_LIST_MAX)
        engine_list_sandboxes(engine, ids[n - 1], recovery_on_jailer_list, r);
    else
        pools_set_engine(r->services->supply->pools, engine); /* only now: sandboxes of pools have no rows either */
}

/* After the last adoption, destroys the sandboxes of the jailer that have no row. */
void recovery_sandbox_resolved(struct recovery *r)
{
    struct engine *engine = jailer_link_engine(r->services->jailer_link);

    if (r->nadopting > 0 && --r->nadopting == 0 && engine)
        engine_list_sandboxes(engine, NULL, recovery_on_jailer_list, r);
}

static void recovery_end_unfinished(struct sandbox *sb)
{
    struct err why;

    err_set(&why, ERR_LOST, "the server restarted before the sandbox was ready");
    engine_destroy_sandbox(jailer_link_engine(sb->services->jailer_link), sb->id);
    sandbox_end(sb, ENDED_LOST, &why);
}

static void recovery_adopt_all(struct recovery *r)
{
    auto_free struct sandbox **all = registry_snapshot(r->services->registry);

    r->nadopting = 1; /* one extra, so that the count reaches 0 only after all adoptions have started */
    for (struct sandbox **p = all; *p; p++) {
        struct sandbox *sb = *p;

        if (sb->handle || sb->create_slot.is_waiting)
            continue;
        if (sb->state == SANDBOX_STATE_LOADED) {
            r->nadopting++;
            recovery_adopt_sandbox(sb);
        } else if (sb->state == SANDBOX_STATE_CREATING) {
            recovery_end_unfinished(sb);
        }
    }
    recovery_sandbox_resolved(r);
}

void recovery_on_connected(struct recovery *r)
{
    if (r->loaded)
        recovery_adopt_all(r);
}
