/* Admission checks that need only the head, ordered so that an early refusal reveals the least:
 * Host, Origin, route, body limits. */
#include "server/http/http_internal.h"

#include "server/http/origin.h"

#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <strings.h>

/* Headers that pages of an allowed origin may send and read in addition to the simple ones. */
#define CORS_HEADERS                                                                                               \
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Mcp-Method, Mcp-Name, " \
    "MCP-Protocol-Version, Mcp-Session-Id, Range, X-API-Key, X-Request-Id"
#define CORS_EXPOSED                                                                                                   \
    "Content-Range, ETag, Mcp-Session-Id, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-RateLimit-Limit, " \
    "X-RateLimit-Remaining, X-RateLimit-Reset"

static bool request_id_is_valid_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

/* A client's id is written to logs and responses, so it is used only if it is short and plain. */
static void request_id_from_header(struct http_req *req)
{
    const char *given = http_header(req, "X-Request-Id");
    size_t n = 0;

    while (given && request_id_is_valid_char(given[n]))
        n++;
    if (n > 0 && n <= REQUEST_ID_MAX && given[n] == '\0')
        memcpy(req->id, given, n + 1);
}

static int request_check_origin(struct http_req *req, struct err *err)
{
    const char *host = http_header(req, "Host"), *origin = http_header(req, "Origin");
    struct origin_host parsed;

    /* DNS rebinding needs a host name, and a Unix socket has none: only the syntax is checked
     * there. */
    if (host && (req->conn->peer.is_unix ? origin_parse_host(host, &parsed, err)
                                         : origin_check_host(host, req->s->settings.hosts, err)) < 0)
        return -1;
    if (!origin)
        return 0;
    if (!origin_allowed(origin, host, req->conn->peer.is_tls, req->s->settings.origins))
        return err_set(err, ERR_HTTP_ORIGIN, "pages of '%.100s' may not call this server", origin);
    req->cors_allowed = true;
    return 0;
}

static void request_add_cors_headers(struct http_req *req)
{
    if (!req->cors_allowed)
        return;
    http_set_header(req, "Access-Control-Allow-Origin", http_header(req, "Origin"));
    http_set_header(req, "Access-Control-Expose-Headers", CORS_EXPOSED);
    http_set_header(req, "Vary", "Origin");
}

static int request_parse_target(struct http_req *req, struct err *err)
{
    if (str_eq(req->target, "*") && str_eq(req->method, "OPTIONS"))
        return 0;
    return uri_parse(req->target, req->uri_memory, &req->uri, err);
}

static int request_refuse_unrouted(struct http_req *req, struct err *err)
{
    char allow[64];

    if (req->match.allowed_methods) {
        http_set_header(req, "Allow", route_allow_text(req->match.allowed_methods, allow));
        return err_set(err, ERR_HTTP_METHOD, "%s is not allowed for %.120s; use %s",
                       req->is_head ? "HEAD" : req->method, req->path, allow);
    }
    const char *near = router_nearest_pattern(req->s->router, &req->uri);
    if (near)
        return err_set(err, ERR_HTTP_ROUTE, "no route for %.100s; did you mean %s?", req->path, near);
    return err_set(err, ERR_HTTP_ROUTE, "no route for %.160s; GET /docs lists the paths", req->path);
}

static bool request_has_content_type(const char *header, const char *type)
{
    size_t n = strlen(type);

    return header && strncasecmp(header, type, n) == 0 && (header[n] == '\0' || strchr("; \t", header[n]));
}

static int request_check_body_headers(struct http_req *req, struct err *err)
{
    const struct http_route *r = req->match.route;
    const char *expect = http_header(req, "Expect"), *coding = http_header(req, "Content-Encoding");

    if (expect && strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_HTTP_EXPECT, "Expect: '%.40s' is not supported; send 100-continue, or omit the header",
                       expect);
    req->expects_continue = expect && !req->is_http10;
    if (!req->has_body)
        return 0;
    if (r->body == HTTP_BODY_NONE)
        return err_set(err, ERR_INVALID, "%s %s takes no body", r->method, r->pattern);
    if (coding && strcasecmp(coding, "identity") != 0)
        return err_set(err, ERR_HTTP_TYPE, "a body with a Content-Encoding is not supported; send it without");
    if (r->accept && !request_has_content_type(http_header(req, "Content-Type"), r->accept))
        return err_set(err, ERR_HTTP_TYPE, "the body must be sent with Content-Type: %s", r->accept);
    req->body_max = r->body_max                     ? r->body_max
                    : r->body == HTTP_BODY_BUFFERED ? req->s->settings.limits.body_max
                                                    : UINT64_MAX;
    if (req->content_length > req->body_max)
        return err_set(err, ERR_HTTP_TOO_LARGE, "the body has %" PRIu64 " bytes; the maximum is %" PRIu64 " bytes",
                       req->content_length, req->body_max);
    return 0;
}

int request_policy_check(struct http_req *req, struct err *err)
{
    request_id_from_header(req);
    if (request_check_origin(req, err) < 0 || request_parse_target(req, err) < 0)
        return -1;
    request_add_cors_headers(req);
    router_find(req->s->router, req->is_head ? "HEAD" : req->method, &req->uri, &req->match);
    if (!req->match.route)
        return str_eq(req->method, "OPTIONS") ? 0 : request_refuse_unrouted(req, err);
    for (size_t i = 0; i < req->match.nparams; i++)
        if (req->match.param[i].rest) {
            req->rest_param = mem_alloc(strlen(req->target) + 2);
            route_join_rest(&req->uri, req->match.param[i].seg, req->rest_param);
        }
    return request_check_body_headers(req, err);
}

bool request_policy_answer_preflight(struct http_req *req)
{
    char allow[64];

    if (req->match.route || !str_eq(req->method, "OPTIONS"))
        return false;
    if (!req->match.allowed_methods && !str_eq(req->target, "*")) {
        struct err err = { 0 };

        request_refuse_unrouted(req, &err);
        http_answer_refusal(req, &err);
        return true;
    }
    route_allow_text(req->match.allowed_methods ? req->match.allowed_methods : ROUTE_METHODS, allow);
    http_set_header(req, "Allow", allow);
    if (req->cors_allowed && http_header(req, "Access-Control-Request-Method")) {
        http_set_header(req, "Access-Control-Allow-Methods", allow);
        http_set_header(req, "Access-Control-Allow-Headers", CORS_HEADERS);
        http_set_header(req, "Access-Control-Max-Age", "600");
    }
    http_answer_empty(req, 204);
    return true;
}
