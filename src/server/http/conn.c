/* The daemon owns a connection; this file keeps the additional state: the peer, the phase, and when
 * it last made progress.
 *
 * One timer serves all phases. Progress only updates a time stamp; a timer that fires too early
 * sets itself again, so a busy connection updates the timer heap once per phase and not once per
 * byte.
 *
 * 1. A connection is ended only by http_conn_shut_down(): it shuts down the socket, and the daemon,
 *    or its next callback, notices that and releases the connection. This file never closes the
 *    descriptor or frees the daemon's object.
 * 2. The daemon does not reliably notice that a client has closed its side: it watches nothing
 *    while a connection is suspended, and it waits for an edge that it may already have consumed
 *    with the last bytes of a request. So each socket is also in the epoll set of our loop, only
 *    for the end of the client. After that event, http_conns_close_half_closed() checks after each
 *    run of the daemon whether anything is left to read or to send. */
#include "server/http/mhd_callbacks.h"

#include "core/base/mem.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct http_conn *http_conn_of_mhd(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

struct http_conn *http_conn_new(struct http_server *s, int fd)
{
    struct http_conn *c = mem_new(struct http_conn);

    c->s = s;
    c->fd = fd;
    recv_shim_add_conn(c);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->stats.open++;
    return c;
}

static void http_conn_unlist_idle(struct http_conn *c)
{
    struct http_server *s = c->s;

    if (!c->listed_idle)
        return;
    *(c->idle_prev ? &c->idle_prev->idle_next : &s->idle_first) = c->idle_next;
    *(c->idle_next ? &c->idle_next->idle_prev : &s->idle_last) = c->idle_prev;
    c->idle_prev = c->idle_next = NULL;
    c->listed_idle = false;
}

static void http_conn_list_idle(struct http_conn *c)
{
    struct http_server *s = c->s;

    if (c->listed_idle)
        return;
    c->idle_prev = s->idle_last;
    *(s->idle_last ? &s->idle_last->idle_next : &s->idle_first) = c;
    s->idle_last = c;
    c->listed_idle = true;
}

void http_conn_free(struct http_conn *c)
{
    struct http_server *s = c->s;

    if (c->req) /* the daemon gave up before the head was complete */
        http_req_detach_conn(take_ptr(&c->req));
    http_conn_unlist_idle(c);
    if (c->half_closed) {
        struct http_conn **at = &s->half_closed;

        while (*at != c)
            at = &(*at)->half_closed_next;
        *at = c->half_closed_next;
    }
    ev_timer_clear(s->ev, &c->timer);
    ev_io_del(s->ev, &c->eof_watch);
    recv_shim_remove_conn(c);
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->stats.open--;
    free(c);
    http_server_conn_closed(s);
}

void http_conn_on_notify(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode what)
{
    struct http_server *s = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *ctx = s->conn_being_added;
        s->conn_being_added->mhd = mhd;
    } else if (*ctx) {
        http_conn_free(*ctx);
        *ctx = NULL;
    }
}

/* timeouts */

static uint64_t http_conn_phase_timeout_ms(const struct http_conn *c)
{
    const struct http_limits *lim = &c->s->settings.limits;

    switch (c->phase) {
    case CONN_IDLE:
        return lim->idle_ms;
    case CONN_HEAD:
        return lim->head_ms;
    case CONN_BODY:
        return lim->body_ms;
    case CONN_WRITE:
        return lim->write_ms / 2; /* checked twice: only the difference of two values from Linux shows progress */
    case CONN_LINGER:
        return LINGER_MS;
    case CONN_WAIT:
        break;
    }
    return 0;
}

/* Whether the client has read something since the last check. The daemon does not report it, but
 * Linux does. */
static bool http_conn_client_read_some(struct http_conn *c)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    uint64_t now;
    int queued;

    if (!c->peer.is_unix && getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
        len >= offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
        now = info.tcpi_bytes_acked;
    else if (ioctl(c->fd, SIOCOUTQ, &queued) == 0)
        now = (uint64_t)queued + (c->req ? c->req->answer_sent : 0);
    else
        return false;
    bool moved = now != c->write_progress;
    c->write_progress = now;
    return moved;
}

