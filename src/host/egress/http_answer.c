#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/http_front_internal.h"
#include "host/egress/tunnel.h"

#define READS_PER_CALL 4

void http_answer_drop_origin(struct http_front *f)
{
    origin_free(take_ptr(&f->origin));
    f->origin_is_open = false;
    f->conn->is_counted = false; /* the next connection is one more */
}

void http_answer_fail(struct http_front *f, unsigned status, const char *code, const char *reason)
{
    egress_conn_count_failure(f->conn, reason);
    if (f->x->has_answer) /* the client has seen a part: it must not take it for the whole */
        http_front_abort(f);
    else
        http_front_refuse(f, status, code, reason, "");
}

/* A kept connection may be closed by the origin just when the next request is sent. A request that
 * changes nothing and has no body is sent again, once. */
static bool http_answer_repeat(struct http_front *f)
{
    struct http_exchange *x = f->x;
    bool is_safe = str_eq(x->method, "GET") || str_eq(x->method, "HEAD") || str_eq(x->method, "OPTIONS");

    if (!f->origin_is_reused || x->has_bytes || !is_safe || x->request.framing != HTTP1_FRAMING_NONE || x->secret)
        return false;
    http_answer_drop_origin(f);
    f->origin_is_reused = false;
    x->keep_client = x->request.keep_alive;
    buf_clear(&x->to_origin);
    (void)http_request_write(f, NULL); /* fails only with a secret */
    http_request_open(f);
    return true;
}

static void http_answer_finish(struct http_front *f)
{
    struct http_exchange *x = f->x;
    bool keep_client = x->keep_client && x->is_sent && x->to_origin.len == 0;

    if (!x->keep_origin || !keep_client)
        http_answer_drop_origin(f);
    http_exchange_free(take_ptr(&f->x));
    f->active_at = ev_now(http_front_proxy(f)->ev);
    if (!keep_client)
        http_front_finish(f);
}

/* --- the head --- */

static void http_answer_do_upgrade(struct http_front *f)
{
    int fd = origin_take_fd(f->origin);
    struct buf first = f->in;

    f->in = (struct buf){ 0 };
    if (f->out.len > 0) { /* a client that does not read the first bytes of an idle connection */
        close(fd);
        buf_done(&first);
        egress_conn_abort(f->conn);
        return;
    }
    tunnel_start_upgraded(f->conn, fd, first.data, first.len);
    buf_done(&first);
}

static int http_answer_write_head(struct http_front *f, const struct http1_response *r, struct err *err)
{
    struct http_exchange *x = f->x;
    struct http1_rewrite w = { .keep_upgrade = r->is_upgrade, .close = !x->keep_client && !r->is_upgrade };
    auto_buf head = { 0 };
    int rc = 0;

    if (x->secret)
        rc = secret_way_write_response(x->secret->way, &x->request, r, w.close, &head, err);
    else
        http1_write_response(r, &w, x->request.is_http10, &head);
    if (rc == 0)
        http_front_send(f, head.data, head.len);
    return rc;
}

static void http_answer_begin(struct http_front *f, const struct http1_response *r)
{
    struct http_exchange *x = f->x;
    struct err err = { 0 };

    x->keep_origin = r->keep_alive;
    if (r->framing == HTTP1_FRAMING_UNTIL_CLOSE || !x->is_sent)
        x->keep_client = false;
    if (r->is_upgrade && (!x->may_upgrade || x->secret)) {
        http_answer_fail(f, 502, "destination_protocol", "the destination changed the protocol without a request");
        return;
    }
    if (http_answer_write_head(f, r, &err) < 0) {
        http_answer_fail(f, 502, "destination_protocol", err.msg);
        return;
    }
    x->has_answer = true;
    if (r->is_upgrade)
        return;
    if (x->secret)
        secret_body_init(&x->secret_body, x->secret->way, r);
    else
        http1_body_init(&x->answer_body, r->framing, r->length);
}

/* --- the body --- */

/* Takes bytes of the body. *ret_n of them belong to it. Returns true if the response is
 * complete. */
static bool http_answer_take_body(struct http_front *f, const char *data, size_t n, size_t *ret_n)
{
    struct http_exchange *x = f->x;
    struct err err = { 0 };
    enum http1_result rc;

    if (x->secret) {
        struct buf clean = { 0 };

        rc = secret_body_feed(&x->secret_body, data, n, ret_n, &clean, &err);
        if (rc != HTTP1_BAD && clean.len)
            http_front_send(f, clean.data, clean.len);
        buf_done(&clean);
    } else {
        rc = http1_body_pass(&x->answer_body, data, n, ret_n, &err);
        if (rc != HTTP1_BAD && *ret_n)
            http_front_send(f, data, *ret_n);
    }
    if (rc == HTTP1_BAD)
        http_answer_fail(f, 502, "destination_protocol", err.msg);
    return rc == HTTP1_DONE;
}

