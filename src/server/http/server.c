/* The daemon of libmicrohttpd has an epoll set of its own, which is one descriptor of our loop.
 * Whenever that is ready, MHD_run() does all pending work and calls back into request_lifecycle.c,
 * conn.c and mhd_response.c. The daemon gets no listening socket, no timeout and no effective limit
 * of connections: sockets are accepted, counted, timed and evicted here, because its single
 * inactivity timeout cannot distinguish a slow head from a slow reader, and because it does not
 * notice that the client of a suspended connection is gone.
 *
 * Invariants:
 * 1. recv_shim_run_daemon() is called only from the loop, never from inside a handler's call.
 * 2. With a line as large as its buffer the daemon reports work that it cannot do;
 *    request_scanner.c lets no line of that size pass, so that no client can make the server spin.
 * 3. The daemon may miss that a client has closed its side; conn.c does not. */
#include "server/http/mhd_callbacks.h"

#include "core/base/mem.h"

#include <assert.h>

#define DAEMON_RUNS_PER_TURN 4

/* The daemon reports more work after every answer, and usually it is little: that work does not
 * wait for another loop iteration. The number of repetitions is bounded so that other events are
 * not delayed. */
static void http_server_run_daemon(void *arg)
{
    struct http_server *s = arg;
    MHD_UNSIGNED_LONG_LONG ms;

    for (int i = 0; i < DAEMON_RUNS_PER_TURN; i++) {
        recv_shim_run_daemon(s);
        http_conns_close_half_closed(s);
        if (MHD_get_timeout(s->mhd, &ms) != MHD_YES || ms != 0)
            return;
    }
    ev_defer(s->ev, &s->run_again, http_server_run_daemon, s);
}

static void http_server_on_ready(void *arg, uint32_t events UNUSED)
{
    http_server_run_daemon(arg);
}

void http_server_schedule_run(struct http_server *s)
{
    ev_defer(s->ev, &s->run_again, http_server_run_daemon, s);
}

static size_t http_server_keep_escapes(void *cls UNUSED, struct MHD_Connection *mhd UNUSED, char *s)
{
    return strlen(s); /* uri.c decodes, once */
}

static int http_server_start_daemon(struct http_server *s, struct err *err)
{
    /* Memory per connection: a head, the daemon's notes about it, and the head of the answer. Half
     * of it receives bodies; pieces of 64 KiB make an upload a third cheaper than pieces of 24 KiB.
     * More memory would make every request slower, because the daemon clears all of it after each
     * request. */
    size_t pool = max_u64(3 * s->settings.limits.head_max, 128 * KIB);

    /* Not MHD_OPTION_STRICT_FOR_CLIENT: it refuses little, and answers with its own pages.
     * request_scanner.c refuses all of that. */
    s->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE,
                              0, NULL, NULL, request_on_access, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, pool,
                              MHD_OPTION_CONNECTION_LIMIT, s->settings.limits.conns_max + 64,
                              MHD_OPTION_URI_LOG_CALLBACK, request_on_first_line, s, MHD_OPTION_UNESCAPE_CALLBACK,
                              http_server_keep_escapes, s, MHD_OPTION_NOTIFY_COMPLETED, request_on_completed, s,
                              MHD_OPTION_NOTIFY_CONNECTION, http_conn_on_notify, s, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
                              MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!s->mhd)
        return err_sys(err, ERR_SYS, "cannot start the HTTP daemon");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return err_set(err, ERR_BUG, "the HTTP daemon has no epoll set");
    return ev_io_add(s->ev, &s->io, info->epoll_fd, EPOLLIN, http_server_on_ready, s, err);
}

int http_server_new(struct ev *ev, const struct http_settings *settings, struct http_server **ret, struct err *err)
{
    struct http_server *s = mem_new(struct http_server);

    signal(SIGPIPE, SIG_IGN); /* sendfile() has no MSG_NOSIGNAL */
    s->ev = ev;
    s->settings = *settings;
    s->router = router_new(settings->tables);
    s->settings.tables = NULL;
    if (http_server_start_daemon(s, err) < 0) {
        http_server_free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    http_listeners_close(s);
    s->draining = true;
    for (struct http_conn *c = s->conns; c; c = c->next)
        http_conn_shut_down(c);
    /* Calls request_on_completed() and http_conn_on_notify() for everything that is left. */
    if (s->mhd)
        MHD_stop_daemon(s->mhd);
    assert(!s->conns);
    ws_free_all(s);
    ev_io_del(s->ev, &s->io);
    ev_defer_clear(s->ev, &s->run_again);
    ev_defer_clear(s->ev, &s->drained_defer);
    ev_timer_clear(s->ev, &s->accept_resume_timer);
    ev_timer_clear(s->ev, &s->drain_timer);
    router_free(s->router);
    free(s->conns_by_fd);
    free(s);
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
    *ret = s->stats;
}

/* drain */

static void http_server_report_drained(void *arg)
{
    struct http_server *s = arg;
    void (*fn)(void *) = s->on_drained;

    ev_timer_clear(s->ev, &s->drain_timer);
    s->on_drained = NULL;
    if (fn)
        fn(s->drain_arg);
}

static void http_server_on_drain_timeout(void *arg)
{
    struct http_server *s = arg;

    for (struct http_conn *c = s->conns; c; c = c->next)
        http_conn_shut_down(c);
    ws_abort_all(s);
}

void http_server_conn_closed(struct http_server *s)
{
    if (s->draining && !s->conns && !s->websockets && s->on_drained)
        ev_defer(s->ev, &s->drained_defer, http_server_report_drained, s);
    else if (s->accept_paused)
        http_listeners_resume(s);
}

void http_server_drain(struct http_server *s, uint64_t max_ms, void (*on_drained)(void *arg), void *arg)
{
    http_listeners_close(s);
    s->draining = true;
    s->on_drained = on_drained;
    s->drain_arg = arg;
    for (struct http_conn *c = s->conns; c; c = c->next)
        if (!c->req)
            http_conn_shut_down(c);
    ws_close_all(s);
    ev_timer_set(s->ev, &s->drain_timer, ev_now(s->ev) + max_ms * NS_PER_MS, http_server_on_drain_timeout, s);
    http_server_conn_closed(s);
}
