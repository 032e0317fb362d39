/* One buffer: it is filled, passed on as far as the program accepts it, and filled again only when
 * it is empty. Files cannot be watched with epoll, so they are read once per loop iteration, which
 * keeps the loop responsive. */
#include "client/cli/source.h"

#include <errno.h>
#include <unistd.h>

static void source_pump(struct source *s);

static void source_on_again(void *arg)
{
    source_pump(arg);
}

static void source_on_readable(void *arg, uint32_t events UNUSED)
{
    source_pump(arg);
}

static void source_finish(struct source *s)
{
    s->ended = true;
    if (!s->file)
        ev_io_del(s->ev, &s->io);
    s->end(s->arg);
}

static void source_pump(struct source *s)
{
    if (s->ended || s->full)
        return;
    if (s->sent == s->filled) {
        ssize_t n = read(s->fd, s->buf, sizeof(s->buf));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) { /* an error of the terminal (a hangup) ends the input too */
            source_finish(s);
            return;
        }
        s->filled = (size_t)n;
        s->sent = 0;
    }
    s->sent += s->take(s->arg, s->buf + s->sent, s->filled - s->sent);
    s->full = s->sent < s->filled;
    if (s->file && !s->full)
        ev_defer(s->ev, &s->again, source_on_again, s);
    else if (s->full) /* remove, not mute: a pipe whose writer is gone would wake the loop for ever */
        ev_io_del(s->ev, &s->io);
}

void source_start(struct source *s, struct ev *ev, int fd, size_t (*take)(void *, const void *, size_t),
                  void (*end)(void *), void *arg)
{
    s->ev = ev;
    s->fd = fd;
    s->take = take;
    s->end = end;
    s->arg = arg;
    s->ended = s->full = s->file = false;
    s->filled = s->sent = 0;
    if (ev_io_add(ev, &s->io, fd, EPOLLIN, source_on_readable, s, NULL) < 0) {
        s->file = true;
        ev_defer(ev, &s->again, source_on_again, s);
    }
}

void source_resume(struct source *s)
{
    if (!s->full || s->ended)
        return;
    s->full = false;
    if (!s->file)
        ev_io_add(s->ev, &s->io, s->fd, EPOLLIN, source_on_readable, s, NULL);
    source_pump(s);
}

void source_stop(struct source *s)
{
    if (s->ev && !s->file)
        ev_io_del(s->ev, &s->io);
    s->ended = true;
}
