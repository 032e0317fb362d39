/* /health, /ready and /metrics: for those who run the server. */
#include "api/inside.h"

#include "api/warm.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

static void health(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "status", "ok");
    jsonw_kstr(&w, "version", api->set.version);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

struct question {
    struct http_req *req;
    struct api *api;
};

/* The store is asked a real question; the jailer is connected or not. */
static void on_asked(void *arg, const struct err *err, const char *value UNUSED)
{
    auto_free struct question *q = arg;
    struct http_req *req = q->req;
    struct api *api = q->api;
    const char *why = NULL;
    bool ready = manager_ready(api->set.manager, &why);
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "status", ready && !err ? "ready" : "not_ready");
    jsonw_key(&w, "checks");
    jsonw_object(&w);
    jsonw_kstr(&w, "store", err ? err_info(err->id)->code : "ok");
    jsonw_kstr(&w, "sandboxes", ready ? "ok" : why);
    if (api->set.audit)
        jsonw_kstr(&w, "audit", audit_state(api->set.audit, &why) == AUDIT_OPEN ? "ok" : why);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    if (!ready || err)
        http_set_header(req, "Retry-After", "1");
    http_answer_json(req, ready && !err ? 200 : 503, &out);
}

static void ready(struct http_req *req, void *ctx)
{
    struct question *q = mem_new(struct question);

    q->req = req;
    q->api = ctx;
    store_meta_get(q->api->set.store, "ready", on_asked, q);
}

/* --- metrics --- */

static struct api_counter *counter(struct api *api, const struct http_route *route)
{
    for (size_t i = 0; i < api->ncounters; i++)
        if (api->counters[i].route == route)
            return &api->counters[i];
    if (api->ncounters == API_ROUTES_MAX)
        return NULL;
    struct api_counter *c = &api->counters[api->ncounters++];
    c->route = route;
    return c;
}

void api_on_done(const struct http_done *done, void *ctx)
{
    struct api_counter *c = counter(ctx, done->route);
    unsigned class = done->status / 100 > 0 && done->status < 600 ? (unsigned)done->status / 100 : 0;

    if (!done->asked)
        api_record_stray(ctx, done);
    if (!c)
        return;
    c->requests[class]++;
    c->duration_ns += done->duration_ns;
    c->bytes_in += done->bytes_in;
    c->bytes_out += done->bytes_out;
}

static void family(struct buf *out, const char *name, const char *kind, const char *help)
{
    buf_addf(out, "# HELP cove_%s %s\n# TYPE cove_%s %s\n", name, help, name, kind);
}

static void number(struct buf *out, const char *name, const char *kind, const char *help, uint64_t v)
{
    family(out, name, kind, help);
    buf_addf(out, "cove_%s %" PRIu64 "\n", name, v);
}

static void seconds(struct buf *out, const char *name, const char *labels, uint64_t ns)
{
    buf_addf(out, "cove_%s%s %" PRIu64 ".%09" PRIu64 "\n", name, labels, ns / (uint64_t)NS_PER_S,
             ns % (uint64_t)NS_PER_S);
}

static void by_cause(struct buf *out, const char *name, const char *help, const uint64_t counts[MANAGER_ENDS])
{
    family(out, name, "counter", help);
    for (int i = 0; i < MANAGER_ENDS; i++)
        buf_addf(out, "cove_%s{ended_by=\"%s\"} %" PRIu64 "\n", name, ended_by_name((enum ended_by)i), counts[i]);
}

#define BUCKETS RUN_BUCKETS
_Static_assert(BUCKETS == MANAGER_START_BUCKETS, "all histograms have the same bounds");