static void http_conn_on_timer(void *arg)
{
    struct http_conn *c = arg;
    uint64_t now = ev_now(c->s->ev), due = c->last_progress_ns + http_conn_phase_timeout_ms(c) * NS_PER_MS;

    if (c->phase == CONN_WAIT)
        return; /* the timer was set for an earlier phase */
    if (c->phase == CONN_WRITE && now >= due && http_conn_client_read_some(c)) {
        c->last_progress_ns = now;
        due = now + http_conn_phase_timeout_ms(c) * NS_PER_MS;
    }
    if (now < due)
        ev_timer_set(c->s->ev, &c->timer, due, http_conn_on_timer, c);
    else if (c->phase == CONN_BODY)
        request_body_timed_out(c->req);
    else
        http_conn_shut_down(c);
}

void http_conn_set_phase(struct http_conn *c, enum http_conn_phase phase)
{
    struct http_server *s = c->s;

    c->phase = phase;
    c->last_progress_ns = ev_now(s->ev);
    if (phase == CONN_IDLE || (phase == CONN_HEAD && !c->req))
        http_conn_list_idle(c);
    else
        http_conn_unlist_idle(c);
    c->write_progress = UINT64_MAX;
    if (phase == CONN_WAIT)
        return; /* a pending timer will notice the new phase */
    uint64_t due = c->last_progress_ns + http_conn_phase_timeout_ms(c) * NS_PER_MS;
    if (!c->timer.slot || c->timer.at > due)
        ev_timer_set(s->ev, &c->timer, due, http_conn_on_timer, c);
}

void http_conn_note_progress(struct http_conn *c)
{
    c->last_progress_ns = ev_now(c->s->ev);
}

/* half-closed clients */

/* A client that has closed its sending side still receives the answers to its requests. With no
 * unanswered request it is gone. It is also gone if the work is useless without it
 * (http_require_client). */
static bool http_conn_may_wait_for_answer(const struct http_conn *c)
{
    return c->scanner.requests_ended > c->requests_answered && !(c->req && c->req->requires_client);
}

void http_conns_close_half_closed(struct http_server *s)
{
    for (struct http_conn *c = s->half_closed; c; c = c->half_closed_next) {
        char byte;

        if (!http_conn_may_wait_for_answer(c) && c->phase != CONN_WRITE && !c->shut_down &&
            recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            http_conn_shut_down(c);
    }
}

/* A client that has closed its socket looks like a client that only sends nothing more, or that
 * listens to a silent stream, until something is sent to it. Keep-alive probes do that, and keep
 * the connection alive in middleboxes: the client's system answers a probe with a reset once it has
 * forgotten the connection, after a minute with Linux. */
void http_conn_enable_keepalive(const struct http_conn *c)
{
    int yes = 1, seconds = 10;

    if (c->peer.is_unix)
        return;
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

static void http_conn_on_eof_event(void *arg, uint32_t events)
{
    struct http_conn *c = arg;

    ev_io_set(c->s->ev, &c->eof_watch, 0); /* HUP is still reported, once */
    if (events & (EPOLLHUP | EPOLLERR)) {
        http_conn_shut_down(c);
        return;
    }
    if (!c->half_closed) {
        c->half_closed = true;
        c->half_closed_next = c->s->half_closed;
        c->s->half_closed = c;
        http_conn_enable_keepalive(c);
    }
    http_server_schedule_run(c->s);
}

void http_conn_watch_eof(struct http_conn *c)
{
    /* If this fails, the timeouts still apply. */
    ev_io_add(c->s->ev, &c->eof_watch, c->fd, EPOLLRDHUP, http_conn_on_eof_event, c, NULL);
}

void http_conn_suspend(struct http_conn *c)
{
    if (c->suspended)
        return;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    http_conn_set_phase(c, CONN_WAIT);
}

void http_conn_resume(struct http_conn *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    http_server_schedule_run(c->s);
}

void http_conn_detach_socket(struct http_conn *c)
{
    c->upgraded = true;
    ev_timer_clear(c->s->ev, &c->timer);
    ev_io_del(c->s->ev, &c->eof_watch);
    recv_shim_remove_conn(c);
}

void http_conn_shut_down(struct http_conn *c)
{
    if (c->upgraded)
        return;
    c->shut_down = true;
    shutdown(c->fd, SHUT_RDWR);
    http_conn_resume(c);
    http_server_schedule_run(c->s);
}

void http_conn_send_raw(struct http_conn *c, const struct buf *text)
{
    if (send(c->fd, text->data, text->len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
        http_conn_shut_down(c);
    else
        shutdown(c->fd, SHUT_WR);
}
