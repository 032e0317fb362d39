#include "host/egress/http_front.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/http_front_internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#define HEAD_NS (10 * NS_PER_S)
#define KEEP_NS (300 * NS_PER_S) /* between two requests */
#define OPEN_NS (10 * NS_PER_S)  /* for the handshake of TLS */
#define RETRY_NS (20 * NS_PER_MS)
#define IN_MAX HTTP1_HEAD_MAX

/* --- the end --- */

static void http_front_run_end(void *arg)
{
    struct http_front *f = arg;

    f->on_end(f);
}

void http_front_end_by(struct http_front *f, void (*on_end)(struct http_front *))
{
    struct ev *ev = http_front_proxy(f)->ev;

    if (f->on_end)
        return;
    f->on_end = on_end;
    ev_io_del(ev, &f->io);
    ev_timer_clear(ev, &f->timer);
    ev_timer_clear(ev, &f->retry_timer);
    ev_timer_clear(ev, &f->open_timer);
    if (f->origin)
        origin_want(f->origin, false, false);
    ev_defer(ev, &f->end_defer, http_front_run_end, f);
}

static void http_front_do_close(struct http_front *f)
{
    egress_conn_close(f->conn);
}

static void http_front_do_abort(struct http_front *f)
{
    egress_conn_abort(f->conn);
}

static void http_front_do_finish(struct http_front *f)
{
    struct buf out = f->out;

    f->out = (struct buf){ 0 };
    last_words_say(f->conn, out.data, out.len);
    buf_done(&out);
}

void http_front_close(struct http_front *f)
{
    http_front_end_by(f, http_front_do_close);
}

void http_front_abort(struct http_front *f)
{
    http_front_end_by(f, http_front_do_abort);
}

void http_front_finish(struct http_front *f)
{
    http_front_end_by(f, http_front_do_finish);
}

void http_front_refuse(struct http_front *f, unsigned status, const char *code, const char *reason, const char *fix)
{
    const struct egress_conn *c = f->conn;
    char subject[EGRESS_CONN_SUBJECT] = "";
    struct http_refusal r = { .status = status, .code = code, .reason = reason, .fix = fix, .subject = subject };

    if (f->on_end)
        return;
    if (status != 400)
        (void)egress_conn_subject(c, subject);
    http_refusal_write(&r, f->x && str_eq(f->x->method, "HEAD"), &f->out);
    http_front_finish(f);
}

static void http_front_free(void *state)
{
    struct http_front *f = state;
    struct egress_proxy *p = http_front_proxy(f);

    ev_io_del(p->ev, &f->io);
    ev_timer_clear(p->ev, &f->timer);
    ev_timer_clear(p->ev, &f->retry_timer);
    ev_timer_clear(p->ev, &f->open_timer);
    ev_defer_clear(p->ev, &f->start_defer);
    ev_defer_clear(p->ev, &f->end_defer);
    upstream_cancel(f->open);
    origin_free(f->origin);
    http_exchange_free(f->x);
    buf_done(&f->in);
    buf_done(&f->out);
    shares_unbuffer(&p->shares, f->conn->tenant, f->held);
    free(f);
}

/* A connection to the origin that waits for the next request counts as one in use. */
static bool http_front_is_allowed(void *state)
{
    const struct http_front *f = state;

    return http_request_is_allowed(f) && !(f->origin && egress_conn_denies_peer(f->conn, origin_fd(f->origin)));
}

static const struct egress_conn_handler http_front_handler = { http_front_free, http_front_is_allowed };

/* --- time --- */

static void http_front_on_timer(void *arg);

static uint64_t http_front_deadline(const struct http_front *f)
{
    if (f->x && f->origin && !f->origin_is_open)
        return f->active_at + OPEN_NS;
    if (f->x)
        return f->active_at + RELAY_IDLE_NS;
    return f->head_at ? f->head_at + HEAD_NS : f->active_at + KEEP_NS;
}

/* The timer is moved only to an earlier time; a timer that is due too early is set again. */
static void http_front_set_timer(struct http_front *f)
{
    uint64_t at = http_front_deadline(f);

    if (!f->timer.slot || at < f->timer.at)
        ev_timer_set(http_front_proxy(f)->ev, &f->timer, at, http_front_on_timer, f);
}

static void http_front_on_timer(void *arg)
{
    struct http_front *f = arg;

    if (ev_now(http_front_proxy(f)->ev) < http_front_deadline(f))
        http_front_set_timer(f);
    else if (f->x && f->origin && !f->origin_is_open)
        http_answer_fail(f, 504, "destination_timeout", "the destination did not complete the TLS handshake in time");
    else if (!f->x && f->head_at)
        http_front_refuse(f, 408, "request_timeout", "the head of the request did not arrive in time", "");
    else
        http_front_close(f);
}

/* --- the client --- */

static void http_front_count_held(struct http_front *f)
{
    struct egress_proxy *p = http_front_proxy(f);
    const struct http_exchange *x = f->x;
    size_t held = f->in.len + f->out.len + (x ? x->head.len + x->to_origin.len + x->answer_head.len : 0);

    if (held > f->held)
        shares_buffer(&p->shares, f->conn->tenant, held - f->held);
    else
        shares_unbuffer(&p->shares, f->conn->tenant, f->held - held);
    f->held = held;
}

static void http_front_retry(void *arg)
{
    struct http_front *f = arg;

    (void)http_front_must_wait(f);
    if (!f->retry_timer.slot)
        http_front_pump(f);
}

/* A tenant that has moved its share of this turn continues in the next one, after others. A tenant
 * that has buffered its share is not read until some of that is sent. */
