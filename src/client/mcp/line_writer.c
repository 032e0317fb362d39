/* A line is written at once if nothing waits before it, so a short answer costs one system call.
 * The descriptor stays blocking: a socket is written with MSG_DONTWAIT, and a pipe only after
 * poll() has reported space, in pieces of PIPE_BUF, which such a pipe accepts whole. */
#include "client/mcp/line_writer.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

struct line_writer {
    struct ev *ev;
    int fd;
    size_t high_mark;
    const struct line_writer_ops *ops;
    void *arg;
    struct ev_io io;
    struct ev_defer defer;
    struct buf text;
    bool is_socket, is_file, is_closed, is_high, closed_reported;
};

static void line_writer_report(void *arg)
{
    struct line_writer *w = arg;
    bool high = w->text.len > (w->is_high ? w->high_mark / 4 : w->high_mark);

    if (w->is_closed) {
        if (!w->closed_reported)
            w->ops->on_closed(w->arg);
        w->closed_reported = true;
        return;
    }
    if (high != w->is_high) {
        w->is_high = high;
        w->ops->on_pressure(w->arg, high);
    }
    if (w->text.len == 0)
        w->ops->on_written(w->arg);
}

static ssize_t line_writer_write_once(const struct line_writer *w)
{
    struct pollfd p = { .fd = w->fd, .events = POLLOUT };

    if (w->is_socket)
        return send(w->fd, w->text.data, w->text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (w->is_file)
        return write(w->fd, w->text.data, w->text.len);
    if (poll(&p, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(w->fd, w->text.data, min_size(w->text.len, PIPE_BUF));
}

static void line_writer_flush(struct line_writer *w)
{
    size_t done = 0, all = w->text.len;
    char *start = w->text.data;

    while (w->text.len > 0 && !w->is_closed) {
        ssize_t n = line_writer_write_once(w);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        w->is_closed = n < 0;
        w->text.data += n < 0 ? 0 : n;
        w->text.len -= n < 0 ? 0 : (size_t)n;
        done += n < 0 ? 0 : (size_t)n;
    }
    w->text.data = start;
    w->text.len = all;
    buf_drop(&w->text, w->is_closed ? all : done);
    if (w->io.on)
        ev_io_set(w->ev, &w->io, w->text.len > 0 ? EPOLLOUT : 0);
    if (w->is_closed || w->text.len == 0 || w->text.len > w->high_mark)
        ev_defer(w->ev, &w->defer, line_writer_report, w);
}

/* Without EPOLLOUT only an error or the end of the reader is reported. */
static void line_writer_on_ready(void *arg, uint32_t events)
{
    struct line_writer *w = arg;

    if (events & (EPOLLERR | EPOLLHUP)) {
        w->is_closed = true;
        ev_io_del(w->ev, &w->io);
    }
    line_writer_flush(w); /* reports the end too */
}

struct line_writer *line_writer_new(struct ev *ev, int fd, size_t high_mark, const struct line_writer_ops *ops,
                                    void *arg)
{
    struct line_writer *w = mem_new(struct line_writer);

    *w = (struct line_writer){ .ev = ev, .fd = fd, .high_mark = high_mark, .ops = ops, .arg = arg };
    w->is_socket = fd_is_socket(fd);
    w->is_file = ev_io_add(ev, &w->io, fd, 0, line_writer_on_ready, w, NULL) < 0;
    return w;
}

void line_writer_free(struct line_writer *w)
{
    if (!w)
        return;
    ev_io_del(w->ev, &w->io);
    ev_defer_clear(w->ev, &w->defer);
    buf_done(&w->text);
    free(w);
}

void line_writer_add(struct line_writer *w, const char *text, size_t len)
{
    size_t at = w->text.len;

    if (w->is_closed)
        return;
    buf_add(&w->text, text, len);
    for (char *p = w->text.data + at, *end = p + len; p < end; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    buf_adds(&w->text, "\n");
    if (at == 0)
        line_writer_flush(w);
}

size_t line_writer_waiting(const struct line_writer *w)
{
    return w->text.len;
}
