/* /v1/sandboxes/{id}/connections and /v1/sandboxes/{id}/network/why */
#include "server/api/api_internal.h"

#include "policy/file/network_decision.h"

#define CONNECTIONS_LISTED 100 /* without a limit */

/* --- open connections --- */

static void api_write_connection(const struct egress_connection *c, struct jsonw *w)
{
    static const char *const ways[] = { [EGRESS_WAY_PROXY] = "proxy",
                                        [EGRESS_WAY_TUNNEL] = "tunnel",
                                        [EGRESS_WAY_TRANSPARENT] = "transparent",
                                        [EGRESS_WAY_SECRET] = "secret" };

    jsonw_object(w);
    jsonw_kstr(w, "host", c->host);
    jsonw_ku64(w, "port", c->port);
    jsonw_kstr(w, "way", c->way < ARRAY_LEN(ways) && ways[c->way] ? ways[c->way] : "unknown");
    jsonw_ku64(w, "ageMs", c->age_ms);
    jsonw_ku64(w, "receivedBytes", c->received);
    jsonw_ku64(w, "sentBytes", c->sent);
    jsonw_end_object(w);
}

static void api_sandbox_on_connections(void *arg, const struct egress_listed *l, const struct err *err)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    uint64_t limit = 0;
    struct jsonw w;

    if (http_answer_if_err(req, err))
        return;
    (void)http_query_u64(req, "limit", 1, STORE_LIST_MAX, CONNECTIONS_LISTED, &limit, NULL);
    uint32_t n = (uint32_t)min_u64(l->n, limit);
    api_object_begin(&w, &out);
    jsonw_karray(&w, "items");
    for (uint32_t i = 0; i < n; i++)
        api_write_connection(&l->connections[i], &w);
    jsonw_end_array(&w);
    jsonw_ku64(&w, "more", (uint64_t)l->n - n + l->more);
    api_object_end(req, 200, &w);
}

static void api_sandbox_connections(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    static const char *const names[] = { "limit", NULL };
    const char *id = NULL;
    struct err err = { 0 };
    uint64_t limit;

    if (http_query_require_known(req, names, &err) < 0 || api_read_sandbox_id(req, &id, &err) < 0 ||
        http_query_u64(req, "limit", 1, STORE_LIST_MAX, CONNECTIONS_LISTED, &limit, &err) < 0)
        http_answer_err(req, &err);
    else
        manager_sandbox_connections(api->settings.manager, gateway_visible_owner(req), id, api_sandbox_on_connections,
                                    req);
}

/* --- the decision about a URL --- */

static void api_network_explain(struct http_req *req, const struct network_policy *network)
{
    const struct api *api = http_route_ctx(req);
    const struct operator_limits *limits = api->settings.operator_limits;
    const char *url = http_query(req, "url");
    struct network_decision d;
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;

    if (network_decide(network, limits ? limits->open_ranges : NULL, limits ? limits->nopen_ranges : 0, url,
                       http_query(req, "method"), &d, &err) < 0) {
        http_answer_err(req, &err);
    } else {
        jsonw_init(&w, &out, 0);
        network_decision_write(&d, url, &w);
        http_answer_json(req, 200, &out);
    }
    network_decision_done(&d);
}

static void api_network_on_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct http_req *req = arg;
    struct err why = { 0 };
    struct spec spec;

    if (http_answer_if_err(req, err))
        return;
    if (manager_read_stored_spec(row, &spec, &why) < 0) {
        http_answer_err(req, &why);
        return;
    }
    api_network_explain(req, &spec.network);
    spec_done(&spec);
}

static void api_network_why(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "url", "method", NULL };
    struct api *api = ctx;
    const char *id = NULL, *url = http_query(req, "url");
    struct err err = { 0 };

    if (http_query_require_known(req, names, &err) < 0 || api_read_sandbox_id(req, &id, &err) < 0)
        http_answer_err(req, &err);
    else if (!url || !*url)
        http_refuse(req, ERR_INVALID, "url: is required, such as ?url=https://pypi.org/simple/");
    else
        store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, api_network_on_row, req);
}

/* --- the audit record --- */

void api_record_network(const struct http_req *req, const struct network_policy *network)
{
    if (network->mode != NETWORK_NONE)
        audit_trail_add_detail(req, "network", network->rules ? network->rules : "");
}

const struct http_route sandbox_network_routes[] = {
    { "GET", "/v1/sandboxes/{sandboxId}/connections", api_sandbox_connections, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read },
    { "GET", "/v1/sandboxes/{sandboxId}/network/why", api_network_why, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read },
    { 0 },
};
