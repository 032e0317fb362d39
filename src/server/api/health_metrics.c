/* /health, /ready and /metrics, for the operator of the server. */
#include "server/api/api_internal.h"

#include "server/api/execute_tier.h"
#include "server/api/pool_registry.h"
#include "service/live_sandboxes.h"
#include "core/base/mem.h"
#include "core/base/metrics.h"
#include "core/base/str.h"

#include <stdio.h>

static void api_health(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    api_object_begin(&w, &out);
    jsonw_kstr(&w, "status", "ok");
    jsonw_kstr(&w, "version", api->settings.version);
    api_object_end(req, 200, &w);
}

/* Readiness: a query to the store succeeds, and the manager is connected to the jailer. */
static void readiness_on_store_reply(void *arg, const struct err *err, const char *value UNUSED)
{
    struct http_req *req = arg;
    struct api *api = http_route_ctx(req);
    const char *why = NULL;
    bool ready = manager_ready(api->settings.manager, &why);
    struct buf out = { 0 };
    struct jsonw w;

    api_object_begin(&w, &out);
    jsonw_kstr(&w, "status", ready && !err ? "ready" : "not_ready");
    jsonw_kobject(&w, "checks");
    jsonw_kstr(&w, "store", err ? err_info(err->id)->code : "ok");
    jsonw_kstr(&w, "sandboxes", ready ? "ok" : why);
    if (api->settings.audit)
        jsonw_kstr(&w, "audit", audit_state(api->settings.audit, &why) == AUDIT_OPEN ? "ok" : why);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    if (!ready || err)
        http_set_header(req, "Retry-After", "1");
    http_answer_json(req, ready && !err ? 200 : 503, &out);
}

static void api_ready(struct http_req *req, void *ctx)
{
    struct api *api = ctx;

    store_meta_get(api->settings.store, "ready", readiness_on_store_reply, req);
}

/* --- metrics --- */

static void metrics_write_by_end_reason(struct buf *out, const char *name, const char *help,
                                        const uint64_t counts[MANAGER_END_CAUSES])
{
    metrics_family(out, name, NULL, help);
    for (int i = 0; i < MANAGER_END_CAUSES; i++)
        buf_addf(out, "cove_%s{ended_by=\"%s\"} %" PRIu64 "\n", name, ended_by_name((enum ended_by)i), counts[i]);
}

static void metrics_write_histogram(struct buf *out, const char *name, const char *help, const struct histogram *h)
{
    metrics_family(out, name, "histogram", help);
    metrics_histogram(out, name, "", h);
}

/* Writes only the runtimes that were started: most servers use few of them. */
static void metrics_write_sandbox_starts(struct buf *out, const struct manager_stats *s)
{
    size_t n;
    const struct language *all = languages_all(&n);

    metrics_family(out, "sandbox_startup_seconds", "histogram",
                   "Time from the request to a ready sandbox, by runtime and by whether it was prepared in a pool.");
    for (size_t i = 0; i < min_size(n, MANAGER_LANGUAGES_MAX); i++)
        for (int warm = 0; warm < 2; warm++) {
            const struct histogram *t = &s->starts[i][warm];
            auto_free char *labels = str_printf("runtime=\"%s\",warm=\"%s\"", all[i].name, warm ? "true" : "false");

            if (t->sum_ns)
                metrics_histogram(out, "sandbox_startup_seconds", labels, t);
        }
}

static void metrics_write_egress(struct api *api, const struct manager_stats *s, struct buf *out)
{
    metrics_family(out, "egress_connections_total", NULL,
                   "Connections of executions to hosts outside, by outcome; counted when an execution ends.");
    metrics_value(out, "egress_connections_total", "{outcome=\"opened\"}", s->egress_connections);
    metrics_value(out, "egress_connections_total", "{outcome=\"refused\"}", s->egress_refused);
    metrics_value(out, "egress_connections_total", "{outcome=\"failed\"}", s->egress_failed);
    metrics_number(out, "egress_received_bytes_total", "Bytes that executions received from hosts outside.",
                   s->egress_received_bytes);
    metrics_number(out, "egress_sent_bytes_total", "Bytes that executions sent to hosts outside.",
                   s->egress_sent_bytes);
    metrics_number(out, "egress_proxy_up", "1: the server is connected to the egress proxy; 0: it is not.",
                   manager_egress_absent_why(api->settings.manager) == NULL);
}

