/* Makes the objects of the service and hands them to each other. */
#include "service/manager.h"

#include "core/base/mem.h"
#include "service/ephemeral_sandbox.h"
#include "service/execution_internal.h"
#include "service/live_sandboxes.h"
#include "service/usage_batch.h"

#include <assert.h>

#define QUEUE_MAX_WAIT_NS (60 * NS_PER_S)
/* Many times the usual duration; limits how long a hanging request delays others. */
#define CREATE_MAX_HOLD_NS (2 * NS_PER_S)
#define START_MAX_HOLD_NS (1 * NS_PER_S)

struct manager {
    struct output_dir *output_dir;
    struct end_journal *end_journal;
    struct retention *retention;
    struct jailer_link *jailer_link;
    struct pools *pools;
    bool owns_pools;
    struct sandbox_supply supply;
    struct registry *registry;
    struct tenant_quotas *quotas;
    struct budgets *budgets;
    struct usage_meter *usage_meter;
    struct recovery *recovery;
    struct sandbox_services services;
    struct executions executions;
    struct usage_batch *ephemeral_usage;
    struct ephemeral_sandboxes ephemerals;
    struct live_sandboxes live_sandboxes;
    struct manager_stats stats;
};

struct sandbox_services *manager_sandbox_services(const struct manager *m)
{
    return (struct sandbox_services *)&m->services;
}

struct ephemeral_sandboxes *manager_ephemerals(struct manager *m)
{
    return &m->ephemerals;
}

struct live_sandboxes *manager_live_sandboxes(struct manager *m)
{
    return &m->live_sandboxes;
}

struct host_modules *manager_host_modules(struct manager *m)
{
    return m->executions.modules;
}

struct tenant_quotas *manager_quotas(const struct manager *m)
{
    return m->quotas;
}

struct budgets *manager_budgets(const struct manager *m)
{
    return m->budgets;
}

struct retention *manager_retention(const struct manager *m)
{
    return m->retention;
}

bool manager_ready(const struct manager *m, const char **ret_why)
{
    return recovery_is_ready(m->recovery, ret_why);
}

const char *manager_egress_absent_why(const struct manager *m)
{
    const struct engine *engine = jailer_link_engine(m->jailer_link);

    return engine ? engine_egress_absent_why(engine) : jailer_link_why_lost(m->jailer_link);
}

void manager_stats(const struct manager *m, struct manager_stats *ret)
{
    *ret = m->stats;
    ret->reconnects = jailer_link_connections(m->jailer_link);
    ret->running = ret->paused = ret->executing = 0;
    for (const struct sandbox *sb = NULL; (sb = registry_next(m->registry, sb));) {
        ret->running += sb->state == SANDBOX_STATE_RUNNING;
        ret->paused += sb->state == SANDBOX_STATE_PAUSED;
        ret->executing += sandbox_running_executions(sb);
    }
}

/* --- creation and end --- */

static void manager_on_jailer_connected(void *arg)
{
    struct manager *m = arg;

    m->supply.engine = jailer_link_engine(m->jailer_link);
    recovery_on_connected(m->recovery);
}

static void manager_on_jailer_lost(void *arg)
{
    struct manager *m = arg;

    m->supply.engine = NULL;
    pools_set_engine(m->pools, NULL);
}

