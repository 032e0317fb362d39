/* The endpoint: routes, the life of the component, and its metrics. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/metrics.h"
#include "core/base/str.h"

#include <stdio.h>

struct mcp *mcp_new(const struct mcp_settings *set)
{
    struct mcp *m = mem_new(struct mcp);

    m->settings = *set;
    m->template_cache = template_cache_new(set->store);
    if (set->has_fixtures)
        m->fixtures = mcp_fixtures_new();
    gateway_add_routes(set->gateway, mcp_tables);
    return m;
}

void mcp_end_sessions(struct mcp *m)
{
    while (m->sessions)
        mcp_session_end(m->sessions);
}

void mcp_await_deletions(struct mcp *m, void (*done)(void *arg), void *arg)
{
    m->on_deleted = done;
    m->on_deleted_arg = arg;
    mcp_deletions_check(m);
}

void mcp_free(struct mcp *m)
{
    if (!m)
        return;
    mcp_calls_free(m);
    while (m->sessions) {
        mcp_listener_free(m->sessions);
        mcp_session_free(m->sessions);
    }
    mcp_sandbox_jobs_free(m);
    ev_timer_clear(m->settings.ev, &m->expiry_timer);
    ev_defer_clear(m->settings.ev, &m->on_deleted_defer);
    mcp_fixtures_free(m->fixtures);
    template_cache_free(m->template_cache);
    free(m);
}

/* --- routes --- */

static void mcp_post(struct http_req *req, void *ctx)
{
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0)
        http_answer_err(req, &err);
    else
        mcp_dispatch(req, ctx);
}

static void mcp_get(struct http_req *req, void *ctx)
{
    mcp_legacy_get(req, ctx);
}

static void mcp_delete(struct http_req *req, void *ctx)
{
    mcp_legacy_delete(req, ctx);
}

/* The scopes are those of the tool that a message calls. */
static const struct gateway_permission mcp_permission = { .allows_sandbox_credential = true,
                                                          .requires_live_sandbox = true };

static const struct http_route mcp_routes[] = {
    { "POST", "/mcp", mcp_post, HTTP_BODY_BUFFERED, .body_max = JSONRPC_MESSAGE_MAX, .accept = "application/json",
      .data = &mcp_permission },
    { "GET", "/mcp", mcp_get, HTTP_BODY_NONE, .data = &mcp_permission },
    { "DELETE", "/mcp", mcp_delete, HTTP_BODY_NONE, .data = &mcp_permission },
    { 0 },
};

const struct http_route *const mcp_tables[] = { mcp_routes, mcp_session_routes, NULL };

void mcp_write_capability(const struct mcp *m, struct jsonw *w)
{
    jsonw_kobject(w, "mcp");
    jsonw_kstr(w, "path", mcp_routes[0].pattern);
    jsonw_karray(w, "revisions");
    jsonw_str(w, MCP_MODERN_REVISION);
    for (size_t i = 0; mcp_legacy_revisions[i]; i++)
        jsonw_str(w, mcp_legacy_revisions[i]);
    jsonw_end_array(w);
    jsonw_ku64(w, "sessionsPerTenant", m->settings.sessions_max);
    jsonw_ku64(w, "idleTimeoutMs", m->settings.idle_ms);
    jsonw_end_object(w);
}

/* --- metrics --- */

static const char *const mcp_outcome_names[MCP_OUTCOMES] = { "answered", "failed", "cancelled" };

static void mcp_write_method_counts(struct buf *out, const char *name, const uint64_t counts[MCP_OUTCOMES])
{
    char labels[96];

    for (unsigned i = 0; i < MCP_OUTCOMES; i++) {
        if (!counts[i])
            continue;
        snprintf(labels, sizeof(labels), "{method=\"%s\",outcome=\"%s\"}", name, mcp_outcome_names[i]);
        metrics_value(out, "mcp_requests_total", labels, counts[i]);
    }
}

void mcp_write_metrics(const struct mcp *m, struct buf *out)
{
    metrics_number(out, "mcp_sessions", "Open MCP sessions.", m->nsessions);
    metrics_number(out, "mcp_sessions_opened_total", "MCP sessions opened.", m->sessions_opened);
    metrics_number(out, "mcp_sessions_expired_total", "MCP sessions that ended because they were not used.",
                   m->sessions_expired);
    metrics_number(out, "mcp_sessions_refused_total", "MCP sessions refused because their tenant had too many.",
                   m->sessions_refused);
    metrics_family(out, "mcp_requests_total", NULL, "MCP requests, by method and outcome.");
    for (size_t i = 0; mcp_methods[i].name; i++)
        mcp_write_method_counts(out, mcp_methods[i].name, m->counts[i]);
    mcp_write_method_counts(out, "unknown", m->counts[MCP_METHODS_MAX]);
}
