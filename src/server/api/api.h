/* api.h - the REST interface of api/openapi.yaml: route tables for the HTTP server, and the hook
 * that authenticates and authorizes each request.
 *
 * One file per resource: JSON in, one call to the manager, auth or store, JSON out. A handler never
 * blocks: if it needs an asynchronous result, the callback of that call sends the response. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/webhook.h"
#include "server/auth/auth.h"
#include "core/ev/ev.h"
#include "service/execute/executor.h"
#include "server/http/server.h"
#include "sandbox/pool/pools.h"
#include "service/manager.h"
#include "store/pools.h"
#include "store/store.h"

struct api;

struct api_settings { /* all pointers are borrowed and must outlive the api */
    struct ev *ev;
    struct store *store;
    struct manager *manager;
    struct pools *pools;       /* owned by the manager */
    struct executor *executor; /* NULL: POST /v1/execute is refused */
    struct auth *auth;
    struct audit *audit;     /* NULL: nothing is recorded */
    struct webhook *webhook; /* receives security events; NULL: none are sent */
    bool audit_content;      /* audit records hold executed code and commands in full, not only a hash and a length */
    const char *version;
    const struct store_pool *builtin_pool;                    /* the server's default pool; NULL: none */
    const struct operator_limits *operator_limits;            /* NULL: none */
    const char *login_issuer, *login_audience, *login_client; /* identity provider of `cove login`; NULL or "": none */
    const char *scratch_dir; /* directory for temporary files, removed after they are sent; NULL: no backups */
    void (*get_retention)(void *arg, struct store_retention *ret); /* current settings; NULL: everything is kept */
    /* Appends metrics of other components in the Prometheus text format; NULL: there are none. */
    void (*write_metrics)(void *arg, struct buf *out);
    void *arg;
};

extern const struct store_pool pool_defaults; /* defaults for a new pool; the name is empty */

struct api *api_new(const struct api_settings *set);
void api_free(struct api *api);
DEFINE_AUTO(api, api_free);

/* For http_settings: the route tables, and the hooks, which take the api as ctx. */
extern const struct http_route *const api_tables[];
bool api_on_request(struct http_req *req, void *ctx);
void api_on_done(const struct http_request_summary *done, void *ctx);
/* For auth_settings: closes every open stream of this key, user or tenant. */
void api_on_revoked(struct api *api, const char *id);
/* Closes every response that would never end by itself. Call it before http_server_drain. */
void api_end_streams(struct api *api);
/* For manager_settings: counts denials of a program; some of them raise a security event.
 * api_on_audit_damage raises one when the audit trail does not match its known checkpoint. */
void api_on_denials(struct api *api, const char *owner, const struct receipt *receipt);
void api_on_audit_damage(struct api *api);
/* The HTTP server whose counters appear in /metrics: NULL, or set after http_server_new. */
void api_set_server(struct api *api, const struct http_server *server);
