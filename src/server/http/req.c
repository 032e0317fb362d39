/* The parts of a request that handlers read, and the lifetime of a request: until both the
 * connection has finished with it and the handler has answered. */
#include "server/http/http_internal.h"

#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#include <strings.h>

/* Unique, not secret: a random prefix for the server and a counter for the request. Reading random
 * bytes for each request would be a tenth of the cost of a small request. */
static void http_req_assign_id(struct http_server *s, char id[ID_SIZE])
{
    uint64_t n = s->stats.requests;

    if (!s->id[0])
        id_new("rq", s->id);
    memcpy(id, s->id, ID_SIZE);
    for (size_t i = ID_LEN; i-- > ID_LEN - 8; n >>= 5)
        id[i] = "abcdefghijklmnopqrstuvwxyz234567"[n & 31];
}

struct http_req *http_req_new(struct http_server *s, struct http_conn *c, const char *target)
{
    struct http_req *req = mem_new(struct http_req);

    req->s = s;
    req->conn = c;
    req->peer = c->peer;
    req->at_head = true;
    req->fd = -1;
    size_t n = strlen(target), path = strcspn(target, "?");
    req->target = mem_alloc(n + path + n + 4);
    memcpy(req->target, target, n);
    req->path = req->target + n + 1;
    memcpy(req->path, target, path);
    req->uri_memory = req->path + path + 1;
    s->stats.requests++;
    http_req_assign_id(s, req->own_id);
    memcpy(req->id, req->own_id, ID_SIZE);
    s->stats.active++;
    return req;
}

static void http_req_run_cleanups(struct http_req *req)
{
    while (req->cleanups) {
        struct http_req_cleanup *k = req->cleanups;

        req->cleanups = k->next;
        k->free_fn(k->p);
        free(k);
    }
}

static bool http_req_is_with_handler(const struct http_req *req)
{
    return (req->handler_called || req->waiting_for_hook) && !req->answer_complete;
}

void http_req_free_if_done(struct http_req *req)
{
    if (req->conn || req->answer_held || http_req_is_with_handler(req))
        return;
    http_req_run_cleanups(req);
    while (req->answer_headers) {
        struct http_answer_header *h = req->answer_headers;

        req->answer_headers = h->next;
        free(h);
    }
    buf_done(&req->body);
    buf_done(&req->content);
    buf_done(&req->stream_buf);
    fd_close(&req->fd);
    free(req->target);
    free(req->header_memory);
    free(req->headers);
    free(req->rest_param);
    free(req);
}

void http_req_detach_conn(struct http_req *req)
{
    struct http_server *s = req->s;

    ev_timer_clear(s->ev, &req->keepalive_timer);
    s->stats.active--;
    s->buffered_bytes -= req->body.len;
    req->conn = NULL;
    req->s = NULL;
    buf_clear(&req->stream_buf);
    req->stream_offset = 0;
    if (!http_req_is_with_handler(req)) {
        http_req_free_if_done(req);
        return;
    }
    /* Only one of the two callbacks: either may answer, which frees the request. */
    if (req->reader && !req->body_end_reported) {
        struct err err = { 0 };

        req->body_end_reported = true;
        err_set(&err, ERR_CLIENT_GONE, "the client disconnected before the end of the body");
        req->reader->on_fail(req->reader_arg, &err);
    } else if (req->on_gone) {
        void (*fn)(void *) = req->on_gone;

        req->on_gone = NULL;
        fn(req->gone_arg);
    }
}

const char *http_id(const struct http_req *req)
{
    return req->id;
}

const char *http_server_assigned_id(const struct http_req *req)
{
    return req->own_id;
}

const char *http_method(const struct http_req *req)
{
    return req->method;
}

const char *http_path(const struct http_req *req)
{
    return req->path;
}

const struct http_route *http_route(const struct http_req *req)
{
    return req->match.route;
}

const char *http_param(const struct http_req *req, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < req->match.nparams; i++)
        if (req->match.param[i].len == n && memcmp(req->match.param[i].name, name, n) == 0)
            return req->match.param[i].rest ? req->rest_param : req->uri.seg[req->match.param[i].seg];
    return NULL;
}

const char *http_header(const struct http_req *req, const char *name)
{
    for (size_t i = 0; i < req->nheaders; i++)
        if (strcasecmp(req->headers[i].name, name) == 0)
            return req->headers[i].value;
    return NULL;
}

const char *http_query(const struct http_req *req, const char *name)
{
    return uri_query(&req->uri, name);
}