static void http_answer_take_bytes(struct http_front *f, const char *data, size_t n)
{
    size_t used = 0;

    if (!http_answer_take_body(f, data, n, &used) || f->on_end)
        return;
    if (used < n) /* bytes that no request asked for */
        f->x->keep_origin = false;
    http_answer_finish(f);
}

/* Reads one head from the bytes that were collected. Returns true if another may follow. */
static bool http_answer_take_head(struct http_front *f)
{
    struct http_exchange *x = f->x;
    struct http1_response r;
    struct err err = { 0 };
    size_t len = 0;
    enum http1_result rc = http1_read_response(x->answer_head.data, x->answer_head.len, &x->answer_seen,
                                               str_eq(x->method, "HEAD"), false, &r, &len, &err);

    if (rc == HTTP1_BAD)
        http_answer_fail(f, 502, "destination_protocol", err.msg);
    if (rc != HTTP1_DONE)
        return false;
    x->answer_seen = 0;
    if (r.is_interim) {
        if (!x->request.is_http10 && http_answer_write_head(f, &r, &err) < 0)
            http_answer_fail(f, 502, "destination_protocol", err.msg);
        buf_drop(&x->answer_head, len);
        return !f->on_end && x->answer_head.len > 0;
    }
    http_answer_begin(f, &r);
    if (f->on_end)
        return false;
    struct buf rest = x->answer_head;
    x->answer_head = (struct buf){ 0 };
    buf_drop(&rest, len);
    if (r.is_upgrade) {
        if (rest.len)
            http_front_send(f, rest.data, rest.len);
        http_front_end_by(f, http_answer_do_upgrade);
    } else {
        http_answer_take_bytes(f, rest.data ? rest.data : "", rest.len);
    }
    buf_done(&rest);
    return false;
}

static void http_answer_take(struct http_front *f, const char *data, size_t n)
{
    struct http_exchange *x = f->x;

    x->has_bytes = true;
    f->active_at = ev_now(http_front_proxy(f)->ev);
    shares_count_moved(f->conn->tenant, n);
    if (!egress_conn_count_bytes(f->conn, 0, n)) {
        http_front_abort(f);
    } else if (x->has_answer) {
        http_answer_take_bytes(f, data, n);
    } else {
        buf_add(&x->answer_head, data, n);
        while (http_answer_take_head(f))
            ;
    }
}

/* --- the origin --- */

static void http_answer_on_end(struct http_front *f, bool is_broken)
{
    struct http_exchange *x = f->x;
    auto_buf rest = { 0 };

    if (!x->has_answer && http_answer_repeat(f))
        return;
    x->keep_origin = x->keep_client = false;
    if (is_broken || !x->has_answer) {
        http_answer_fail(f, 502, "destination_unreachable", "the destination closed the connection without an answer");
    } else if (x->secret ? secret_body_close(&x->secret_body, &rest, NULL) < 0
                         : !http1_body_may_close(&x->answer_body)) {
        http_answer_fail(f, 502, "destination_unreachable",
                         "the destination closed the connection in the middle of its answer");
    } else {
        if (rest.len)
            http_front_send(f, rest.data, rest.len);
        http_answer_finish(f);
    }
}

static void http_answer_read(struct http_front *f)
{
    struct egress_proxy *p = http_front_proxy(f);

    for (unsigned i = 0; i < READS_PER_CALL && f->origin && !f->on_end && f->out.len == 0; i++) {
        size_t n = 0;

        if (http_front_must_wait(f))
            return;
        enum origin_io rc = origin_read(f->origin, p->relays.scratch, RELAY_BUFFER, &n);
        if (rc == ORIGIN_AGAIN)
            return;
        if (!f->x)
            http_answer_drop_origin(f); /* closed between two requests, or not waiting for one */
        else if (rc == ORIGIN_OK)
            http_answer_take(f, (const char *)p->relays.scratch, n);
        else
            http_answer_on_end(f, rc == ORIGIN_BROKEN);
        if (n < RELAY_BUFFER && !f->origin_secret) /* TLS has at most a record at a time */
            return;
    }
}

void http_answer_on_origin(void *arg, unsigned events)
{
    struct http_front *f = arg;

    if (events & ORIGIN_FAILED && f->x) {
        http_answer_fail(f, 502, "destination_unreachable", origin_failure(f->origin));
    } else if (events & ORIGIN_OPEN) {
        f->origin_is_open = true;
        egress_conn_count_open(f->conn);
        if (f->x)
            http_request_flush(f);
    }
    if (!f->on_end && f->origin && events & ORIGIN_WRITABLE && f->x)
        http_request_flush(f);
    if (!f->on_end && f->origin && events & ORIGIN_READABLE)
        http_answer_read(f);
    http_front_pump(f);
}