static void metrics_write_manager(struct api *api, struct buf *out)
{
    struct manager_stats s;

    manager_stats(api->settings.manager, &s);
    metrics_number(out, "sandboxes_created_total", "Sandboxes that became ready.", s.created);
    metrics_number(out, "sandboxes_failed_total", "Sandboxes that could not be created.", s.create_failed);
    metrics_write_by_end_reason(out, "sandboxes_ended_total", "Ended sandboxes, by reason.", s.ended);
    metrics_write_sandbox_starts(out, &s);
    metrics_family(out, "sandboxes", NULL, "Live sandboxes.");
    metrics_value(out, "sandboxes", "{state=\"running\"}", s.running);
    metrics_value(out, "sandboxes", "{state=\"paused\"}", s.paused);
    metrics_number(out, "executions_started_total", "Executions started.", s.executions);
    metrics_number(out, "executions_failed_total", "Executions that could not start or were lost.",
                   s.executions_failed);
    metrics_write_by_end_reason(out, "executions_ended_total", "Ended executions, by reason.", s.executions_ended);
    metrics_family(out, "execution_seconds", "summary", "Time from the start of a program to its end.");
    metrics_seconds(out, "execution_seconds_sum", "", s.wall_ns);
    metrics_value(out, "execution_seconds_count", "", s.with_receipt);
    metrics_duration(out, "execution_cpu_seconds_total", "CPU time of ended executions.", s.cpu_ns);
    metrics_number(out, "refused_calls_total", "System calls denied by the filter.", s.denied_syscalls);
    metrics_family(out, "limits_met_total", NULL, "Executions that reached a limit and were denied something by it.");
    for (int i = 0; i < LIMIT_COUNT; i++)
        buf_addf(out, "cove_limits_met_total{limit=\"%s\"} %" PRIu64 "\n", limit_info((enum limit)i)->name,
                 s.limit_hits[i]);
    metrics_number(out, "executions_running", "Executions in progress.", s.executing);
    metrics_number(out, "output_bytes_total", "Bytes of stored output of executions.", s.output_bytes);
    metrics_number(out, "output_lost_bytes_total", "Bytes of output that could not be written to disk.",
                   s.output_lost_bytes);
    metrics_number(out, "sandboxes_adopted_total", "Sandboxes adopted from a previous server process.", s.adopted);
    metrics_number(out, "jailer_connections_total", "Connections made to the jailer.", s.reconnects);
    metrics_write_egress(api, &s, out);
}

static void metrics_write_checks(const struct api *api, const struct executor_stats *s, struct buf *out)
{
    metrics_number(out, "code_checks_passed_total", "Checked code that the tier simple runs.", s->checks_passed);
    metrics_family(out, "code_checks_refused_total", NULL, "Checked code that it refuses, by the first rule.");
    for (unsigned i = 0; i < REPORT_RULE_COUNT; i++)
        buf_addf(out, "cove_code_checks_refused_total{reason=\"%s\"} %" PRIu64 "\n",
                 code_report_rule_name((enum report_rule)i), s->checks_refused[i]);
    metrics_family(out, "tier_answers_total", NULL, "Answers to executions with a tier; check: it refused the code.");
    for (unsigned i = 0; i < TIER_AUTO; i++)
        buf_addf(out, "cove_tier_answers_total{tier=\"%s\"} %" PRIu64 "\n", execute_tier_name((enum code_tier)i),
                 api->tier_answers[i]);
    metrics_write_histogram(out, "code_check_seconds", "Time from the request to the report of a check.", &s->checks);
}

static void metrics_write_executor(struct api *api, struct buf *out)
{
    struct executor_stats s;

    if (!api->settings.executor)
        return;
    executor_stats(api->settings.executor, &s);
    metrics_number(out, "executor_runs_total", "Stateless executions that were started or queued.", s.started);
    metrics_number(out, "executor_refused_total", "Stateless executions refused because the queue was full.",
                   s.refused);
    metrics_number(out, "executor_failed_total", "Stateless executions that could not be run.", s.failed);
    metrics_number(out, "executor_cancelled_total", "Stateless executions whose client disconnected.", s.cancelled);
    metrics_number(out, "executor_waiting", "Stateless executions in the queue.", s.waiting);
    metrics_number(out, "executor_running", "Stateless executions that have a sandbox.", s.running);
    metrics_number(out, "executor_ending", "Sandboxes of answered executions in teardown.", s.ending);
    metrics_number(out, "executor_held_bytes", "Bytes of output of stateless executions held in memory.", s.held_bytes);
    metrics_family(out, "executor_sandboxes_total", NULL, "Sandboxes of stateless executions, by pool result.");
    for (unsigned i = 0; i < POOL_RESULT_COUNT; i++)
        buf_addf(out, "cove_executor_sandboxes_total{pool=\"%s\"} %" PRIu64 "\n", pool_result_names[i],
                 s.by_pool_result[i]);
    metrics_number(out, "executor_cache_hits_total", "Pure executions answered from the cache.", s.cache_hits);
    metrics_number(out, "executor_cache_misses_total", "Pure executions not in the cache, which had to be run.",
                   s.cache_misses);
    metrics_number(out, "executor_cache_bytes", "Memory used by cached responses, in bytes.", s.cache_bytes);
    metrics_number(out, "executor_cache_entries", "Cached responses.", s.cache_entries);
    metrics_write_checks(api, &s, out);
    metrics_write_histogram(out, "executor_wait_seconds", "Time that stateless executions waited in the queue.",
                            &s.waits);
    metrics_write_histogram(out, "executor_run_seconds",
                            "Time from the start of a stateless execution to its response.", &s.runs);
}

