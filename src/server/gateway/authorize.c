/* The hook before every handler. It checks in this order: credential, permission, rate limit,
 * audit. An unauthenticated client thus learns nothing about permissions, and a request without
 * permission uses up no rate limit. */
#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define SOCKET_KEY "cove.key."

static void authorize_set_number_header(struct http_req *req, const char *name, uint64_t v)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, v);
    http_set_header(req, name, text);
}

static uint64_t authorize_round_up_seconds(uint64_t ns)
{
    return (ns + NS_PER_S - 1) / NS_PER_S;
}

/* The fields of draft-ietf-httpapi-ratelimit-headers, and the older ones with the same figures. */
static void authorize_set_rate_headers(struct http_req *req, enum auth_class class, const struct ratelimit_answer *rate)
{
    uint64_t reset = authorize_round_up_seconds(rate->reset_ns);
    char text[96];

    snprintf(text, sizeof(text), "\"%s\";q=%" PRIu32 ";w=%" PRIu64, auth_class_name(class), rate->limit,
             max_u64(authorize_round_up_seconds(rate->window_ns), 1));
    http_set_header(req, "RateLimit-Policy", text);
    snprintf(text, sizeof(text), "\"%s\";r=%" PRIu32 ";t=%" PRIu64, auth_class_name(class), rate->remaining, reset);
    http_set_header(req, "RateLimit", text);
    authorize_set_number_header(req, "X-RateLimit-Limit", rate->limit);
    authorize_set_number_header(req, "X-RateLimit-Remaining", rate->remaining);
    authorize_set_number_header(req, "X-RateLimit-Reset", reset);
}

static void authorize_refuse(struct http_req *req, const struct err *err, uint64_t retry_ns)
{
    if (err->id == ERR_UNAUTHORIZED)
        http_set_header(req, "WWW-Authenticate", "Bearer realm=\"cove\"");
    if (retry_ns)
        authorize_set_number_header(req, "Retry-After", max_u64(authorize_round_up_seconds(retry_ns), 1));
    http_answer_err(req, err);
}

/* Restricts delegated credentials, which are weaker than a key. Another sandbox looks as if it did
 * not exist. An operator's own key still works in a suspended tenant; credentials delegated from it
 * do not. */
static int authorize_check_credential(struct http_req *req, const struct gateway *gateway, const struct principal *p,
                                      struct err *err)
{
    const struct gateway_permission *right = http_route(req)->data;
    const struct gateway_hooks *hooks = &gateway->settings.hooks;
    const char *sandbox = http_param(req, "sandboxId"), *port = http_param(req, "port");
    uint64_t number = 0;

    if (principal_is_delegated(p) && hooks->tenant_is_suspended(hooks->arg, p->owner))
        return err_set(err, ERR_TENANT_SUSPENDED, "the tenant %s is suspended", p->owner);
    if (p->kind == PRINCIPAL_SIGNED && !right->allows_signed_url)
        return err_set(err, ERR_UNAUTHORIZED, "the signature is for another kind of request");
    if (!p->sandbox[0])
        return 0;
    if (!sandbox && !right->allows_sandbox_credential)
        return err_set(err, ERR_DENIED, "this credential is only valid for one sandbox");
    if (!sandbox && !right->scopes && !right->requires_live_sandbox)
        return 0; /* the request is about the credential itself */
    sandbox = sandbox ? sandbox : p->sandbox;
    if (!str_eq(sandbox, p->sandbox))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (p->kind != PRINCIPAL_SIGNED && !hooks->sandbox_is_live(hooks->arg, sandbox))
        return err_set(err, ERR_UNAUTHORIZED, "the token expired when its sandbox ended");
    if (p->port && (!port || !str_to_u64(port, UINT16_MAX, &number) || number != p->port))
        return err_set(err, ERR_DENIED, "this credential is only valid for port %u of its sandbox", p->port);
    return 0;
}

/* Refuses query parameters other than those that a signed URL covers. */
static int authorize_check_signed_query(struct http_req *req, const struct principal *p, struct err *err)
{
    static const char *const names[] = { "path", NULL };

    return p->kind == PRINCIPAL_SIGNED ? http_query_require_known(req, names, err) : 0;
}

static bool authorize_request(struct http_req *req, struct gateway *gateway, const struct principal *found)
{
    const struct gateway_permission *right = http_route(req)->data;
    struct ratelimit_answer rate = { 0 };
    struct gateway_request *r = http_user_data(req);
    struct principal *principal = &r->principal;
    struct err err = { 0 };

    *principal = *found;
    r->authenticated = true;
    audit_trail_resolve_tenant(r);
    if (principal->kind == PRINCIPAL_TICKET || principal->kind == PRINCIPAL_SIGNED) { /* the URL contains a secret */
        http_set_header(req, "Cache-Control", "no-store");
        http_set_header(req, "Referrer-Policy", "no-referrer");
    }
    if (authorize_check_credential(req, gateway, principal, &err) < 0 ||
        principal_require(principal, right->scopes, &err) < 0 ||
        authorize_check_signed_query(req, principal, &err) < 0) {
        authorize_refuse(req, &err, 0);
        return false;
    }
    bool granted = auth_rate_take(gateway->settings.auth, principal, right->class, ev_now(gateway->settings.ev), &rate);
    if (rate.limit)
        authorize_set_rate_headers(req, right->class, &rate);
    if (!granted)
        err_set(&err, ERR_RATE_LIMITED,
                "too many requests of this kind with this key; retry after the time in Retry-After");
    else if (audit_trail_can_record(r, &err) == 0)
        return true;
    authorize_refuse(req, &err, rate.retry_ns);
    return false;
}

