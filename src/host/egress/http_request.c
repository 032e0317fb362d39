#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/http1/path.h"
#include "host/egress/http_front_internal.h"
#include "host/egress/tunnel.h"

void http_exchange_free(struct http_exchange *x)
{
    if (!x)
        return;
    if (x->secret) {
        if (x->has_answer)
            secret_body_done(&x->secret_body);
        secret_way_wipe(&x->to_origin);
        egress_secret_unref(x->secret);
    }
    buf_done(&x->head);
    buf_done(&x->to_origin);
    buf_done(&x->answer_head);
    free(x);
}

/* --- decisions --- */

/* The path as rules compare it; NULL: it can be read in several ways. */
static const char *http_request_path(const struct http_exchange *x, struct buf *ret)
{
    buf_clear(ret);
    if (http1_path_normalize(x->request.path, ret, NULL) < 0)
        return NULL;
    return ret->data;
}

/* Method and path are read only if a rule asks for them: many servers have paths that no rule could
 * compare. */
static struct egress_decision http_request_decide(const struct http_front *f, bool *ret_is_unclear)
{
    struct egress_decision d = egress_conn_decide(f->conn, NULL, NULL);
    auto_buf room = { 0 };

    *ret_is_unclear = false;
    if (d.verdict != EGRESS_NEEDS_REQUEST)
        return d;
    const char *path = http_request_path(f->x, &room);
    if (path)
        return egress_conn_decide(f->conn, f->x->method, path);
    *ret_is_unclear = true;
    return (struct egress_decision){ .verdict = EGRESS_REFUSED, .rule = -1 };
}

static bool http_request_secret_allows(const struct http_exchange *x)
{
    const struct egress_secret_rule *rule = secret_way_rule(x->secret->way);
    auto_buf room = { 0 };
    const char *path = http_request_path(x, &room);

    return path && egress_request_matches(&rule->request, x->method, path);
}

bool http_request_is_allowed(const struct http_front *f)
{
    bool is_unclear;

    if (!f->x || f->on_end)
        return true;
    if (f->x->secret)
        for (size_t i = 0; i < f->conn->sandbox->nsecrets; i++)
            if (f->conn->sandbox->secrets[i] == f->x->secret)
                return true;
    return !f->x->secret && http_request_decide(f, &is_unclear).verdict == EGRESS_ALLOWED;
}

static void http_request_refuse(struct http_front *f, const char *reason, const char *fix)
{
    egress_conn_count_refusal(f->conn, reason);
    http_front_refuse(f, 403, "egress_denied", reason, fix);
}

static void http_request_explain(struct http_front *f, struct egress_decision d)
{
    struct egress_target t = { .host = f->conn->host, .address = f->conn->address, .port = f->conn->port };
    auto_buf reason = { 0 };
    auto_buf fix = { 0 };

    egress_rules_explain(f->conn->sandbox->rules, &t, d, &reason, &fix);
    http_request_refuse(f, reason.data, fix.len ? fix.data : "");
}

/* --- CONNECT --- */

static void http_request_do_tunnel(struct http_front *f)
{
    struct buf first = f->in;

    f->in = (struct buf){ 0 };
    tunnel_start(f->conn, true, first.data, first.len);
    buf_done(&first);
}

/* Requests that a rule has to see, or that could name another host, are read inside of the
 * tunnel. */
static void http_request_connect(struct http_front *f, const struct http_target *t, bool has_secret)
{
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct egress_decision d = egress_conn_decide(f->conn, NULL, NULL);

    if (has_secret && t->port != 80) {
        http_request_refuse(f, "the name of a secret works with http:// on port 80 only",
                            "use http:// in place of https://");
    } else if (!has_secret && d.verdict == EGRESS_REFUSED) {
        http_request_explain(f, d);
    } else if (has_secret || d.verdict == EGRESS_NEEDS_REQUEST || (t->port == 80 && *t->host)) {
        f->mode = HTTP_FRONT_BOUND;
        f->bound = *t;
        http_exchange_free(take_ptr(&f->x));
        http_answer_drop_origin(f);
        f->conn->way = EGRESS_WAY_TUNNEL;
        http_front_send(f, established, sizeof(established) - 1);
    } else {
        http_front_end_by(f, http_request_do_tunnel);
    }
}

/* --- the request for the origin --- */

