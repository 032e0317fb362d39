/* /v1/usage/live: every live sandbox with its current usage, in one response, for dashboards. All
 * sandboxes are queried at once; the response is sent after the last reply. A query does not count
 * as use: it does not keep a sandbox from becoming idle. */
#include "server/api/api_internal.h"
#include "service/live_sandboxes.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#define LIVE_SANDBOXES_MAX 1000u

struct live_usage_entry {
    struct live_usage_query *query;
    struct live_sandbox sandbox;
    bool has_usage;
    struct sandbox_handle_usage usage;
};

struct live_usage_query {
    struct http_req *req;
    struct live_usage_entry *entries;
    size_t n, waiting;
};

static void live_usage_put_figure(struct jsonw *w, const char *name, uint64_t v)
{
    if (v != SANDBOX_USAGE_UNKNOWN)
        jsonw_ku64(w, name, v);
}

static void live_usage_write_entry(struct jsonw *w, const struct live_usage_entry *l)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", l->sandbox.id);
    jsonw_kstr(w, "tenant", l->sandbox.owner);
    jsonw_kstr(w, "state", l->sandbox.paused ? "paused" : "running");
    api_write_time(w, "createdAt", l->sandbox.created_ms);
    jsonw_ku64(w, "executions", l->sandbox.executions);
    if (l->usage.cpu_ns != SANDBOX_USAGE_UNKNOWN)
        jsonw_kms(w, "cpuMs", l->usage.cpu_ns);
    live_usage_put_figure(w, "memoryBytes", l->usage.memory);
    live_usage_put_figure(w, "pids", l->usage.pids);
    jsonw_kobject(w, "limits");
    jsonw_ku64(w, "cpuMillis", l->sandbox.cpu_millis);
    jsonw_ku64(w, "memoryBytes", l->sandbox.memory_bytes);
    jsonw_ku64(w, "pids", l->sandbox.pids);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void live_usage_answer(struct live_usage_query *g)
{
    struct buf out = { 0 };
    struct jsonw w;

    api_object_begin(&w, &out);
    api_write_time(&w, "at", clock_real_ms());
    jsonw_karray(&w, "sandboxes");
    for (size_t i = 0; i < g->n; i++)
        if (g->entries[i].has_usage)
            live_usage_write_entry(&w, &g->entries[i]);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "truncated", g->n == LIVE_SANDBOXES_MAX);
    api_object_end(g->req, 200, &w);
    free(g->entries);
    free(g);
}

/* A sandbox that ended in the meantime is omitted. */
static void live_usage_on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct live_usage_entry *l = arg;
    struct live_usage_query *g = l->query;

    l->has_usage = !err;
    if (!err)
        l->usage = *u;
    if (--g->waiting == 0)
        live_usage_answer(g);
}

static void api_live_usage(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct live_sandbox *living = mem_new_array(struct live_sandbox, LIVE_SANDBOXES_MAX);
    struct live_usage_query *g = mem_new(struct live_usage_query);

    g->req = req;
    g->n = live_sandboxes_list(manager_live_sandboxes(api->settings.manager), gateway_visible_owner(req), living,
                               LIVE_SANDBOXES_MAX);
    g->entries = mem_new_array(struct live_usage_entry, g->n + 1);
    g->waiting = g->n;
    for (size_t i = 0; i < g->n; i++)
        g->entries[i] = (struct live_usage_entry){ .query = g, .sandbox = living[i] };
    for (size_t i = 0; i < g->n; i++)
        manager_sandbox_usage(api->settings.manager, STORE_ANY_OWNER, living[i].id, live_usage_on_usage,
                              &g->entries[i]);
    free(living);
    if (g->n == 0)
        live_usage_answer(g);
}

const struct http_route live_usage_routes[] = {
    { "GET", "/v1/usage/live", api_live_usage, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { 0 },
};
