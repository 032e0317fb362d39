/* A connection is the daemon's; this is what we know about it besides: who it is, what it is waited for, since when.
 *
 * One timer serves all phases. Progress only moves a time stamp; the timer that comes too early for it sets itself
 * again, so a busy connection touches the heap once per phase and not once per byte.
 *
 * 1. A connection is ended by conn_cut() alone: the socket is shut down, and the daemon, or the next callback from it,
 *    finds that out and lets go. Nothing here closes the descriptor or frees the daemon's object.
 * 2. The daemon does not reliably see the end of a client: it watches nothing while a connection is suspended, and it
 *    waits for an edge that it may have had already, with the last bytes of a request. So each socket stands in our
 *    own epoll set too, for the end alone. Once that has come, conn_look_for_ends() asks after each run of the daemon
 *    whether anything is left to read, and whether anybody still has something to send. */
#include "http/daemon.h"

#include "base/mem.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

struct conn *conn_new(struct http_server *s, int fd)
{
    struct conn *c = mem_new(struct conn);

    c->s = s;
    c->fd = fd;
    guard_add(c);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->stats.open++;
    return c;
}

static void unlist_idle(struct conn *c)
{
    struct http_server *s = c->s;

    if (!c->listed_idle)
        return;
    *(c->idle_prev ? &c->idle_prev->idle_next : &s->idle_first) = c->idle_next;
    *(c->idle_next ? &c->idle_next->idle_prev : &s->idle_last) = c->idle_prev;
    c->idle_prev = c->idle_next = NULL;
    c->listed_idle = false;
}

static void list_idle(struct conn *c)
{
    struct http_server *s = c->s;

    if (c->listed_idle)
        return;
    c->idle_prev = s->idle_last;
    *(s->idle_last ? &s->idle_last->idle_next : &s->idle_first) = c;
    s->idle_last = c;
    c->listed_idle = true;
}

void conn_free(struct conn *c)
{
    struct http_server *s = c->s;

    if (c->req) /* the daemon gave up before there was a head */
        req_gone(take_ptr(&c->req));
    unlist_idle(c);
    if (c->ended) {
        struct conn **at = &s->ended;

        while (*at != c)
            at = &(*at)->ended_next;
        *at = c->ended_next;
    }
    ev_timer_clear(s->ev, &c->timer);
    ev_io_del(s->ev, &c->watch);
    guard_del(c);
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->stats.open--;
    free(c);
    server_conn_gone(s);
}

void conn_notify(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode what)
{
    struct http_server *s = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *ctx = s->adding;
        s->adding->mhd = mhd;
    } else if (*ctx) {
        conn_free(*ctx);
        *ctx = NULL;
    }
}

/* clocks */

static uint64_t phase_ms(const struct conn *c)
{
    const struct http_limits *lim = &c->s->set.limits;

    switch (c->phase) {
    case CONN_IDLE:
        return lim->idle_ms;
    case CONN_HEAD:
        return lim->head_ms;
    case CONN_BODY:
        return lim->body_ms;
    case CONN_WRITE:
        return lim->write_ms / 2; /* looked at twice: what the kernel says means something only beside another time */
    case CONN_LINGER:
        return LINGER_MS;
    case CONN_WAIT:
        break;
    }
    return 0;
}

/* Whether the client took something since the last look. The daemon does not tell, the kernel does. */
static bool client_took(struct conn *c)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    uint64_t now;
    int queued;

    if (!c->peer.local && getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
        len >= offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
        now = info.tcpi_bytes_acked;
    else if (ioctl(c->fd, SIOCOUTQ, &queued) == 0)
        now = (uint64_t)queued + (c->req ? c->req->sent : 0);
    else
        return false;
    bool moved = now != c->acked;
    c->acked = now;
    return moved;
}

static void on_clock(void *arg)
{
    struct conn *c = arg;
    uint64_t now = ev_now(c->s->ev), due = c->since + phase_ms(c) * NS_PER_MS;

    if (c->phase == CONN_WAIT)
        return; /* it was set for an earlier phase */
    if (c->phase == CONN_WRITE && now >= due && client_took(c)) {
        c->since = now;
        due = now + phase_ms(c) * NS_PER_MS;
    }
    if (now < due)
        ev_timer_set(c->s->ev, &c->timer, due, on_clock, c);
    else if (c->phase == CONN_BODY)
        serve_body_late(c->req);
    else
        conn_cut(c);
}

void conn_phase(struct conn *c, enum conn_phase phase)
{
    struct http_server *s = c->s;

    c->phase = phase;
    c->since = ev_now(s->ev);
    if (phase == CONN_IDLE || (phase == CONN_HEAD && !c->req))
        list_idle(c);
    else
        unlist_idle(c);
    c->acked = UINT64_MAX;
    if (phase == CONN_WAIT)
        return; /* a timer that is still set will find out */
    uint64_t due = c->since + phase_ms(c) * NS_PER_MS;
    if (!c->timer.slot || c->timer.at > due)
        ev_timer_set(s->ev, &c->timer, due, on_clock, c);
}

void conn_progress(struct conn *c)
{
    c->since = ev_now(c->s->ev);
}

/* waiting */

/* A client that will send no more gets what it asked for; with nothing asked for that is not answered, it is gone. So
 * it is where the work is worth nothing without it (http_needs_client). */
static bool may_wait(const struct conn *c)
{
    return c->frame.ended > c->answered && !(c->req && c->req->needs_client);
}

void conn_look_for_ends(struct http_server *s)
{
    for (struct conn *c = s->ended; c; c = c->ended_next) {
        char byte;

        if (!may_wait(c) && c->phase != CONN_WRITE && !c->cut && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            conn_cut(c);
    }
}

/* A client that closed its socket cannot be told from one that only sends no more, or listens to a stream that is
 * silent, until something is sent to it. Probes do that, and what lies in between does not forget the connection: its
 * system answers them with a reset once it has forgotten the connection, after a minute with Linux. */
void conn_probe(const struct conn *c)
{
    int yes = 1, seconds = 10;

    if (c->peer.local)
        return;
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

static void on_watch(void *arg, uint32_t events)
{
    struct conn *c = arg;

    ev_io_set(c->s->ev, &c->watch, 0); /* HUP comes even so, and once */
    if (events & (EPOLLHUP | EPOLLERR)) {
        conn_cut(c);
        return;
    }
    if (!c->ended) {
        c->ended = true;
        c->ended_next = c->s->ended;
        c->s->ended = c;
        conn_probe(c);
    }
    server_kick(c->s);
}

void conn_watch(struct conn *c)
{
    ev_io_add(c->s->ev, &c->watch, c->fd, EPOLLRDHUP, on_watch, c, NULL); /* without it the clocks must do */
}

void conn_suspend(struct conn *c)
{
    if (c->suspended)
        return;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    conn_phase(c, CONN_WAIT);
}

void conn_resume(struct conn *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    server_kick(c->s);
}

void conn_leave(struct conn *c)
{
    c->upgraded = true;
    ev_timer_clear(c->s->ev, &c->timer);
    ev_io_del(c->s->ev, &c->watch);
    guard_del(c);
}

void conn_cut(struct conn *c)
{
    if (c->upgraded)
        return;
    c->cut = true;
    shutdown(c->fd, SHUT_RDWR);
    conn_resume(c);
    server_kick(c->s);
}

void conn_send_raw(struct conn *c, const struct buf *text)
{
    if (send(c->fd, text->data, text->len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
        conn_cut(c);
    else
        shutdown(c->fd, SHUT_WR);
}
