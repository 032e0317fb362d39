/* The hook before every handler: who is it, may they do this, not too often, and can it be recorded. In this order, so
 * that a stranger learns nothing about rights, and one without the right uses up no allowance. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define SOCKET_KEY "cove.key."

static void set_number(struct http_req *req, const char *name, uint64_t v)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, v);
    http_set_header(req, name, text);
}

static uint64_t seconds_up(uint64_t ns)
{
    return (ns + NS_PER_S - 1) / NS_PER_S;
}

static void refuse(struct http_req *req, const struct err *err, uint64_t retry_ns)
{
    if (err->id == ERR_UNAUTHORIZED)
        http_set_header(req, "WWW-Authenticate", "Bearer realm=\"cove\"");
    if (retry_ns)
        set_number(req, "Retry-After", max_u64(seconds_up(retry_ns), 1));
    http_answer_err(req, err);
}

static bool is_handed_on(const struct principal *p)
{
    return p->kind == PRINCIPAL_SANDBOX_TOKEN || p->kind == PRINCIPAL_TICKET || p->kind == PRINCIPAL_SIGNED;
}

/* Somebody with less than a key: where may they go? Of another sandbox they learn nothing. An operator still looks into
 * a tenant that is suspended; whom they handed something on to does not. */
static int check_place(struct http_req *req, const struct api *api, const struct principal *p, struct err *err)
{
    const struct api_right *right = http_route(req)->data;
    const char *sandbox = http_param(req, "sandboxId"), *port = http_param(req, "port");
    uint64_t number = 0;

    if (is_handed_on(p) && manager_tenant_barred(api->set.manager, p->owner))
        return err_set(err, ERR_TENANT_SUSPENDED, "the tenant %s is suspended", p->owner);
    if (p->kind == PRINCIPAL_SIGNED && !right->by_url)
        return err_set(err, ERR_UNAUTHORIZED, "the signature is not for this");
    if (!p->sandbox[0])
        return 0;
    if (!sandbox)
        return right->anywhere ? 0
                               : err_set(err, ERR_DENIED, "this credential is for one sandbox, and for nothing else");
    if (!str_eq(sandbox, p->sandbox))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (p->kind != PRINCIPAL_SIGNED && !manager_lives(api->set.manager, STORE_ANY_OWNER, sandbox))
        return err_set(err, ERR_UNAUTHORIZED, "the sandbox of this token has ended, and the token with it");
    if (p->port && (!port || !str_to_u64(port, UINT16_MAX, &number) || number != p->port))
        return err_set(err, ERR_DENIED, "this credential is for port %u of the sandbox, and for nothing else", p->port);
    return 0;
}

/* What a URL may show besides what it was signed for. */
static int check_query(struct http_req *req, const struct principal *p, struct err *err)
{
    static const char *const names[] = { "path", NULL };

    return p->kind == PRINCIPAL_SIGNED ? http_query_only(req, names, err) : 0;
}

static bool admit(struct http_req *req, struct api *api, const struct principal *found)
{
    const struct api_right *right = http_route(req)->data;
    struct ratelimit_answer rate = { 0 };
    struct api_request *r = http_user(req);
    struct principal *who = &r->who;
    struct err err = { 0 };

    *who = *found;
    r->known = true;
    api_record_place(r);
    if (who->kind == PRINCIPAL_TICKET || who->kind == PRINCIPAL_SIGNED) { /* its URL is a secret */
        http_set_header(req, "Cache-Control", "no-store");
        http_set_header(req, "Referrer-Policy", "no-referrer");
    }
    if (check_place(req, api, who, &err) < 0 || principal_require(who, right->scopes, &err) < 0 ||
        check_query(req, who, &err) < 0) {
        refuse(req, &err, 0);
        return false;
    }
    bool granted = auth_rate(api->set.auth, who, right->class, ev_now(api->set.ev), &rate);
    if (rate.limit) {
        set_number(req, "X-RateLimit-Limit", rate.limit);
        set_number(req, "X-RateLimit-Remaining", rate.remaining);
        set_number(req, "X-RateLimit-Reset", seconds_up(rate.reset_ns));
    }
    if (!granted)
        err_set(&err, ERR_RATE_LIMITED, "this key has made too many requests of this kind");
    else if (api_record_may(r, &err) == 0)
        return true;
    refuse(req, &err, rate.retry_ns);
    return false;
}

struct pending {
    struct http_req *req;
    struct api *api;
    uint64_t retry_ns; /* if it comes too often */
};

static void on_checked(void *arg, const struct err *err, const struct principal *p)
{
    auto_free struct pending *w = arg;

    if (err)
        refuse(w->req, err, err->id == ERR_RATE_LIMITED ? w->retry_ns : 0);
    else if (admit(w->req, w->api, p))
        http_continue(w->req);
}

/* A web page cannot set a header of a WebSocket but this one: its key is a subprotocol that is never agreed on. */
static const char *key_of_socket(struct http_req *req)
{
    const char *offered = http_header(req, "Sec-WebSocket-Protocol");
    const char *at = offered && http_header(req, "Upgrade") ? strstr(offered, SOCKET_KEY) : NULL;

    if (!at || (at != offered && !strchr(", \t", at[-1])))
        return NULL;
    at += strlen(SOCKET_KEY);
    char *key = str_dup_n(at, strcspn(at, ", \t"));
    http_keep(req, key, free);
    return key;
}

bool api_on_request(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const struct api_right *right = http_route(req)->data;
    const struct http_peer *peer = http_peer(req);
    struct auth_request ask = { .authorization = http_header(req, "Authorization"),
                                .x_api_key = http_header(req, "X-API-Key"),
                                .peer = peer->local ? NULL : peer->addr,
                                .over_socket = peer->local,
                                .peer_uid = peer->uid,
                                .ticket = right->open ? NULL : http_take_query(req, "ticket"),
                                .signature = right->open ? NULL : http_take_query(req, "signature"),
                                .method = http_method(req),
                                .path = http_path(req),
                                .file = http_query(req, "path"),
                                .now_ns = ev_now(api->set.ev),
                                .now_ms = clock_real_ns() / NS_PER_MS };
    struct principal who;
    struct auth_check *later;
    uint64_t retry_ns = 0;
    struct err err = { 0 };

    if (right->open)
        return true;
    manager_settle(api->set.manager);
    api_record_settle(api);
    if (!ask.authorization && !ask.x_api_key)
        ask.x_api_key = key_of_socket(req);
    api_record_new(api, req);
    struct pending *w = mem_new(struct pending);
    w->req = req;
    w->api = api;
    switch (auth_check(api->set.auth, &ask, &who, &retry_ns, &err, on_checked, w, &later)) {
    case AUTH_YES:
        free(w);
        return admit(req, api, &who);
    case AUTH_NO:
        free(w);
        refuse(req, &err, retry_ns);
        return false;
    case AUTH_LATER:
        w->retry_ns = retry_ns;
        break;
    }
    return false;
}