static void metrics_write_scripts(struct api *api, struct buf *out)
{
    struct script_cache_stats s;

    script_cache_stats(api->settings.script_cache, &s);
    metrics_number(out, "scripts_kept_total", "Scripts added to the script cache.", s.kept);
    metrics_number(out, "scripts_reused_total", "Successful runs of code that was in the script cache already.",
                   s.reused);
    metrics_number(out, "scripts_refused_total", "Successful runs of code that was too large to be kept.", s.refused);
    metrics_number(out, "scripts_evicted_total", "Scripts removed because their tenant had too many or too large ones.",
                   s.evicted);
}

/* Totals of all tenants: a reader of the metrics learns nothing about a single tenant, and the
 * number of lines is fixed. */
static void metrics_write_budgets(struct api *api, struct buf *out)
{
    static const char *const states[BUDGET_LIMIT_STATES] = { "open", "near", "spent" };
    static const char *const figures[STORE_BUDGET_RESOURCES] = { "cpu_seconds", "sandbox_seconds", "executions" };
    struct manager_usage_totals s;

    live_sandboxes_usage_totals(manager_live_sandboxes(api->settings.manager), &s);
    metrics_duration(out, "usage_cpu_seconds_total", "CPU time of sandboxes.",
                     s.used[STORE_BUDGET_CPU_TIME] * NS_PER_US);
    metrics_duration(out, "usage_sandbox_seconds_total", "Lifetime of sandboxes, summed.",
                     s.used[STORE_BUDGET_SANDBOX_TIME] * NS_PER_MS);
    metrics_number(out, "usage_executions_total", "Executions that ended.", s.used[STORE_BUDGET_EXECUTIONS]);
    metrics_number(out, "budget_refusals_total", "Sandboxes and executions refused because a budget was spent.",
                   s.refused);
    metrics_family(out, "budget_bounds", NULL,
                   "Limits of budgets, by state. near: at least 90 % used; spent: all used.");
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
            for (int i = 0; i < BUDGET_LIMIT_STATES; i++)
                buf_addf(out, "cove_budget_bounds{period=\"%s\",of=\"%s\",state=\"%s\"} %" PRIu64 "\n",
                         budget_period_names[p], figures[k], states[i], s.bounds[p][k][i]);
}

static void metrics_write_store(struct api *api, struct buf *out)
{
    struct store_stats s;

    store_stats(api->settings.store, &s);
    metrics_number(out, "store_calls_total", "Calls to the store.", s.calls);
    metrics_number(out, "store_commits_total", "Commits; each covers one or more calls.", s.commits);
    metrics_number(out, "store_errors_total", "Calls to the store that failed.", s.errors);
    metrics_number(out, "store_waiting", "Calls to the store without a reply yet.", s.waiting);
    metrics_duration(out, "store_commit_seconds_total", "Time spent in commits.", s.commit_ns);
}

static void metrics_write_audit(struct api *api, struct buf *out)
{
    struct audit_stats s;

    if (!api->settings.audit)
        return;
    audit_stats(api->settings.audit, &s);
    metrics_number(out, "audit_records_total", "Records appended to the audit trail.", s.records);
    metrics_number(out, "audit_bytes_total", "Bytes written to the audit trail.", s.bytes);
    metrics_number(out, "audit_writes_total", "Writes to the audit trail; each holds one or more records.", s.batches);
    metrics_number(out, "audit_errors_total", "Failed writes to the audit trail.", s.errors);
    metrics_number(out, "audit_waiting", "Audit records that are not written yet.", s.waiting);
    metrics_number(out, "audit_state",
                   "0: open; 1: the disk is full, only requests that end or remove objects are accepted; 2: closed.",
                   (uint64_t)audit_state(api->settings.audit, NULL));
    metrics_duration(out, "audit_write_seconds_total", "Time spent writing the audit trail.", s.write_ns);
}

