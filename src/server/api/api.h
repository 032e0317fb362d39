/* api.h - the REST interface of api/openapi.yaml: route tables for the HTTP server, and the hook that asks who it is.
 *
 * One file per resource: JSON in, one call to sandbox, auth or store, JSON out. A handler never waits; what it waits
 * for answers the request later. */
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

struct api_settings { /* all borrowed for the life of the api */
    struct ev *ev;
    struct store *store;
    struct manager *manager;
    struct pools *pools;       /* the manager's */
    struct executor *executor; /* NULL: POST /v1/execute is refused */
    struct auth *auth;
    struct audit *audit;     /* NULL: nothing is recorded */
    struct webhook *webhook; /* for security events; NULL: none */
    bool audit_content;      /* what is run is recorded as it is, not by its hash */
    const char *version;
    const struct store_pool *builtin_pool;                    /* that the server keeps without being told; NULL: none */
    const struct operator_limits *operator_limits;            /* of the operator; NULL: none */
    const char *login_issuer, *login_audience, *login_client; /* where people log in; NULL or "": nowhere */
    const char *scratch_dir; /* a directory for files that are gone when they were sent; NULL: no backups */
    void (*get_retention)(void *arg, struct store_retention *ret); /* as it is now; NULL: everything is kept */
    /* Adds figures of the server's other parts to /metrics, in its form; NULL: there are none. */
    void (*write_metrics)(void *arg, struct buf *out);
    void *arg;
};

extern const struct store_pool pool_defaults; /* what a pool is of which nothing is said; without a name */

struct api *api_new(const struct api_settings *set);
void api_free(struct api *api);
DEFINE_AUTO(api, api_free);

/* For http_settings: its tables, and its hooks with the api as ctx. */
extern const struct http_route *const api_tables[];
bool api_on_request(struct http_req *req, void *ctx);
void api_on_done(const struct http_request_summary *done, void *ctx);
/* For auth_settings: what this key, user or tenant has open ends. */
void api_on_revoked(struct api *api, const char *id);
/* Ends every answer that would go on for ever; before http_server_drain. */
void api_end_streams(struct api *api);
/* For manager_settings: what was refused to a program may be worth an alarm. And when the log is not what is known. */
void api_on_denials(struct api *api, const char *owner, const struct receipt *receipt);
void api_on_audit_damage(struct api *api);
/* Figures of the server itself in /metrics; NULL, or after http_server_new. */
void api_set_server(struct api *api, const struct http_server *server);
