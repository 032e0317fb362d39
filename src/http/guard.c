/* Between the sockets and the daemon: whatever it reads, frame.c has read before.
 *
 * libmicrohttpd reads by recv() and has no hook there. A relay with a second socket would cost every byte another copy
 * and every request two more turns of the loop; so this file defines recv() itself, which in ELF stands before that of
 * the C library, for the daemon too. It does what recv() does, except while this thread runs a daemon and the
 * descriptor is a connection of it. Where that does not hold, say with a daemon that calls something else, nothing
 * counts as come and no request is served: serve_access() asks.
 *
 * 1. The daemon sees a request from its beginning or not at all, once it is known to be bad; the answer to it is made
 *    by serve_refuse().
 * 2. The daemon takes a read that is shorter than what it asked for as the end of what there is, and then waits for an
 *    edge. So nothing is held back that it is to see later.
 * 3. The end of a client's side is kept from the daemon while requests of the client are complete and unanswered: it
 *    would close the connection, and nothing says that such a client does not wait for its answer. */
#include "http/daemon.h"

#include "base/mem.h"

#include <errno.h>
#include <sys/socket.h>

static _Thread_local struct http_server *running;

void guard_run(struct http_server *s)
{
    running = s;
    MHD_run(s->mhd);
    running = NULL;
}

void guard_add(struct conn *c)
{
    struct http_server *s = c->s;
    size_t at = (size_t)c->fd;

    if (at >= s->nguarded) {
        size_t n = at + 64;

        s->guarded = mem_resize(s->guarded, n, sizeof(struct conn *));
        memset(s->guarded + s->nguarded, 0, (n - s->nguarded) * sizeof(struct conn *));
        s->nguarded = n;
    }
    s->guarded[at] = c;
    frame_init(&c->frame, &s->set.limits);
}

void guard_del(struct conn *c)
{
    struct http_server *s = c->s;

    if ((size_t)c->fd < s->nguarded && s->guarded[c->fd] == c)
        s->guarded[c->fd] = NULL;
    frame_done(&c->frame);
}

static ssize_t nothing(void)
{
    errno = EAGAIN;
    return -1;
}

/* After a refusal: the rest is thrown away, up to a bound, so that closing the socket does not take back the answer. */
static ssize_t throw_away(struct conn *c, void *buf, size_t n)
{
    ssize_t got;

    while ((got = recvfrom(c->fd, buf, n, 0, NULL, NULL)) > 0) {
        c->thrown_away += (size_t)got;
        if (c->thrown_away > LINGER_MAX)
            return 0;
    }
    return got;
}

static ssize_t read_guarded(struct conn *c, void *buf, size_t n)
{
    struct err err = { 0 };
    size_t take;

    if (c->refused)
        return c->frame.ended > c->answered ? nothing() : throw_away(c, buf, n);
    ssize_t got = recvfrom(c->fd, buf, n, 0, NULL, NULL);
    if (got == 0 && c->frame.ended > c->answered)
        return nothing();
    if (got <= 0)
        return got;
    if (frame_scan(&c->frame, buf, (size_t)got, &take, &err) < 0)
        serve_refuse(c, &err);
    return take > 0 ? (ssize_t)take : nothing();
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct http_server *s = running;
    struct conn *c = s && fd >= 0 && (size_t)fd < s->nguarded && flags == 0 ? s->guarded[fd] : NULL;

    return c ? read_guarded(c, buf, n) : recvfrom(fd, buf, n, flags, NULL, NULL);
}