static void metrics_route_labels(const struct gateway_counter *c, char *ret, size_t cap)
{
    snprintf(ret, cap, "{method=\"%s\",route=\"%s\"}", c->route ? c->route->method : "",
             c->route ? c->route->pattern : "none");
}

static void metrics_write_requests(struct api *api, struct buf *out)
{
    const struct gateway_counter *counters;
    size_t n = gateway_counters(api->settings.gateway, &counters);
    char labels[256];

    metrics_family(out, "api_requests_total", NULL, "Requests, by route and status class.");
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < GATEWAY_STATUSES; k++) {
            const struct gateway_counter *c = &counters[i];

            if (!c->requests[k])
                continue;
            metrics_route_labels(c, labels, sizeof(labels));
            labels[strlen(labels) - 1] = '\0';
            buf_addf(out, "cove_api_requests_total%s,status=\"%s\"} %" PRIu64 "\n", labels,
                     (const char *const[]){ "gone", "1xx", "2xx", "3xx", "4xx", "5xx" }[k], c->requests[k]);
        }
    metrics_family(out, "api_request_seconds_total", NULL,
                   "Time from the head of a request to the end of its response, summed.");
    for (size_t i = 0; i < n; i++) {
        metrics_route_labels(&counters[i], labels, sizeof(labels));
        metrics_seconds(out, "api_request_seconds_total", labels, counters[i].duration_ns);
    }
    uint64_t in = 0, sent = 0;
    for (size_t i = 0; i < n; i++) {
        in += counters[i].bytes_in;
        sent += counters[i].bytes_out;
    }
    metrics_number(out, "api_received_bytes_total", "Bytes of request bodies.", in);
    metrics_number(out, "api_sent_bytes_total", "Bytes of response bodies.", sent);
    if (!api->server)
        return;
    struct http_stats s;
    http_server_stats(api->server, &s);
    metrics_number(out, "api_connections", "Open connections.", s.open);
    metrics_number(out, "api_requests_active", "Requests in progress.", s.active);
    metrics_number(out, "api_websockets", "Open WebSockets.", s.websockets);
    metrics_number(out, "api_connections_total", "Accepted connections.", s.accepted);
    metrics_number(out, "api_connections_refused_total", "Connections refused because their address had too many.",
                   s.refused_per_addr);
}

static void metrics_write_tool_calls(struct buf *out, const char *tool, const char *outcome, uint64_t calls)
{
    buf_addf(out, "cove_tool_calls_total{tool=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", tool, outcome, calls);
}

static void metrics_write_tools(const struct api *api, struct buf *out)
{
    const struct tools_stats *s = tools_get_stats(api->settings.tools);
    size_t n;
    const struct tool *all = tools_all(&n);

    metrics_family(out, "tool_calls_total", NULL, "Calls of tools, by tool and outcome.");
    for (size_t i = 0; i < n; i++) {
        metrics_write_tool_calls(out, all[i].name, "success", s->succeeded[i]);
        metrics_write_tool_calls(out, all[i].name, "error", s->failed[i]);
        metrics_write_tool_calls(out, all[i].name, "refused", s->refused[i]);
        metrics_write_tool_calls(out, all[i].name, "cancelled", s->cancelled[i]);
    }
    metrics_family(out, "tool_truncated_total", NULL, "Results of tools that lost a part of their text.");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "cove_tool_truncated_total{tool=\"%s\"} %" PRIu64 "\n", all[i].name, s->truncated[i]);
}

static void api_serve_metrics(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    auto_buf out = { 0 };

    metrics_family(&out, "build_info", NULL, "The version of the server.");
    buf_addf(&out, "cove_build_info{version=\"%s\"} 1\n", api->settings.version);
    metrics_duration(&out, "uptime_seconds", "Time since the start of the server.",
                     ev_now(api->settings.ev) - api->started_ns);
    metrics_write_manager(api, &out);
    metrics_write_executor(api, &out);
    metrics_write_tools(api, &out);
    calculate_write_metrics(api, &out);
    metrics_write_scripts(api, &out);
    secrets_write_metrics(api, &out);
    metrics_write_budgets(api, &out);
    pool_registry_write_metrics(api->pool_registry, &out);
    metrics_write_store(api, &out);
    metrics_write_audit(api, &out);
    security_events_write_metrics(api->settings.gateway, &out);
    metrics_write_requests(api, &out);
    if (api->settings.write_metrics)
        api->settings.write_metrics(api->settings.arg, &out);
    http_answer(req, 200, "text/plain; version=0.0.4", out.data, out.len);
}

const struct http_route health_metrics_routes[] = {
    { "GET", "/health", api_health, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/ready", api_ready, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/metrics", api_serve_metrics, HTTP_BODY_NONE, .data = &permission_metrics },
    { 0 },
};