int manager_new(struct ev *ev, const struct manager_settings *set, struct manager **ret, struct err *err)
{
    struct output_dir *dir;

    assert(set->executions_max && set->creating_max && set->starting_max);
    if (output_dir_new(set->output_dir, &dir, err) < 0)
        return -1;
    struct manager *m = mem_new(struct manager);
    m->output_dir = dir;
    m->registry = registry_new();
    m->retention = retention_new(set->store, dir);
    m->quotas = tenant_quotas_new(ev, set->store, live_sandboxes_stop_suspended, &m->live_sandboxes);
    m->usage_meter = usage_meter_new(ev, live_sandboxes_sample, &m->live_sandboxes);
    m->ephemeral_usage = usage_batch_new(ev, set->store);
    m->jailer_link = jailer_link_new(ev, &(struct jailer_link_ops){ .connect = set->connect,
                                                                    .connect_arg = set->arg,
                                                                    .egress_socket = set->egress_socket,
                                                                    .on_connected = manager_on_jailer_connected,
                                                                    .on_lost = manager_on_jailer_lost,
                                                                    .arg = m });
    m->owns_pools = !set->pools;
    m->pools = set->pools ? set->pools : pools_new(ev);
    m->supply = (struct sandbox_supply){ .ev = ev,
                                         .pools = m->pools,
                                         .hidden_dir = output_dir_fd(dir),
                                         .required_limits = set->required_limits,
                                         .require_all_walls = set->require_all_walls,
                                         .egress_share = set->egress_share,
                                         .secrets = set->secrets,
                                         .on_secret_used = set->on_secret_used,
                                         .arg = set->arg };
    m->budgets = budgets_new(ev, set->store, m->quotas, &live_sandboxes_budgets_ops, &m->live_sandboxes);
    m->end_journal = end_journal_new(ev, set->store, set->sync_full ? -1 : output_dir_fd(dir));
    m->recovery = recovery_new(&m->services, dir);
    m->executions = (struct executions){ .ev = ev,
                                         .output_dir = dir,
                                         .end_journal = m->end_journal,
                                         .stats = &m->stats,
                                         .modules = host_modules_new(ev, NULL),
                                         .max_per_sandbox = set->executions_max,
                                         .on_denials = set->on_denials,
                                         .on_refused_destinations = set->on_refused_destinations,
                                         .on_denials_arg = set->arg,
                                         .pending_commits_last = &m->executions.pending_commits };
    fair_queue_init(&m->executions.start_queue, ev, set->starting_max, QUEUE_MAX_WAIT_NS, START_MAX_HOLD_NS);
    m->services = (struct sandbox_services){ .ev = ev,
                                             .store = set->store,
                                             .registry = m->registry,
                                             .quotas = m->quotas,
                                             .budgets = m->budgets,
                                             .usage_meter = m->usage_meter,
                                             .jailer_link = m->jailer_link,
                                             .supply = &m->supply,
                                             .recovery = m->recovery,
                                             .executions = &m->executions,
                                             .stats = &m->stats,
                                             .live_max = set->live_max,
                                             .on_end = set->on_end,
                                             .on_end_arg = set->arg };
    fair_queue_init(&m->services.create_queue, ev, set->creating_max, QUEUE_MAX_WAIT_NS, CREATE_MAX_HOLD_NS);
    m->ephemerals = (struct ephemeral_sandboxes){ .ev = ev,
                                                  .quotas = m->quotas,
                                                  .budgets = m->budgets,
                                                  .supply = &m->supply,
                                                  .recovery = m->recovery,
                                                  .executions = &m->executions,
                                                  .modules = m->executions.modules,
                                                  .usage = m->ephemeral_usage };
    m->live_sandboxes = (struct live_sandboxes){ .registry = m->registry,
                                                 .ephemerals = &m->ephemerals,
                                                 .store = set->store,
                                                 .budgets = m->budgets,
                                                 .pools = m->pools };
    *ret = m;
    recovery_start(m->recovery);
    jailer_link_start(m->jailer_link);
    return 0;
}

void manager_end_all(struct manager *m, const struct err *why, void (*done)(void *arg), void *arg)
{
    auto_free struct sandbox **all = registry_snapshot(m->registry);

    registry_set_on_empty(m->registry, done, arg);
    for (struct sandbox **sb = all; *sb; sb++)
        sandbox_end(*sb, ENDED_KILLED, why);
    if (!*all)
        done(arg);
}

void manager_finish(struct manager *m)
{
    struct err why;

    if (!m)
        return;
    err_set(&why, ERR_BUSY, "the server is stopping; programs in sandboxes keep running");
    for (struct sandbox *sb = NULL; (sb = registry_next(m->registry, sb));)
        sandbox_fail_callers(sb, &why);
    sandbox_refusals_report_all(&m->services); /* also those that began above */
}

/* The engine is freed first: without it, freeing an execution kills nothing. */
void manager_free(struct manager *m)
{
    if (!m)
        return;
    registry_set_on_empty(m->registry, NULL, NULL);
    ev_defer_clear(m->services.ev, &m->executions.flush_defer);
    pools_set_engine(m->pools, NULL);
    jailer_link_free(m->jailer_link);
    if (m->owns_pools)
        pools_free(m->pools);
    for (struct sandbox *sb; (sb = registry_next(m->registry, NULL));)
        sandbox_free(sb);
    registry_free(m->registry);
    sandbox_refusals_free(&m->services);
    ephemeral_sandboxes_done(&m->ephemerals);
    usage_batch_free(m->ephemeral_usage);
    fair_queue_done(&m->services.create_queue);
    fair_queue_done(&m->executions.start_queue);
    host_modules_free(m->executions.modules);
    recovery_free(m->recovery);
    budgets_free(m->budgets);
    tenant_quotas_free(m->quotas);
    end_journal_free(m->end_journal);
    retention_free(m->retention);
    output_dir_free(m->output_dir);
    usage_meter_free(m->usage_meter); /* only now: freeing a sandbox uses it */
    free(m);
}