int http_request_write(struct http_front *f, struct err *err)
{
    struct http_exchange *x = f->x;
    struct http1_rewrite w = { .keep_upgrade = x->may_upgrade };
    char subject[EGRESS_CONN_SUBJECT];

    if (x->secret)
        return secret_way_write_request(x->secret->way, &x->request, false, &x->to_origin, err);
    if (x->request.host.host.len == 0 && f->mode == HTTP_FRONT_BOUND) { /* HTTP/1.0 */
        egress_conn_subject(f->conn, subject);
        w.host = http1_text_of(subject);
        w.host.len -= f->bound.port == 80 ? strlen(":80") : 0;
    }
    http1_write_request(&x->request, &w, &x->to_origin);
    return 0;
}

static void http_request_on_open(void *arg, const struct upstream_result *r)
{
    struct http_front *f = arg;
    struct egress_proxy *p = http_front_proxy(f);
    struct egress_secret *secret = f->x->secret;
    struct err err = { 0 };

    f->open = NULL;
    if (r->failure == UPSTREAM_CLOSED)
        http_request_refuse(f, r->reason, "");
    else if (r->fd < 0)
        http_answer_fail(f, r->failure == UPSTREAM_TIMEOUT ? 504 : 502,
                         r->failure == UPSTREAM_TIMEOUT ? "destination_timeout" : "destination_unreachable", r->reason);
    else if (origin_new(p->ev, r->fd, secret ? p->authorities : NULL, f->conn->host, http_answer_on_origin, f,
                        &f->origin, &err) < 0)
        http_answer_fail(f, 502, "destination_unreachable", err.msg);
    else if (egress_conn_denies_peer(f->conn, origin_fd(f->origin))) /* the rules changed meanwhile */
        http_front_abort(f);
    f->origin_is_open = f->origin_is_reused = false;
    f->active_at = ev_now(p->ev);
    http_front_pump(f);
}

static bool http_request_fits_origin(const struct http_front *f)
{
    const struct http_target *t = &f->origin_target;

    return f->origin && f->origin_secret == f->x->secret && str_eq(t->host, f->conn->host) &&
           t->port == f->conn->port && (*t->host || ip_address_equal(&t->address, &f->conn->address));
}

static bool http_request_denies_address(void *arg, const struct ip_address *a)
{
    const struct http_front *f = arg;

    return egress_conn_denies_address(f->conn, a);
}

/* A client that keeps its connection could otherwise have any number of names looked up and
 * handshakes made. */
static void http_request_open_new(void *arg)
{
    struct http_front *f = arg;
    struct egress_conn *c = f->conn;
    struct upstream *u = &http_front_proxy(f)->upstream;
    uint64_t at;

    if (f->has_opened && !egress_sandbox_may_open(c->sandbox, &at)) {
        ev_timer_set(u->ev, &f->open_timer, at, http_request_open_new, f);
        return;
    }
    f->has_opened = true;
    f->open = upstream_open(u, c->host, &c->address, c->port, c->destination, http_request_denies_address,
                            http_request_on_open, f);
}

void http_request_open(struct http_front *f)
{
    struct egress_conn *c = f->conn;

    if (http_request_fits_origin(f)) {
        f->origin_is_reused = true;
        egress_conn_count_open(c); /* the connection stays one, unless it led to another destination before */
        http_request_flush(f);
        return;
    }
    http_answer_drop_origin(f);
    f->origin_secret = f->x->secret;
    f->origin_target = (struct http_target){ .port = c->port, .address = c->address };
    (void)str_copy(f->origin_target.host, sizeof(f->origin_target.host), c->host);
    http_request_open_new(f);
}

static void http_request_forward(struct http_front *f)
{
    struct http_exchange *x = f->x;
    struct err err = { 0 };

    x->keep_client = x->request.keep_alive;
    x->is_sent = x->request.framing == HTTP1_FRAMING_NONE;
    http1_body_init(&x->body, x->request.framing, x->request.length);
    if (x->secret)
        egress_secret_use(x->secret);
    if (http_request_write(f, &err) < 0)
        http_front_refuse(f, 400, "malformed_request", err.msg, "");
    else
        http_request_open(f);
}