void http_query_each(const struct http_req *req, void (*fn)(void *arg, const char *name, const char *value), void *arg)
{
    for (size_t i = 0; i < req->uri.nquery; i++)
        fn(arg, req->uri.query[i].name, req->uri.query[i].value);
}

const char *http_query_take(struct http_req *req, const char *name)
{
    struct uri *u = &req->uri;

    for (size_t i = 0; i < u->nquery; i++)
        if (str_eq(u->query[i].name, name)) {
            const char *value = u->query[i].value;

            memmove(&u->query[i], &u->query[i + 1], (u->nquery - i - 1) * sizeof(u->query[0]));
            u->nquery--;
            return value;
        }
    return NULL;
}

int http_query_require_known(const struct http_req *req, const char *const *names, struct err *err)
{
    for (size_t i = 0; i < req->uri.nquery; i++) {
        const char *name = req->uri.query[i].name;
        struct suggest near;
        bool known = false;

        suggest_init(&near, name);
        for (const char *const *n = names; *n; n++) {
            known |= str_eq(*n, name);
            suggest_offer(&near, *n);
        }
        if (known)
            continue;
        if (near.best)
            return err_set(err, ERR_INVALID, "the query parameter '%.60s' is unknown; did you mean '%s'?", name,
                           near.best);
        return err_set(err, ERR_INVALID, "the query parameter '%.60s' is unknown", name);
    }
    return 0;
}

int http_query_require_none(const struct http_req *req, struct err *err)
{
    static const char *const none[] = { NULL };

    return http_query_require_known(req, none, err);
}

int http_query_u64(const struct http_req *req, const char *name, uint64_t min, uint64_t max, uint64_t preset,
                   uint64_t *ret, struct err *err)
{
    const char *text = http_query(req, name);
    uint64_t v = preset;

    if (text && (!str_to_u64(text, max, &v) || v < min))
        return err_set(err, ERR_INVALID, "the query parameter %s must be a number from %" PRIu64 " to %" PRIu64, name,
                       min, max);
    *ret = v;
    return 0;
}

int http_query_bool(const struct http_req *req, const char *name, bool preset, bool *ret, struct err *err)
{
    const char *text = http_query(req, name);

    if (text && !str_eq(text, "true") && !str_eq(text, "false"))
        return err_set(err, ERR_INVALID, "the query parameter %s must be true or false", name);
    *ret = text ? str_eq(text, "true") : preset;
    return 0;
}

const struct http_peer *http_peer(const struct http_req *req)
{
    return &req->peer;
}

void http_free_with_request(struct http_req *req, void *p, void (*free_fn)(void *p))
{
    struct http_req_cleanup *k = mem_new(struct http_req_cleanup);

    *k = (struct http_req_cleanup){ req->cleanups, p, free_fn };
    req->cleanups = k;
}

void *http_route_ctx(const struct http_req *req)
{
    return req->match.ctx;
}

void http_set_user_data(struct http_req *req, void *user)
{
    req->user_data = user;
}

void *http_user_data(const struct http_req *req)
{
    return req->user_data;
}

void http_on_client_gone(struct http_req *req, void (*fn)(void *arg), void *arg)
{
    req->on_gone = fn;
    req->gone_arg = arg;
}

void http_require_client(struct http_req *req)
{
    req->requires_client = true;
    if (req->conn && req->conn->half_closed)
        http_server_schedule_run(req->s);
}

bool http_client_is_gone(const struct http_req *req)
{
    return !req->conn;
}

const char *http_body(const struct http_req *req, size_t *ret_len)
{
    if (ret_len)
        *ret_len = req->body.len;
    return req->body.data ? req->body.data : "";
}

bool http_body_declared(const struct http_req *req, uint64_t *ret)
{
    if (req->is_chunked)
        return false;
    *ret = req->content_length;
    return true;
}

/* Whether a list like "text/html;q=0.8, text/event-stream" names the type before JSON
 * or a wildcard. */
bool http_prefers_type(const struct http_req *req, const char *type)
{
    const char *p = http_header(req, "Accept");
    size_t n = strlen(type);

    while (p && *p) {
        p += strspn(p, " \t,");
        if (strncasecmp(p, type, n) == 0 && (!p[n] || strchr(",; \t", p[n])))
            return true;
        if (strncasecmp(p, "application/json", 16) == 0)
            return false;
        p += strcspn(p, ",");
    }
    return false;
}
