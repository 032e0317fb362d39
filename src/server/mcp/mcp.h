/* mcp.h - the Model Context Protocol over HTTP: the endpoint /mcp, and /v1/mcp/sessions.
 *
 * Two eras of the protocol share the endpoint. In the legacy era (revisions 2024-11-05 to
 * 2025-11-25) a client opens a session with `initialize`; in the modern era (2026-07-28) each
 * request stands alone. A request is authenticated like one of REST; a call of a tool needs the
 * scopes of the tool, takes its rate limit and leaves an audit record with its name. */
#pragma once

#include "core/base/jsonw.h"
#include "core/ev/ev.h"
#include "policy/policy.h"
#include "server/gateway/gateway.h"
#include "service/manager.h"
#include "store/store.h"

struct mcp;
struct tools;

struct mcp_settings { /* all pointers are borrowed and must outlive the mcp */
    struct ev *ev;
    struct gateway *gateway;
    struct auth *auth;
    struct store *store;
    struct manager *manager;
    struct tools *tools;
    const struct operator_limits *operator_limits; /* NULL: none */
    const char *version;
    const char *template;  /* of a session's sandbox; "": the server's default */
    uint32_t sessions_max; /* per tenant */
    uint64_t idle_ms;      /* a session without requests ends after this time */
    bool has_fixtures;     /* adds the fixtures of the conformance suite */
};

struct mcp *mcp_new(const struct mcp_settings *set);
/* Ends all sessions; their sandboxes end with their lifetimes. After the HTTP server is freed. */
void mcp_free(struct mcp *m);
DEFINE_AUTO(mcp, mcp_free);

/* For a server that stops: ends all sessions, and begins to delete their sandboxes. */
void mcp_end_sessions(struct mcp *m);
/* Calls `done` from the loop when no deletion is in progress. */
void mcp_await_deletions(struct mcp *m, void (*done)(void *arg), void *arg);

/* For http_settings: the route tables, whose context is the mcp. */
extern const struct http_route *const mcp_tables[];
/* Writes the member "mcp" of GET /v1/capabilities. */
void mcp_write_capability(const struct mcp *m, struct jsonw *w);
/* Appends metrics in the Prometheus text format. */
void mcp_write_metrics(const struct mcp *m, struct buf *out);