/* labels: without braces, or "". */
static void series(struct buf *out, const char *name, const char *labels, const uint64_t counts[BUCKETS],
                   uint64_t sum_ns)
{
    const char *comma = labels[0] ? "," : "";
    auto_free char *sum = str_printf("%s_sum", name);
    auto_free char *braced = labels[0] ? str_printf("{%s}", labels) : str_dup("");
    uint64_t n = 0;

    for (unsigned i = 0; i + 1 < BUCKETS; i++) {
        n += counts[i];
        buf_addf(out, "cove_%s_bucket{%s%sle=\"%u.%03u\"} %" PRIu64 "\n", name, labels, comma, (1u << i) / 1000,
                 (1u << i) % 1000, n);
    }
    n += counts[BUCKETS - 1];
    buf_addf(out, "cove_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, n);
    seconds(out, sum, braced, sum_ns);
    buf_addf(out, "cove_%s_count%s %" PRIu64 "\n", name, braced, n);
}

static void histogram(struct buf *out, const char *name, const char *help, const uint64_t counts[BUCKETS],
                      uint64_t sum_ns)
{
    family(out, name, "histogram", help);
    series(out, name, "", counts, sum_ns);
}

/* Only of what was started: most servers have few of the runtimes. */
static void put_starts(struct buf *out, const struct manager_stats *s)
{
    size_t n;
    const struct runtime *all = runtimes_all(&n);

    family(out, "sandbox_startup_seconds", "histogram",
           "From the request to a sandbox that is ready, by runtime and by whether it was made before.");
    for (size_t i = 0; i < min_size(n, MANAGER_RUNTIMES_MAX); i++)
        for (int warm = 0; warm < 2; warm++) {
            const struct manager_starts *t = &s->starts[i][warm];
            auto_free char *labels = str_printf("runtime=\"%s\",warm=\"%s\"", all[i].name, warm ? "true" : "false");

            if (t->sum_ns)
                series(out, "sandbox_startup_seconds", labels, t->n, t->sum_ns);
        }
}

static void put_manager(struct api *api, struct buf *out)
{
    struct manager_stats s;

    manager_stats(api->set.manager, &s);
    number(out, "sandboxes_created_total", "counter", "Sandboxes that became ready.", s.created);
    number(out, "sandboxes_failed_total", "counter", "Sandboxes that could not be made.", s.create_failed);
    by_cause(out, "sandboxes_ended_total", "Ends of sandboxes, by their reason.", s.ended);
    put_starts(out, &s);
    family(out, "sandboxes", "gauge", "Sandboxes that live now.");
    buf_addf(out, "cove_sandboxes{state=\"running\"} %" PRIu64 "\n", s.running);
    buf_addf(out, "cove_sandboxes{state=\"paused\"} %" PRIu64 "\n", s.paused);
    number(out, "executions_started_total", "counter", "Executions that were begun.", s.executions);
    number(out, "executions_failed_total", "counter", "Executions that could not start, or were lost.",
           s.executions_failed);
    by_cause(out, "executions_ended_total", "Ends of executions, by their reason.", s.executions_ended);
    family(out, "execution_seconds", "summary", "From the start of a program to its end.");
    seconds(out, "execution_seconds_sum", "", s.wall_ns);
    buf_addf(out, "cove_execution_seconds_count %" PRIu64 "\n", s.measured);
    family(out, "execution_cpu_seconds_total", "counter", "Processor time of executions that ended.");
    seconds(out, "execution_cpu_seconds_total", "", s.cpu_ns);
    number(out, "refused_calls_total", "counter", "System calls that the filter refused.", s.refused_calls);
    family(out, "limits_met_total", "counter", "Executions that met a limit which refused them something.");
    for (int i = 0; i < LIMIT_COUNT; i++)
        buf_addf(out, "cove_limits_met_total{limit=\"%s\"} %" PRIu64 "\n", limit_info((enum limit)i)->name,
                 s.limits_met[i]);
    number(out, "executions_running", "gauge", "Executions under way.", s.executing);
    number(out, "output_bytes_total", "counter", "Output of executions that was stored.", s.output_bytes);
    number(out, "output_lost_bytes_total", "counter", "Output that the disk refused.", s.output_lost_bytes);
    number(out, "sandboxes_adopted_total", "counter", "Sandboxes taken over from a server before this one.", s.adopted);
    number(out, "jailer_connections_total", "counter", "Connections made to the jailer.", s.reconnects);
}

static void put_executor(struct api *api, struct buf *out)
{
    struct executor_stats s;

    if (!api->set.executor)
        return;
    executor_stats(api->set.executor, &s);
    number(out, "executor_runs_total", "counter", "Stateless executions that got a place or waited for one.",
           s.started);
    number(out, "executor_refused_total", "counter", "Stateless executions for which the queue had no place.",
           s.refused);
    number(out, "executor_failed_total", "counter", "Stateless executions that could not be run.", s.failed);
    number(out, "executor_cancelled_total", "counter", "Stateless executions whose clients went away.", s.cancelled);
    number(out, "executor_waiting", "gauge", "Stateless executions in the queue.", s.waiting);
    number(out, "executor_running", "gauge", "Stateless executions that have a sandbox.", s.running);
    number(out, "executor_ending", "gauge", "Sandboxes of answered executions that are being destroyed.", s.ending);
    number(out, "executor_held_bytes", "gauge", "Output of stateless executions in memory.", s.held_bytes);
    family(out, "executor_sandboxes_total", "counter", "Sandboxes of stateless executions, by where they came from.");
    for (unsigned i = 0; i < POOL_FOUND; i++)
        buf_addf(out, "cove_executor_sandboxes_total{pool=\"%s\"} %" PRIu64 "\n", pool_found_names[i], s.found[i]);
    number(out, "executor_cache_hits_total", "counter", "Pure executions that were answered from the cache.",
           s.cache_hits);
    number(out, "executor_cache_misses_total", "counter", "Pure executions that had to be run.", s.cache_misses);
    number(out, "executor_cache_bytes", "gauge", "Memory of kept answers.", s.cache_bytes);
    number(out, "executor_cache_entries", "gauge", "Answers that are kept.", s.cache_entries);
    histogram(out, "executor_wait_seconds", "In the queue.", s.waits, s.wait_ns);
    histogram(out, "executor_run_seconds", "From a place to the answer.", s.runs, s.run_ns);
}

/* Of all tenants together: who reads metrics learns nothing of any, and there are never more lines than these. */
static void put_spending(struct api *api, struct buf *out)
{
    static const char *const states[ALLOWANCE_STATES] = { "open", "near", "spent" };
    static const char *const figures[STORE_BUDGETED] = { "cpu_seconds", "sandbox_seconds", "executions" };
    struct manager_spending s;

    manager_spending(api->set.manager, &s);
    family(out, "usage_cpu_seconds_total", "counter", "Processor time of sandboxes.");
    seconds(out, "usage_cpu_seconds_total", "", s.used[STORE_CPU_S] * NS_PER_US);
    family(out, "usage_sandbox_seconds_total", "counter", "Time that sandboxes lived, summed.");
    seconds(out, "usage_sandbox_seconds_total", "", s.used[STORE_SANDBOX_S] * NS_PER_MS);
    number(out, "usage_executions_total", "counter", "Executions that ended.", s.used[STORE_EXECUTIONS]);
    number(out, "budget_refusals_total", "counter", "Work that a budget did not let begin.", s.refused);
    family(out, "budget_bounds", "gauge", "Bounds of budgets; near: nine tenths are used; spent: all.");
    for (int p = 0; p < STORE_PERIODS; p++)
        for (int k = 0; k < STORE_BUDGETED; k++)
            for (int i = 0; i < ALLOWANCE_STATES; i++)
                buf_addf(out, "cove_budget_bounds{period=\"%s\",of=\"%s\",state=\"%s\"} %" PRIu64 "\n",
                         allowance_periods[p], figures[k], states[i], s.bounds[p][k][i]);
}

static void put_store(struct api *api, struct buf *out)
{
    struct store_stats s;

    store_stats(api->set.store, &s);
    number(out, "store_calls_total", "counter", "Calls of the store.", s.calls);
    number(out, "store_commits_total", "counter", "Commits, each of one or more calls.", s.commits);
    number(out, "store_errors_total", "counter", "Calls that failed.", s.errors);
    number(out, "store_waiting", "gauge", "Calls that are not answered yet.", s.waiting);
    family(out, "store_commit_seconds_total", "counter", "Time spent in commits.");
    seconds(out, "store_commit_seconds_total", "", s.commit_ns);
}

static void put_audit(struct api *api, struct buf *out)
{
    struct audit_stats s;

    if (!api->set.audit)
        return;
    audit_stats(api->set.audit, &s);
    number(out, "audit_records_total", "counter", "Records of the audit log.", s.records);
    number(out, "audit_bytes_total", "counter", "Bytes written to the audit log.", s.bytes);
    number(out, "audit_writes_total", "counter", "Writes to the audit log, each of one or more records.", s.batches);
    number(out, "audit_errors_total", "counter", "Writes to the audit log that failed.", s.errors);
    number(out, "audit_waiting", "gauge", "Records that are not written yet.", s.waiting);
    number(out, "audit_state", "gauge", "0: open; 1: the disk is full, only what ends things is done; 2: shut.",
           (uint64_t)audit_state(api->set.audit, NULL));
    family(out, "audit_write_seconds_total", "counter", "Time spent in writing the audit log.");
    seconds(out, "audit_write_seconds_total", "", s.write_ns);
}

static void labels_of(const struct api_counter *c, char *ret, size_t cap)
{
    snprintf(ret, cap, "{method=\"%s\",route=\"%s\"}", c->route ? c->route->method : "",
             c->route ? c->route->pattern : "none");
}

static void put_requests(struct api *api, struct buf *out)
{
    char labels[256];

    family(out, "api_requests_total", "counter", "Requests, by route and class of their status.");
    for (size_t i = 0; i < api->ncounters; i++)
        for (unsigned k = 0; k < API_STATUSES; k++) {
            const struct api_counter *c = &api->counters[i];

            if (!c->requests[k])
                continue;
            labels_of(c, labels, sizeof(labels));
            labels[strlen(labels) - 1] = '\0';
            buf_addf(out, "cove_api_requests_total%s,status=\"%s\"} %" PRIu64 "\n", labels,
                     (const char *const[]){ "gone", "1xx", "2xx", "3xx", "4xx", "5xx" }[k], c->requests[k]);
        }
    family(out, "api_request_seconds_total", "counter", "Time from the head of requests to the end of their answers.");
    for (size_t i = 0; i < api->ncounters; i++) {
        labels_of(&api->counters[i], labels, sizeof(labels));
        seconds(out, "api_request_seconds_total", labels, api->counters[i].duration_ns);
    }
    uint64_t in = 0, sent = 0;
    for (size_t i = 0; i < api->ncounters; i++) {
        in += api->counters[i].bytes_in;
        sent += api->counters[i].bytes_out;
    }
    number(out, "api_received_bytes_total", "counter", "Bytes of the bodies of requests.", in);
    number(out, "api_sent_bytes_total", "counter", "Bytes of the bodies of answers.", sent);
    if (!api->server)
        return;
    struct http_stats s;
    http_stats(api->server, &s);
    number(out, "api_connections", "gauge", "Open connections.", s.open);
    number(out, "api_requests_active", "gauge", "Requests under way.", s.active);
    number(out, "api_websockets", "gauge", "Open WebSockets.", s.sockets);
    number(out, "api_connections_total", "counter", "Connections that were accepted.", s.accepted);
    number(out, "api_connections_refused_total", "counter", "Connections of addresses that had too many.", s.refused);
}

static void metrics(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    auto_buf out = { 0 };

    family(&out, "build_info", "gauge", "The version of the server.");
    buf_addf(&out, "cove_build_info{version=\"%s\"} 1\n", api->set.version);
    family(&out, "uptime_seconds", "gauge", "Since the start of the server.");
    seconds(&out, "uptime_seconds", "", ev_now(api->set.ev) - api->started_ns);
    put_manager(api, &out);
    put_executor(api, &out);
    put_spending(api, &out);
    warm_metrics(api->warm, &out);
    put_store(api, &out);
    put_audit(api, &out);
    api_security_metrics(api, &out);
    put_requests(api, &out);
    if (api->set.figures)
        api->set.figures(api->set.arg, &out);
    http_answer(req, 200, "text/plain; version=0.0.4", out.data, out.len);
}

const struct http_route service_routes[] = {
    { "GET", "/health", health, HTTP_BODY_NONE, .data = &api_open },
    { "GET", "/ready", ready, HTTP_BODY_NONE, .data = &api_open },
    { "GET", "/metrics", metrics, HTTP_BODY_NONE, .data = &api_metrics },
    { 0 },
};
