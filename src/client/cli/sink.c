/* A write to standard output may block for an unlimited time, during which no timer and no Ctrl-C
 * is handled. O_NONBLOCK is a property of the open file description, which we share with our
 * parent: a shell whose terminal becomes non-blocking breaks. So pipes and terminals are opened
 * again through /proc, which gives our own open file description; sockets have a flag per call. If
 * the second open is refused (a terminal of another user), we poll before every write and write
 * only as many bytes as a pipe guarantees to accept. */
#include "client/cli/sink.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#define SHARED_CHUNK 512 /* a terminal that polls writable accepts a line, not a page */

void sink_init(struct sink *s, struct ev *ev, int fd, void (*on_change)(void *arg), void *arg)
{
    *s = (struct sink){ .ev = ev, .fd = fd, .on_change = on_change, .arg = arg };
}

void sink_done(struct sink *s)
{
    ev_io_del(s->ev, &s->io);
    if (s->mode == SINK_OWN)
        close(s->fd);
    buf_done(&s->pending);
}

bool sink_has_pending(const struct sink *s)
{
    return s->pending.len > 0;
}

static void sink_detect_mode(struct sink *s)
{
    char path[40];
    struct stat st;

    if (fstat(s->fd, &st) < 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode)) {
        s->mode = SINK_PLAIN;
        return;
    }
    if (S_ISSOCK(st.st_mode)) {
        s->mode = SINK_SOCKET;
        return;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0) {
        s->mode = SINK_SHARED;
        return;
    }
    s->fd = own;
    s->mode = SINK_OWN;
}

static ssize_t sink_write_some(struct sink *s, const char *data, size_t len)
{
    struct pollfd p = { .fd = s->fd, .events = POLLOUT };

    switch (s->mode) {
    case SINK_SOCKET:
        return send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case SINK_SHARED:
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        return write(s->fd, data, min_size(len, SHARED_CHUNK));
    default:
        return write(s->fd, data, len);
    }
}

/* Returns the bytes written before the descriptor would block or failed. */
static size_t sink_write_most(struct sink *s, const char *data, size_t len)
{
    size_t done = 0;

    while (done < len && !s->broken) {
        ssize_t n = sink_write_some(s, data + done, len - done);

        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR) {
            s->broken = true;
            s->error = errno;
        }
    }
    return done;
}

static void sink_on_writable(void *arg, uint32_t events UNUSED)
{
    struct sink *s = arg;

    buf_drop(&s->pending, sink_write_most(s, s->pending.data, s->pending.len));
    if (s->broken)
        buf_clear(&s->pending);
    if (s->pending.len > 0)
        return;
    ev_io_del(s->ev, &s->io);
    s->on_change(s->arg);
}

void sink_write(struct sink *s, const void *data, size_t len)
{
    size_t done = 0;

    if (s->broken || len == 0)
        return;
    if (s->mode == SINK_NEW)
        sink_detect_mode(s);
    if (!sink_has_pending(s))
        done = sink_write_most(s, data, len);
    if (s->broken || done == len)
        return;
    buf_add(&s->pending, (const char *)data + done, len - done);
    if (s->io.on)
        return;
    if (ev_io_add(s->ev, &s->io, s->fd, EPOLLOUT, sink_on_writable, s, NULL) < 0) {
        /* No known file type blocks and cannot be polled; if one exists, blocking
         * writes are used. */
        s->mode = SINK_PLAIN;
        fd_nonblock(s->fd, false);
        sink_write_most(s, s->pending.data, s->pending.len);
        buf_clear(&s->pending);
    }
}
