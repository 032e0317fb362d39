/* api.h - the REST interface of api/openapi.yaml: route tables for the HTTP server. The gateway
 * authenticates, authorizes and records each request.
 *
 * One file per resource: JSON in, one call to the manager, auth or store, JSON out. A handler never
 * blocks: if it needs an asynchronous result, the callback of that call sends the response. */
#pragma once

#include "server/audit/audit.h"
#include "server/auth/auth.h"
#include "core/ev/ev.h"
#include "service/execute/executor.h"
#include "service/tools/tools.h"
#include "server/gateway/gateway.h"
#include "server/http/server.h"
#include "sandbox/pool/pools.h"
#include "service/manager.h"
#include "service/script_cache.h"
#include "service/secrets.h"
#include "store/pools.h"
#include "store/store.h"

struct api;

struct api_settings { /* all pointers are borrowed and must outlive the api */
    struct ev *ev;
    struct gateway *gateway;
    struct store *store;
    struct manager *manager;
    struct pools *pools;       /* owned by the manager */
    struct executor *executor; /* NULL: POST /v1/execute is refused */
    struct tools *tools;
    struct script_cache *script_cache;
    struct secrets *secrets;
    struct auth *auth;
    struct audit *audit; /* the audit log that GET /v1/audit reads; NULL: nothing is recorded */
    const char *version;
    const struct store_pool *builtin_pools; /* the server's default pools */
    size_t nbuiltin_pools;
    const struct operator_limits *operator_limits;            /* NULL: none */
    uint64_t connections_per_sandbox, connections_per_tenant; /* of the egress proxy, for display; 0: not known */
    const char *login_issuer, *login_audience, *login_client; /* identity provider of `cove login`; NULL or "": none */
    const char *scratch_dir; /* directory for temporary files, removed after they are sent; NULL: no backups */
    void (*get_retention)(void *arg, struct store_retention *ret); /* current settings; NULL: everything is kept */
    /* Writes members of other components into the object of GET /v1/capabilities; NULL: none. */
    void (*write_capabilities)(void *arg, struct jsonw *w);
    /* Appends metrics of other components in the Prometheus text format; NULL: there are none. */
    void (*write_metrics)(void *arg, struct buf *out);
    void *arg;
};

extern const struct store_pool pool_defaults; /* defaults for a new pool; the name is empty */

struct api *api_new(const struct api_settings *set);
void api_free(struct api *api);
DEFINE_AUTO(api, api_free);

/* For http_settings: the route tables, whose context is the api. */
extern const struct http_route *const api_tables[];
/* For gateway_settings: the hooks, answered by the manager. */
struct gateway_hooks api_service_hooks(struct manager *manager);
/* The HTTP server whose counters appear in /metrics: NULL, or set after http_server_new. */
void api_set_server(struct api *api, const struct http_server *server);