bool http_front_must_wait(struct http_front *f)
{
    struct egress_proxy *p = http_front_proxy(f);

    if (shares_may_move(&p->shares, f->conn->tenant, ev_now(p->ev)))
        return false;
    if (!shares_may_buffer(&p->shares, f->conn->tenant))
        ev_timer_set(p->ev, &f->retry_timer, ev_now(p->ev) + RETRY_NS, http_front_retry, f);
    return true;
}

static void http_front_update(struct http_front *f)
{
    struct http_exchange *x = f->x;
    bool reads = !f->retry_timer.slot;
    bool sends_body = x && !x->is_sent;
    bool has_room = sends_body ? x->to_origin.len == 0 && f->origin_is_open && f->in.len == 0 : f->in.len < IN_MAX;

    http_front_count_held(f);
    if (f->in.len == 0)
        buf_done(&f->in); /* an idle connection holds no memory */
    if (f->out.len == 0)
        buf_done(&f->out);
    ev_io_set(http_front_proxy(f)->ev, &f->io,
              (reads && has_room && !f->client_ended ? EPOLLIN : 0u) | (f->out.len > 0 ? EPOLLOUT : 0u));
    if (f->origin)
        origin_want(f->origin, reads && f->out.len == 0, x && x->to_origin.len > 0 && f->origin_is_open);
    http_front_set_timer(f);
}

void http_front_send(struct http_front *f, const void *data, size_t n)
{
    ssize_t sent = 0;

    if (f->out.len == 0 && !f->on_end)
        sent = send(f->conn->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        http_front_abort(f);
        return;
    }
    if (sent < 0)
        sent = 0;
    if ((size_t)sent < n)
        buf_add(&f->out, (const char *)data + sent, n - (size_t)sent);
}

static void http_front_flush(struct http_front *f)
{
    ssize_t sent = send(f->conn->fd, f->out.data, f->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        http_front_abort(f);
    else if (sent > 0)
        buf_drop(&f->out, (size_t)sent);
}

static void http_front_client_ended(struct http_front *f)
{
    f->client_ended = true;
    if (!f->x && f->in.len == 0)
        http_front_close(f);
    else if (!f->x || !f->x->is_sent)
        http_front_abort(f); /* in the middle of a request */
}

static void http_front_read(struct http_front *f)
{
    struct egress_proxy *p = http_front_proxy(f);
    char *scratch = (char *)p->relays.scratch;
    struct http_exchange *x = f->x;
    bool is_body = x && !x->is_sent && f->in.len == 0;
    size_t used = 0, room = is_body ? RELAY_BUFFER : IN_MAX - min_size(f->in.len, IN_MAX);

    /* A tunnel may have handed over more than a head has. */
    if (room == 0 || http_front_must_wait(f))
        return;
    ssize_t n = recv(f->conn->fd, scratch, room, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        http_front_abort(f);
    else if (n == 0)
        http_front_client_ended(f);
    if (n <= 0)
        return;
    f->active_at = ev_now(p->ev);
    if (is_body)
        http_request_pass_body(f, scratch, (size_t)n, &used);
    if (used < (size_t)n && !f->on_end)
        buf_add(&f->in, scratch + used, (size_t)n - used);
}

void http_front_pump(struct http_front *f)
{
    while (!f->on_end) {
        struct http_exchange *x = f->x;
        size_t used = 0;

        if (!x && f->in.len > 0 && f->out.len < RELAY_BUFFER && http_request_read(f))
            continue;
        if (!x || x->is_sent || f->in.len == 0 || !f->origin_is_open || x->to_origin.len > 0)
            break;
        http_request_pass_body(f, f->in.data, f->in.len, &used);
        if (!f->on_end)
            buf_drop(&f->in, used);
    }
    if (f->client_ended && !f->x && !f->on_end && f->out.len < RELAY_BUFFER)
        http_front_finish(f);
    if (!f->on_end)
        http_front_update(f);
}

static void http_front_on_ready(void *arg, uint32_t events)
{
    struct http_front *f = arg;

    if (events & EPOLLOUT && f->out.len > 0)
        http_front_flush(f);
    if (!f->on_end && events & EPOLLERR)
        http_front_abort(f);
    if (!f->on_end && events & EPOLLIN)
        http_front_read(f);
    http_front_pump(f);
}

void http_front_start(struct egress_conn *c, enum http_front_mode mode, const char *host)
{
    struct http_front *f = mem_new(struct http_front);
    struct ev *ev = c->sandbox->proxy->ev;

    f->conn = c;
    f->mode = mode;
    f->active_at = ev_now(ev);
    if (host) {
        (void)str_copy(f->bound.host, sizeof(f->bound.host), host);
        f->bound.port = c->port;
        if (!*host)
            f->bound.address = c->address;
    }
    egress_conn_set_handler(c, &http_front_handler, f);
    if (ev_io_add(ev, &f->io, c->fd, EPOLLIN, http_front_on_ready, f, NULL) < 0)
        http_front_abort(f);
    else
        http_front_set_timer(f);
}

static void http_front_run_start(void *arg)
{
    http_front_pump(arg);
}

void http_front_continue(struct egress_conn *c, const void *first, size_t nfirst)
{
    struct buf in = { 0 };
    auto_free char *host = str_dup(c->host);

    buf_add(&in, first, nfirst); /* the state that holds them is freed by the next call */
    http_front_start(c, HTTP_FRONT_BOUND, host);
    struct http_front *f = c->state;
    f->in = in;
    ev_defer(c->sandbox->proxy->ev, &f->start_defer, http_front_run_start, f);
}
