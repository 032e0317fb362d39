/* May this request come in? All that can be said from its head, in the order in which an answer would betray least:
 * is it addressed to us, does its page have any business here, is there such a thing, would the body be taken. */
#include "http/inside.h"

#include "http/origin.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"

#include <strings.h>

/* What pages of an allowed origin may send and see besides the simple ones. */
#define CORS_HEADERS \
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Range, X-API-Key, X-Request-Id"
#define CORS_EXPOSED \
    "Content-Range, ETag, Retry-After, X-Request-Id, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"

static bool id_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

/* An id from outside goes into logs and answers, so it is short and plain or it is not taken. */
static void take_id(struct http_req *req)
{
    const char *given = http_header(req, "X-Request-Id");
    size_t n = 0;

    while (given && id_char(given[n]))
        n++;
    if (n > 0 && n <= REQUEST_ID_MAX && given[n] == '\0')
        memcpy(req->id, given, n + 1);
}

static int check_origin(struct http_req *req, struct err *err)
{
    const char *host = http_header(req, "Host"), *origin = http_header(req, "Origin");
    struct origin_host parsed;

    /* A Unix socket has no name to rebind: only the form is checked there. */
    if (host && (req->conn->peer.local ? origin_parse_host(host, &parsed, err)
                                       : origin_check_host(host, req->s->set.hosts, err)) < 0)
        return -1;
    if (!origin)
        return 0;
    if (!origin_allowed(origin, host, req->conn->peer.tls, req->s->set.origins))
        return err_set(err, ERR_HTTP_ORIGIN, "pages of '%.100s' may not call this server", origin);
    req->cors = true;
    return 0;
}

static void add_cors(struct http_req *req)
{
    if (!req->cors)
        return;
    http_set_header(req, "Access-Control-Allow-Origin", http_header(req, "Origin"));
    http_set_header(req, "Access-Control-Expose-Headers", CORS_EXPOSED);
    http_set_header(req, "Vary", "Origin");
}

static int parse_target(struct http_req *req, struct err *err)
{
    if (str_eq(req->target, "*") && str_eq(req->method, "OPTIONS"))
        return 0;
    return uri_parse(req->target, req->decoded, &req->uri, err);
}

static int no_route(struct http_req *req, struct err *err)
{
    char allow[64];

    if (req->match.allow) {
        http_set_header(req, "Allow", route_allow(req->match.allow, allow));
        return err_set(err, ERR_HTTP_METHOD, "%s is not allowed for %.120s; allowed are %s",
                       req->is_head ? "HEAD" : req->method, req->path, allow);
    }
    const char *near = router_near(req->s->router, &req->uri);
    if (near)
        return err_set(err, ERR_HTTP_ROUTE, "there is no %.100s; did you mean %s?", req->path, near);
    return err_set(err, ERR_HTTP_ROUTE, "there is no %.160s", req->path);
}

static bool has_type(const char *header, const char *type)
{
    size_t n = strlen(type);

    return header && strncasecmp(header, type, n) == 0 && (header[n] == '\0' || strchr("; \t", header[n]));
}

static int check_body(struct http_req *req, struct err *err)
{
    const struct http_route *r = req->match.route;
    const char *expect = http_header(req, "Expect"), *coding = http_header(req, "Content-Encoding");

    if (expect && strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_HTTP_EXPECT, "the expectation '%.40s' is not known here", expect);
    req->expects = expect && !req->old;
    if (!req->has_body)
        return 0;
    if (r->body == HTTP_BODY_NONE)
        return err_set(err, ERR_INVALID, "%s %s takes no body", r->method, r->pattern);
    if (coding && strcasecmp(coding, "identity") != 0)
        return err_set(err, ERR_HTTP_TYPE, "bodies with a Content-Encoding are not taken");
    if (r->accept && !has_type(http_header(req, "Content-Type"), r->accept))
        return err_set(err, ERR_HTTP_TYPE, "the body must be sent with Content-Type: %s", r->accept);
    req->body_max = r->body_max                     ? r->body_max
                    : r->body == HTTP_BODY_BUFFERED ? req->s->set.limits.body_max
                                                    : UINT64_MAX;
    if (req->declared > req->body_max)
        return err_set(err, ERR_HTTP_TOO_LARGE, "the body has %" PRIu64 " bytes, and at most %" PRIu64 " are taken",
                       req->declared, req->body_max);
    return 0;
}

int check_request(struct http_req *req, struct err *err)
{
    take_id(req);
    if (check_origin(req, err) < 0 || parse_target(req, err) < 0)
        return -1;
    add_cors(req);
    router_find(req->s->router, req->is_head ? "HEAD" : req->method, &req->uri, &req->match);
    if (!req->match.route)
        return str_eq(req->method, "OPTIONS") ? 0 : no_route(req, err);
    for (size_t i = 0; i < req->match.nparams; i++)
        if (req->match.param[i].rest) {
            req->rest = mem_alloc(strlen(req->target) + 2);
            route_rest(&req->uri, req->match.param[i].seg, req->rest);
        }
    return check_body(req, err);
}

bool check_preflight(struct http_req *req)
{
    char allow[64];

    if (req->match.route || !str_eq(req->method, "OPTIONS"))
        return false;
    if (!req->match.allow && !str_eq(req->target, "*")) {
        struct err err = { 0 };

        no_route(req, &err);
        answer_error(req, &err);
        return true;
    }
    route_allow(req->match.allow ? req->match.allow : ROUTE_METHODS, allow);
    http_set_header(req, "Allow", allow);
    if (req->cors && http_header(req, "Access-Control-Request-Method")) {
        http_set_header(req, "Access-Control-Allow-Methods", allow);
        http_set_header(req, "Access-Control-Allow-Headers", CORS_HEADERS);
        http_set_header(req, "Access-Control-Max-Age", "600");
    }
    http_answer_empty(req, 204);
    return true;
}
