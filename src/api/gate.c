/* The hook before every handler: who is it, may they do this, not too often, and can it be recorded. In this order, so
 * that a stranger learns nothing about rights, and one without the right uses up no allowance. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>

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

static bool admit(struct http_req *req, struct api *api, const struct principal *found)
{
    const struct api_right *right = http_route(req)->data;
    struct ratelimit_answer rate = { 0 };
    struct api_request *r = http_user(req);
    struct principal *who = &r->who;
    struct err err = { 0 };

    *who = *found;
    r->known = true;
    if (principal_require(who, right->scopes, &err) < 0) {
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
};

static void on_checked(void *arg, const struct err *err, const struct principal *p)
{
    auto_free struct pending *w = arg;

    if (err)
        refuse(w->req, err, 0);
    else if (admit(w->req, w->api, p))
        http_continue(w->req);
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
                                .now_ns = ev_now(api->set.ev),
                                .now_ms = clock_real_ns() / NS_PER_MS };
    struct principal who;
    struct auth_check *later;
    uint64_t retry_ns = 0;
    struct err err = { 0 };

    if (right->open)
        return true;
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
        break;
    }
    return false;
}
