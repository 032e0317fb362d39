#include "host/egress/origin.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>

struct origin {
    struct ev *ev;
    origin_fn *fn;
    void *arg;
    struct tls_upstream *tls; /* NULL: plain */
    struct ev_io io;          /* plain */
    struct ev_defer open_defer;
};

static void origin_on_ready(void *arg, uint32_t events)
{
    struct origin *o = arg;
    unsigned seen = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? ORIGIN_READABLE : 0;

    o->fn(o->arg, seen | (events & EPOLLOUT ? ORIGIN_WRITABLE : 0));
}

static void origin_on_tls(void *arg, unsigned events)
{
    struct origin *o = arg;

    o->fn(o->arg, (events & TLS_UPSTREAM_OPEN ? ORIGIN_OPEN : 0u) |
                      (events & TLS_UPSTREAM_READABLE ? ORIGIN_READABLE : 0u) |
                      (events & TLS_UPSTREAM_WRITABLE ? ORIGIN_WRITABLE : 0u) |
                      (events & TLS_UPSTREAM_FAILED ? ORIGIN_FAILED : 0u));
}

static void origin_report_open(void *arg)
{
    struct origin *o = arg;

    o->fn(o->arg, ORIGIN_OPEN);
}

int origin_new(struct ev *ev, int fd, struct tls_authorities *authorities, const char *host, origin_fn *fn, void *arg,
               struct origin **ret, struct err *err)
{
    struct origin *o = mem_new(struct origin);
    int rc;

    *o = (struct origin){ .ev = ev, .fn = fn, .arg = arg };
    if (authorities)
        rc = tls_upstream_new(ev, authorities, fd, host, origin_on_tls, o, &o->tls, err);
    else if ((rc = ev_io_add(ev, &o->io, fd, 0, origin_on_ready, o, err)) < 0)
        close(fd);
    if (rc < 0) {
        free(o);
        return -1;
    }
    if (!o->tls)
        ev_defer(ev, &o->open_defer, origin_report_open, o);
    *ret = o;
    return 0;
}

void origin_free(struct origin *o)
{
    if (!o)
        return;
    tls_upstream_free(o->tls);
    ev_defer_clear(o->ev, &o->open_defer);
    if (o->io.on) {
        ev_io_del(o->ev, &o->io);
        close(o->io.fd);
    }
    free(o);
}

void origin_want(struct origin *o, bool reads, bool writes)
{
    if (o->tls)
        tls_upstream_want(o->tls, (reads ? TLS_UPSTREAM_READABLE : 0u) | (writes ? TLS_UPSTREAM_WRITABLE : 0u));
    else
        ev_io_set(o->ev, &o->io, (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u));
}

static enum origin_io origin_from_tls(enum tls_upstream_io rc)
{
    return rc == TLS_UPSTREAM_OK      ? ORIGIN_OK
           : rc == TLS_UPSTREAM_AGAIN ? ORIGIN_AGAIN
           : rc == TLS_UPSTREAM_END   ? ORIGIN_END
                                      : ORIGIN_BROKEN;
}

enum origin_io origin_read(struct origin *o, void *to, size_t room, size_t *ret_n)
{
    *ret_n = 0;
    if (o->tls)
        return origin_from_tls(tls_upstream_read(o->tls, to, room, ret_n, NULL));
    ssize_t n = recv(o->io.fd, to, room, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? ORIGIN_AGAIN : ORIGIN_BROKEN;
    *ret_n = (size_t)n;
    return n ? ORIGIN_OK : ORIGIN_END;
}

enum origin_io origin_write(struct origin *o, const void *data, size_t n, size_t *ret_n)
{
    *ret_n = 0;
    if (o->tls)
        return origin_from_tls(tls_upstream_write(o->tls, data, n, ret_n, NULL));
    ssize_t sent = send(o->io.fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? ORIGIN_AGAIN : ORIGIN_BROKEN;
    *ret_n = (size_t)sent;
    return ORIGIN_OK;
}

int origin_fd(const struct origin *o)
{
    return o->tls ? -1 : o->io.fd;
}

int origin_take_fd(struct origin *o)
{
    int fd = o->io.fd;

    ev_io_del(o->ev, &o->io);
    return fd;
}

const char *origin_failure(const struct origin *o)
{
    const struct err *why = o->tls ? tls_upstream_failure(o->tls) : NULL;

    return why ? why->msg : "the connection ended";
}