/* A credential for one sandbox may do nothing outside of it. */
static int authorize_check_action(const struct gateway *gateway, const struct principal *p,
                                  const struct gateway_action *action, struct err *err)
{
    if (!p->sandbox[0])
        return 0;
    if (!action->sandbox)
        return err_set(err, ERR_DENIED, "this credential is only valid for one sandbox");
    if (!str_eq(p->sandbox, action->sandbox))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (!gateway->settings.hooks.sandbox_is_live(gateway->settings.hooks.arg, action->sandbox))
        return err_set(err, ERR_UNAUTHORIZED, "the token expired when its sandbox ended");
    return 0;
}

bool gateway_authorize_action(struct http_req *req, const struct gateway_permission *right,
                              const struct gateway_action *action)
{
    struct gateway_request *r = http_user_data(req);
    struct gateway *gateway = r->gateway;
    struct ratelimit_answer rate = { 0 };
    struct err err = { 0 };

    audit_trail_set_action(r, action);
    if (authorize_check_action(gateway, &r->principal, action, &err) < 0 ||
        principal_require(&r->principal, right->scopes, &err) < 0) {
        authorize_refuse(req, &err, 0);
        return false;
    }
    /* The route has already taken a token of the default class. */
    if (right->class != AUTH_CLASS_DEFAULT) {
        bool granted = auth_rate_take(gateway->settings.auth, &r->principal, right->class, ev_now(gateway->settings.ev),
                                      &rate);

        if (rate.limit)
            authorize_set_rate_headers(req, right->class, &rate);
        if (!granted) {
            err_set(&err, ERR_RATE_LIMITED,
                    "too many requests of this kind with this key; retry after the time in Retry-After");
            authorize_refuse(req, &err, rate.retry_ns);
            return false;
        }
    }
    if (audit_trail_can_record(r, &err) == 0)
        return true;
    authorize_refuse(req, &err, 0);
    return false;
}

struct pending_authorization {
    struct http_req *req;
    struct gateway *gateway;
    uint64_t retry_ns; /* Retry-After of ERR_RATE_LIMITED */
};

static void authorize_on_checked(void *arg, const struct err *err, const struct principal *p)
{
    auto_free struct pending_authorization *w = arg;

    if (err)
        authorize_refuse(w->req, err, err->id == ERR_RATE_LIMITED ? w->retry_ns : 0);
    else if (authorize_request(w->req, w->gateway, p))
        http_pass_to_handler(w->req);
}

/* A web page can set no WebSocket header except this one, so it passes its key as a subprotocol,
 * which the server never selects. */
static const char *authorize_websocket_key(struct http_req *req)
{
    const char *offered = http_header(req, "Sec-WebSocket-Protocol");
    const char *at = offered && http_header(req, "Upgrade") ? strstr(offered, SOCKET_KEY) : NULL;

    if (!at || (at != offered && !strchr(", \t", at[-1])))
        return NULL;
    at += strlen(SOCKET_KEY);
    char *key = str_dup_n(at, strcspn(at, ", \t"));
    http_free_with_request(req, key, free);
    return key;
}

bool gateway_on_request(struct http_req *req, void *ctx)
{
    struct gateway *gateway = ctx;
    const struct gateway_permission *right = http_route(req)->data;
    const struct http_peer *peer = http_peer(req);
    struct auth_request ask = { .authorization = http_header(req, "Authorization"),
                                .x_api_key = http_header(req, "X-API-Key"),
                                .peer = peer->is_unix ? NULL : peer->addr,
                                .over_socket = peer->is_unix,
                                .peer_uid = peer->uid,
                                .ticket = right->is_public ? NULL : http_query_take(req, "ticket"),
                                .signature = right->is_public ? NULL : http_query_take(req, "signature"),
                                .method = http_method(req),
                                .path = http_path(req),
                                .file = http_query(req, "path"),
                                .now_ns = ev_now(gateway->settings.ev),
                                .now_ms = clock_real_ms() };
    struct principal principal;
    struct auth_check *later;
    uint64_t retry_ns = 0;
    struct err err = { 0 };

    if (right->is_public)
        return true;
    gateway_commit_acknowledged_ends(gateway);
    if (!ask.authorization && !ask.x_api_key)
        ask.x_api_key = authorize_websocket_key(req);
    audit_trail_new_request(gateway, req);
    struct pending_authorization *w = mem_new(struct pending_authorization);
    w->req = req;
    w->gateway = gateway;
    switch (auth_check(gateway->settings.auth, &ask, &principal, &retry_ns, &err, authorize_on_checked, w, &later)) {
    case AUTH_YES:
        free(w);
        return authorize_request(req, gateway, &principal);
    case AUTH_NO:
        free(w);
        authorize_refuse(req, &err, retry_ns);
        return false;
    case AUTH_LATER:
        w->retry_ns = retry_ns;
        break;
    }
    return false;
}