static void http_request_begin(struct http_front *f)
{
    struct http_exchange *x = f->x;
    struct egress_conn *c = f->conn;
    struct http_target t = f->bound;
    struct err err = { 0 };
    int rc = f->mode == HTTP_FRONT_PROXY ? http_target_of_proxy_request(&x->request, &t, &err)
                                         : http_target_check_bound(&x->request, &f->bound, &err);

    if (rc < 0) {
        if (c->destination)
            egress_conn_count_refusal(c, err.msg);
        http_front_refuse(f, 400, "malformed_request", err.msg, "");
        return;
    }
    struct egress_secret *secret = *t.host ? egress_sandbox_find_secret(c->sandbox, t.host) : NULL;
    bool is_connect = x->request.form == HTTP1_FORM_AUTHORITY;
    if (secret && (is_connect || t.port == 80)) {
        const struct egress_secret_rule *rule = secret_way_rule(secret->way);

        egress_conn_set_target(c, rule->host, NULL, rule->port);
    } else {
        egress_conn_set_target(c, t.host, &t.address, t.port);
        secret = NULL;
    }
    if (!egress_conn_has_bytes_left(c)) {
        http_request_refuse(f, EGRESS_CONN_BYTES_REASON, "");
        return;
    }
    if (is_connect) {
        http_request_connect(f, &t, secret);
        return;
    }
    bool is_unclear = false;
    struct egress_decision d = { .verdict = EGRESS_ALLOWED, .rule = -1 };
    if (secret) {
        secret->refs++;
        x->secret = secret;
        c->way = EGRESS_WAY_SECRET;
        if (!http_request_secret_allows(x)) {
            http_request_refuse(f, "the rule of the secret does not allow this method or path", "");
            return;
        }
    } else {
        d = http_request_decide(f, &is_unclear);
        x->may_upgrade = x->request.has_upgrade && egress_conn_decide(c, NULL, NULL).verdict == EGRESS_ALLOWED;
    }
    if (is_unclear)
        http_request_refuse(f, "the path can be read in several ways, so no rule can allow it", "");
    else if (d.verdict != EGRESS_ALLOWED)
        http_request_explain(f, d);
    else
        http_request_forward(f);
}

bool http_request_read(struct http_front *f)
{
    struct http1_request r;
    struct err err = { 0 };
    size_t len = 0;
    enum http1_result rc = http1_read_request(f->in.data, f->in.len, &f->in_seen, &r, &len, &err);

    if (rc == HTTP1_MORE && f->head_at == 0)
        f->head_at = ev_now(http_front_proxy(f)->ev);
    if (rc == HTTP1_MORE)
        return false;
    if (rc == HTTP1_BAD) {
        if (f->conn->destination)
            egress_conn_count_refusal(f->conn, err.msg);
        http_front_refuse(f, 400, "malformed_request", err.msg, "");
        return false;
    }
    struct http_exchange *x = mem_new(struct http_exchange);
    x->request = r; /* its texts point into the buffer, which moves to the exchange */
    x->head = f->in;
    f->in = (struct buf){ 0 };
    if (x->head.len > len)
        buf_add(&f->in, x->head.data + len, x->head.len - len);
    memcpy(x->method, r.method.data, min_size(r.method.len, sizeof(x->method) - 1));
    f->in_seen = 0;
    f->head_at = 0;
    f->x = x;
    f->active_at = ev_now(http_front_proxy(f)->ev);
    http_request_begin(f);
    return !f->on_end;
}

/* --- the body --- */

/* Returns how much was written. */
static size_t http_request_send(struct http_front *f, const char *data, size_t n)
{
    size_t sent = 0;
    enum origin_io rc = origin_write(f->origin, data, n, &sent);

    if (rc == ORIGIN_BROKEN || rc == ORIGIN_END) {
        /* The answer may have come before the connection broke: it is read first. */
        origin_want(f->origin, true, false);
        f->x->is_sent = true;
        f->x->keep_client = false;
        return n;
    }
    shares_count_moved(f->conn->tenant, sent);
    if (sent && !egress_conn_count_bytes(f->conn, sent, 0))
        http_front_abort(f);
    return sent;
}

void http_request_flush(struct http_front *f)
{
    struct http_exchange *x = f->x;

    if (!f->origin_is_open || x->to_origin.len == 0)
        return;
    buf_drop(&x->to_origin, http_request_send(f, x->to_origin.data, x->to_origin.len));
    if (x->to_origin.len == 0 && x->secret)
        secret_way_wipe(&x->to_origin);
    else if (x->to_origin.len == 0)
        buf_done(&x->to_origin);
}

void http_request_pass_body(struct http_front *f, const char *data, size_t n, size_t *ret_n)
{
    struct http_exchange *x = f->x;
    struct err err = { 0 };
    size_t sent = 0;
    enum http1_result rc = http1_body_pass(&x->body, data, n, ret_n, &err);

    if (rc == HTTP1_BAD) {
        egress_conn_count_refusal(f->conn, err.msg);
        if (x->has_bytes)
            http_front_abort(f);
        else
            http_front_refuse(f, 400, "malformed_request", err.msg, "");
        return;
    }
    x->is_sent = rc == HTTP1_DONE;
    if (x->to_origin.len == 0)
        sent = http_request_send(f, data, *ret_n);
    if (sent < *ret_n)
        buf_add(&x->to_origin, data + sent, *ret_n - sent);
}
