/* What the program does not take at once is kept, and the host is not credited for it: it stops after a window. */
#include "runtime/inlet.h"

#include "base/fd.h"

#include <errno.h>
#include <sys/socket.h>
#include <termios.h>

#define CTRL_D 4

void inlet_close(struct inlet *in)
{
    if (in->kind == INLET_SOCKET && in->fd >= 0)
        (void)shutdown(in->fd, SHUT_WR); /* the other direction has a descriptor of its own */
    ev_io_del(in->s->all->ev, &in->io);
    fd_close(&in->fd);
    stream_consumed(in->s, in->buf.len); /* nobody will read it, and the host must not wait for that */
    buf_done(&in->buf);
}

/* On a terminal the end of input is what a person types for it: once after a full line, else twice. */
static void type_end(struct inlet *in)
{
    struct termios t;
    char end[2] = { CTRL_D, CTRL_D };

    if (tcgetattr(in->fd, &t) == 0)
        end[0] = end[1] = (char)t.c_cc[VEOF];
    ssize_t n = write(in->fd, end, in->last == '\n' || in->last == 0 ? 1 : 2);
    (void)n; /* a terminal that takes nothing more has a reader that looks at nothing */
}

static void push(struct inlet *in)
{
    size_t done = 0;

    while (done < in->buf.len) {
        ssize_t n = write(in->fd, in->buf.data + done, in->buf.len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) { /* EPIPE: the program closed its input, which is its right */
            inlet_close(in);
            return;
        }
        if (n <= 0)
            break;
        in->last = (uint8_t)in->buf.data[done + (size_t)n - 1];
        done += (size_t)n;
    }
    if (done == in->buf.len)
        buf_done(&in->buf); /* an idle pipe holds no memory */
    else
        buf_drop(&in->buf, done);
    stream_consumed(in->s, done);
    if (in->buf.len == 0 && in->ended) {
        if (in->kind == INLET_TERMINAL)
            type_end(in);
        inlet_close(in);
        return;
    }
    ev_io_set(in->s->all->ev, &in->io, in->buf.len > 0 ? EPOLLOUT : 0);
}

static void on_ready(void *arg, uint32_t events)
{
    struct inlet *in = arg;

    if (in->s->over || in->fd < 0)
        return;
    if (events & EPOLLERR && in->kind != INLET_TERMINAL)
        inlet_close(in);
    else
        push(in);
}

int inlet_watch(struct inlet *in, struct err *err)
{
    return in->fd < 0 ? 0 : ev_io_add(in->s->all->ev, &in->io, in->fd, 0, on_ready, in, err);
}

void inlet_take(struct inlet *in, const struct frame *f)
{
    if (in->ended || in->fd < 0) {
        stream_consumed(in->s, f->len);
        return;
    }
    buf_add(&in->buf, f->data, f->len);
    in->ended = f->flags & RT_END;
    push(in);
}
