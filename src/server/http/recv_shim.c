/* Passes all bytes through request_scanner.c before the daemon reads them.
 *
 * libmicrohttpd reads with recv() and has no hook there. A relay with a second socket would cost an
 * additional copy of every byte and two more loop iterations per request. So this file defines
 * recv() itself, and by the rules of ELF symbol resolution that definition also replaces the C
 * library's for the daemon. It behaves like recv() except while this thread runs a daemon and the
 * descriptor is one of its connections. If the replacement does not take effect, for example
 * because the daemon calls another function, no bytes count as received and no request is served:
 * request_on_access() checks that.
 *
 * 1. Once a request is known to be malformed, the daemon receives no further byte of it, and none
 *    at all if it began in the same read; request_refuse_input() answers it.
 * 2. The daemon treats a read that is shorter than requested as the end of the available data, and
 *    then waits for an edge. So no bytes that the daemon must see later are held back.
 * 3. The end of the client's sending side is hidden from the daemon while complete requests of the
 *    client are unanswered: the daemon would close the connection, although the client may still
 *    wait for its answer. */
#include "server/http/mhd_callbacks.h"

#include "core/base/mem.h"

#include <errno.h>
#include <sys/socket.h>

static _Thread_local struct http_server *recv_shim_server;

void recv_shim_run_daemon(struct http_server *s)
{
    recv_shim_server = s;
    MHD_run(s->mhd);
    recv_shim_server = NULL;
}

void recv_shim_add_conn(struct http_conn *c)
{
    struct http_server *s = c->s;
    size_t at = (size_t)c->fd;

    if (at >= s->nconns_by_fd) {
        size_t n = at + 64;

        s->conns_by_fd = mem_resize(s->conns_by_fd, n, sizeof(struct http_conn *));
        memset(s->conns_by_fd + s->nconns_by_fd, 0, (n - s->nconns_by_fd) * sizeof(struct http_conn *));
        s->nconns_by_fd = n;
    }
    s->conns_by_fd[at] = c;
    request_scanner_init(&c->scanner, &s->settings.limits);
}

void recv_shim_remove_conn(struct http_conn *c)
{
    struct http_server *s = c->s;

    if ((size_t)c->fd < s->nconns_by_fd && s->conns_by_fd[c->fd] == c)
        s->conns_by_fd[c->fd] = NULL;
    request_scanner_done(&c->scanner);
}

static ssize_t recv_shim_would_block(void)
{
    errno = EAGAIN;
    return -1;
}

/* After a refusal the rest is discarded, up to a bound, so that closing the socket does not discard
 * the answer. */
static ssize_t recv_shim_discard(struct http_conn *c, void *buf, size_t n)
{
    ssize_t got;

    while ((got = recvfrom(c->fd, buf, n, 0, NULL, NULL)) > 0) {
        c->discarded_bytes += (size_t)got;
        if (c->discarded_bytes > LINGER_MAX)
            return 0;
    }
    return got;
}

static ssize_t recv_shim_read(struct http_conn *c, void *buf, size_t n)
{
    struct err err = { 0 };
    size_t take;

    if (c->input_refused)
        return c->scanner.requests_ended > c->requests_answered ? recv_shim_would_block()
                                                                : recv_shim_discard(c, buf, n);
    ssize_t got = recvfrom(c->fd, buf, n, 0, NULL, NULL);
    if (got == 0 && c->scanner.requests_ended > c->requests_answered)
        return recv_shim_would_block();
    if (got <= 0)
        return got;
    if (request_scanner_scan(&c->scanner, buf, (size_t)got, &take, &err) < 0)
        request_refuse_input(c, &err);
    return take > 0 ? (ssize_t)take : recv_shim_would_block();
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct http_server *s = recv_shim_server;
    struct http_conn *c = s && fd >= 0 && (size_t)fd < s->nconns_by_fd && flags == 0 ? s->conns_by_fd[fd] : NULL;

    return c ? recv_shim_read(c, buf, n) : recvfrom(fd, buf, n, flags, NULL, NULL);
}
