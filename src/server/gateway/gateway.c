/* The gateway itself: its life, the routes of the interfaces, the counters of requests, and what a
 * handler asks about its request. Each other file of this directory is one of its tasks. */
#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>

struct gateway *gateway_new(const struct gateway_settings *set)
{
    struct gateway *gateway = mem_new(struct gateway);

    gateway->settings = *set;
    gateway->started_ms = clock_real_ms();
    audit_trail_init(gateway);
    return gateway;
}

void gateway_free(struct gateway *gateway)
{
    if (gateway)
        audit_trail_done(gateway);
    free(gateway);
}

void gateway_add_routes(struct gateway *gateway, const struct http_route *const *tables)
{
    for (; *tables; tables++)
        audit_trail_add_routes(gateway, *tables);
}

void gateway_commit_acknowledged_ends(struct gateway *gateway)
{
    gateway->settings.hooks.flush_acknowledged_ends(gateway->settings.hooks.arg);
    audit_trail_flush_pending(gateway);
}

/* --- counters --- */

static struct gateway_counter *gateway_route_counter(struct gateway *gateway, const struct http_route *route)
{
    for (size_t i = 0; i < gateway->ncounters; i++)
        if (gateway->counters[i].route == route)
            return &gateway->counters[i];
    if (gateway->ncounters == GATEWAY_ROUTES_MAX)
        return NULL;
    struct gateway_counter *c = &gateway->counters[gateway->ncounters++];
    c->route = route;
    return c;
}

void gateway_on_done(const struct http_request_summary *done, void *ctx)
{
    struct gateway_counter *c = gateway_route_counter(ctx, done->route);
    unsigned class = done->status / 100 > 0 && done->status < 600 ? (unsigned)done->status / 100 : 0;

    if (!done->hook_called)
        audit_trail_unrouted_request(ctx, done);
    if (!c)
        return;
    c->requests[class]++;
    c->duration_ns += done->duration_ns;
    c->bytes_in += done->bytes_in;
    c->bytes_out += done->bytes_out;
}

size_t gateway_counters(const struct gateway *gateway, const struct gateway_counter **ret)
{
    *ret = gateway->counters;
    return gateway->ncounters;
}

/* --- a request that was authorized --- */

struct gateway *gateway_of_request(const struct http_req *req)
{
    const struct gateway_request *r = http_user_data(req);

    return r->gateway;
}

const struct principal *gateway_principal(const struct http_req *req)
{
    const struct gateway_request *r = http_user_data(req);

    return r ? &r->principal : NULL;
}

const char *gateway_tenant(const struct http_req *req)
{
    return gateway_principal(req)->owner;
}

const char *gateway_actor_id(const struct http_req *req)
{
    return principal_id(gateway_principal(req));
}

const char *gateway_visible_owner(const struct http_req *req)
{
    return principal_has_scopes(gateway_principal(req), SCOPE_BIT(ADMIN)) ? STORE_ANY_OWNER : gateway_tenant(req);
}
