/* Bytes are read in bounded portions, so that a server that floods its output leaves turns of the
 * loop for others. Writing never blocks: bytes that the server has not taken wait in `out`. */
#include "remote/mcp/mcp_pipe.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "remote/mcp/jsonrpc.h"

#include <errno.h>
#include <fcntl.h>

#define READ_SIZE (64u * 1024u)

struct mcp_pipe {
    struct ev *ev;
    const struct mcp_pipe_ops *ops;
    void *arg;
    int in_fd, out_fd;
    struct ev_io in_io, out_io;
    struct buf line; /* the start of an incomplete line */
    struct buf out;
    size_t sent; /* bytes of `out` that are written */
    bool is_closed;
    struct err err;
    struct ev_defer closed_defer;
};

static void mcp_pipe_on_closed(void *arg)
{
    struct mcp_pipe *p = arg;

    p->ops->on_closed(p->arg, &p->err);
}

static void mcp_pipe_stop(struct mcp_pipe *p)
{
    p->is_closed = true;
    ev_io_del(p->ev, &p->in_io);
    ev_io_del(p->ev, &p->out_io);
    fd_close(&p->out_fd);
}

static void mcp_pipe_fail(struct mcp_pipe *p)
{
    if (p->is_closed)
        return;
    mcp_pipe_stop(p);
    ev_defer(p->ev, &p->closed_defer, mcp_pipe_on_closed, p);
}

void mcp_pipe_close(struct mcp_pipe *p)
{
    if (!p->is_closed)
        mcp_pipe_stop(p);
    ev_defer_clear(p->ev, &p->closed_defer);
}

/* --- from the server --- */

static void mcp_pipe_read_lines(struct mcp_pipe *p, const char *data, size_t len)
{
    const char *end = data + len;

    while (data < end && !p->is_closed) {
        const char *feed = memchr(data, '\n', (size_t)(end - data));
        size_t n = (size_t)((feed ? feed : end) - data);

        if (p->line.len + n > JSONRPC_MESSAGE_MAX) {
            err_set(&p->err, ERR_MCP_LIMIT, "the server sent a line of more than %llu bytes", JSONRPC_MESSAGE_MAX);
            mcp_pipe_fail(p);
            return;
        }
        buf_add(&p->line, data, n);
        data += n;
        if (!feed)
            return;
        data++;
        while (p->line.len > 0 && p->line.data[p->line.len - 1] == '\r')
            p->line.data[--p->line.len] = '\0';
        if (p->line.len > 0)
            p->ops->on_line(p->arg, p->line.data, p->line.len);
        buf_clear(&p->line);
    }
}

static void mcp_pipe_on_readable(void *arg, uint32_t events UNUSED)
{
    struct mcp_pipe *p = arg;
    char data[READ_SIZE];
    ssize_t n = read(p->in_fd, data, sizeof(data));

    if (n > 0) {
        mcp_pipe_read_lines(p, data, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    err_set(&p->err, ERR_MCP_ENDED, "the server closed its output");
    mcp_pipe_fail(p);
}

/* --- to the server --- */

/* A server that closed its input may still answer; the end of its output decides. */
static void mcp_pipe_write_some(struct mcp_pipe *p)
{
    while (p->sent < p->out.len) {
        ssize_t n = write(p->out_fd, p->out.data + p->sent, p->out.len - p->sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        p->sent = n < 0 ? p->out.len : p->sent + (size_t)n;
    }
    if (p->sent == p->out.len) {
        buf_clear(&p->out);
        p->sent = 0;
    }
}

static void mcp_pipe_on_writable(void *arg, uint32_t events UNUSED)
{
    struct mcp_pipe *p = arg;

    mcp_pipe_write_some(p);
    if (p->out.len == 0)
        ev_io_del(p->ev, &p->out_io);
}

int mcp_pipe_send(struct mcp_pipe *p, const char *text, size_t len, struct err *err)
{
    if (p->is_closed)
        return err_set(err, ERR_MCP_ENDED, "the server closed its output");
    if (p->out.len - p->sent + len > MCP_PIPE_UNSENT_MAX)
        return err_set(err, ERR_MCP_LIMIT, "the server does not read its input: %zu bytes wait",
                       p->out.len - p->sent + len);
    buf_drop(&p->out, p->sent);
    p->sent = 0;
    buf_add(&p->out, text, len);
    buf_adds(&p->out, "\n");
    mcp_pipe_write_some(p);
    if (p->out.len > 0 && !p->out_io.on)
        return ev_io_add(p->ev, &p->out_io, p->out_fd, EPOLLOUT, mcp_pipe_on_writable, p, err);
    return 0;
}

/* --- lifecycle --- */

int mcp_pipe_new(struct ev *ev, int in_fd, int out_fd, const struct mcp_pipe_ops *ops, void *arg, struct mcp_pipe **ret,
                 struct err *err)
{
    struct mcp_pipe *p = mem_new(struct mcp_pipe);

    *p = (struct mcp_pipe){ .ev = ev, .ops = ops, .arg = arg, .in_fd = in_fd, .out_fd = out_fd };
    /* One socket for both directions: epoll knows a descriptor once, so writing gets its own. */
    if (in_fd == out_fd)
        p->out_fd = fcntl(in_fd, F_DUPFD_CLOEXEC, 3);
    if (p->out_fd < 0 || fd_nonblock(in_fd, true) < 0 || fd_nonblock(p->out_fd, true) < 0) {
        err_sys(err, ERR_SYS, "the descriptors of the MCP server");
    } else if (ev_io_add(ev, &p->in_io, in_fd, EPOLLIN, mcp_pipe_on_readable, p, err) == 0) {
        *ret = p;
        return 0;
    }
    mcp_pipe_free(p);
    return -1;
}

void mcp_pipe_free(struct mcp_pipe *p)
{
    if (!p)
        return;
    mcp_pipe_close(p);
    fd_close(&p->in_fd);
    buf_done(&p->line);
    buf_done(&p->out);
    free(p);
}
