/* gateway.h - what every interface of the server (REST and others) needs around its handlers:
 * authorization, the audit trail, idempotency, open streams and error bodies.
 *
 * An interface is a list of route tables with a context of its own. Each row of such a table points
 * to a struct gateway_permission. The hooks of the HTTP server belong to the gateway, so a request
 * passes the same checks and leaves the same records in every interface. Of the service the
 * gateway knows only the table of tools; it asks other questions through struct gateway_hooks. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/webhook.h"
#include "server/auth/auth.h"
#include "core/ev/ev.h"
#include "server/http/server.h"
#include "store/store.h"

struct gateway;

/* Questions to the service; `arg` is passed to each. None may be NULL. */
struct gateway_hooks {
    bool (*tenant_is_suspended)(void *arg, const char *tenant); /* suspended or removed */
    bool (*sandbox_is_live)(void *arg, const char *sandbox);
    /* Returns the owner of a live sandbox; NULL: no live sandbox has this id. Valid until the next
     * turn of the loop. */
    const char *(*sandbox_owner)(void *arg, const char *sandbox);
    /* ERR_MISSING: no such live context. *ret_starting: the context is not ready yet. */
    int (*find_context)(void *arg, const char *owner, const char *sandbox, const char *context, bool *ret_starting,
                        struct err *err);
    /* Submits every end that was acknowledged ahead of its commit, so that later calls to the store
     * find it. */
    void (*flush_acknowledged_ends)(void *arg);
    void *arg;
};

struct gateway_settings { /* all pointers are borrowed and must outlive the gateway */
    struct ev *ev;
    struct store *store;
    struct auth *auth;
    struct audit *audit;     /* NULL: nothing is recorded */
    struct webhook *webhook; /* receives security events; NULL: none are sent */
    bool audit_content;      /* audit records hold executed code and commands in full, not only a hash and a length */
    struct gateway_hooks hooks;
};

struct gateway *gateway_new(const struct gateway_settings *set);
void gateway_free(struct gateway *gateway); /* after the interfaces that use it */
DEFINE_AUTO(gateway, gateway_free);

/* Makes the routes of an interface known to the audit trail; NULL-terminated. Call it before the
 * first request. */
void gateway_add_routes(struct gateway *gateway, const struct http_route *const *tables);

/* For http_settings, whose ctx is the gateway: the hooks for the requests of every interface. */
bool gateway_on_request(struct http_req *req, void *ctx);
void gateway_on_done(const struct http_request_summary *done, void *ctx);

/* A client that received the end of an execution can send another request within the same turn of
 * the loop, before that end is committed and the outcome recorded. This call brings both forward;
 * gateway_on_request makes it before a request is read. An interface that takes several messages
 * on one connection calls it before each of them. */
void gateway_commit_acknowledged_ends(struct gateway *gateway);

/* The permission that a route requires: http_route.data. */
struct gateway_permission {
    uint32_t scopes;
    enum auth_class class;
    bool is_public; /* no credential is required */
    /* A credential limited to one sandbox may use the route although its path names no sandbox.
     * With scopes, the handler restricts the request to that sandbox. */
    bool allows_sandbox_credential;
    bool requires_live_sandbox; /* such a credential is refused here after its sandbox ended, even without scopes */
    bool allows_signed_url;     /* a signed URL can grant access to the route */
};

/* For a route whose body names what is done: permission, rate limit and audit record of that
 * action, in addition to those of the route. */
struct gateway_action {
    const char *name;    /* in audit records: "tool.run" */
    const char *sandbox; /* that it acts on; NULL: none, or not known yet */
    const char *tool;    /* for the record; NULL: none */
    bool is_change;      /* a success is recorded too */
};
/* False: the request was refused and answered. Call it at most once for a request. */
bool gateway_authorize_action(struct http_req *req, const struct gateway_permission *right,
                              const struct gateway_action *action);

/* --- a request that was authorized --- */

struct gateway *gateway_of_request(const struct http_req *req); /* NULL: the gateway was freed */
const struct principal *gateway_principal(const struct http_req *req);
const char *gateway_tenant(const struct http_req *req);        /* the tenant that owns new objects */
const char *gateway_actor_id(const struct http_req *req);      /* user or key id, for records; "": the local owner */
const char *gateway_visible_owner(const struct http_req *req); /* visible tenant; STORE_ANY_OWNER for admin */

/* --- counters --- */

#define GATEWAY_STATUSES 6u /* index: first digit of the status; 0: the client disconnected */

struct gateway_counter {
    const struct http_route *route; /* NULL: requests without a route */
    uint64_t requests[GATEWAY_STATUSES];
    uint64_t duration_ns, bytes_in, bytes_out;
};
/* The counters of the routes that were requested, in the order of their first request. */
size_t gateway_counters(const struct gateway *gateway, const struct gateway_counter **ret);
