/* The descriptor stays blocking, because it is shared with the parent process, and is read only
 * when it is ready. A regular file is always ready and is refused by epoll: it is read by deferred
 * calls.
 *
 * A line that is too long is skipped as it arrives, so it never takes more memory than the
 * maximum and one piece. */
#include "client/mcp/line_reader.h"

#include "core/base/buf.h"
#include "core/base/mem.h"

#include <errno.h>
#include <unistd.h>

#define LINE_READER_PIECE (64 * KIB)

struct line_reader {
    struct ev *ev;
    int fd;
    size_t line_max;
    const struct line_reader_ops *ops;
    void *arg;
    struct ev_io io;
    struct ev_defer defer;
    struct buf text; /* an incomplete line */
    bool is_file, is_held, is_skipping, ended;
};

static void line_reader_read_later(struct line_reader *r);

static void line_reader_report(struct line_reader *r, const char *line, size_t len)
{
    if (r->is_skipping) {
        r->is_skipping = false;
        r->ops->on_too_long(r->arg);
        return;
    }
    if (len > 0 && line[len - 1] == '\r')
        len--;
    r->ops->on_line(r->arg, line, len);
}

/* `from`: the bytes before it have no line feed. */
static void line_reader_split(struct line_reader *r, size_t from)
{
    size_t start = 0;
    char *end;

    while ((end = memchr(r->text.data + from, '\n', r->text.len - from))) {
        size_t at = (size_t)(end - r->text.data);

        r->is_skipping = r->is_skipping || at - start > r->line_max;
        line_reader_report(r, r->text.data + start, at - start);
        start = from = at + 1;
    }
    buf_drop(&r->text, start);
    if (r->text.len > r->line_max)
        r->is_skipping = true;
    if (r->is_skipping)
        buf_clear(&r->text);
}

static void line_reader_end(struct line_reader *r)
{
    r->ended = true;
    ev_io_del(r->ev, &r->io);
    if (r->text.len > 0 || r->is_skipping)
        line_reader_report(r, r->text.data, r->text.len);
    r->ops->on_end(r->arg);
}

static void line_reader_read(void *arg)
{
    struct line_reader *r = arg;

    if (r->is_held || r->ended)
        return;
    size_t before = r->text.len;
    ssize_t n = read(r->fd, buf_room(&r->text, LINE_READER_PIECE), LINE_READER_PIECE);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        line_reader_read_later(r);
        return;
    }
    if (n <= 0) {
        line_reader_end(r);
        return;
    }
    r->text.len += (size_t)n;
    r->text.data[r->text.len] = '\0';
    line_reader_split(r, before);
    line_reader_read_later(r);
}

static void line_reader_read_later(struct line_reader *r)
{
    if (r->is_file && !r->ended)
        ev_defer(r->ev, &r->defer, line_reader_read, r);
}

static void line_reader_on_ready(void *arg, uint32_t events UNUSED)
{
    line_reader_read(arg);
}

struct line_reader *line_reader_new(struct ev *ev, int fd, size_t line_max, const struct line_reader_ops *ops,
                                    void *arg)
{
    struct line_reader *r = mem_new(struct line_reader);

    *r = (struct line_reader){ .ev = ev, .fd = fd, .line_max = line_max, .ops = ops, .arg = arg };
    r->is_file = ev_io_add(ev, &r->io, fd, EPOLLIN, line_reader_on_ready, r, NULL) < 0;
    line_reader_read_later(r);
    return r;
}

void line_reader_free(struct line_reader *r)
{
    if (!r)
        return;
    ev_io_del(r->ev, &r->io);
    ev_defer_clear(r->ev, &r->defer);
    buf_done(&r->text);
    free(r);
}

void line_reader_hold(struct line_reader *r, bool hold)
{
    if (r->is_held == hold || r->ended)
        return;
    r->is_held = hold;
    if (!r->is_file)
        ev_io_set(r->ev, &r->io, hold ? 0 : EPOLLIN);
    else if (!hold)
        line_reader_read_later(r);
}
