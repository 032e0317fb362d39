/* Bytes that the program does not read at once are buffered, and the host gets no credit for them:
 * it stops after one window. */
#include "inside/runtime/program_input.h"

#include "core/base/fd.h"

#include <errno.h>
#include <sys/socket.h>
#include <termios.h>

#define CTRL_D 4

void program_input_close(struct program_input *in)
{
    if (in->kind == PROGRAM_INPUT_SOCKET && in->fd >= 0)
        (void)shutdown(in->fd, SHUT_WR); /* the other direction has its own descriptor */
    ev_io_del(in->stream->streams->ev, &in->io);
    fd_close(&in->fd);
    runtime_stream_consumed(in->stream,
                            in->buf.len); /* no process will read it, and the host must not wait for its credit */
    buf_done(&in->buf);
}

/* On a terminal the end of input is the EOF character: once after a complete line, otherwise
 * twice. */
static void program_input_type_eof(struct program_input *in)
{
    struct termios t;
    char end[2] = { CTRL_D, CTRL_D };

    if (tcgetattr(in->fd, &t) == 0)
        end[0] = end[1] = (char)t.c_cc[VEOF];
    ssize_t n = write(in->fd, end, in->last_byte == '\n' || in->last_byte == 0 ? 1 : 2);
    (void)n; /* a full terminal has a reader that does not read */
}

static void program_input_flush(struct program_input *in)
{
    size_t done = 0;

    while (done < in->buf.len) {
        ssize_t n = write(in->fd, in->buf.data + done, in->buf.len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) { /* EPIPE: the program closed its input, which is allowed */
            program_input_close(in);
            return;
        }
        if (n <= 0)
            break;
        in->last_byte = (uint8_t)in->buf.data[done + (size_t)n - 1];
        done += (size_t)n;
    }
    if (done == in->buf.len)
        buf_done(&in->buf); /* an idle pipe holds no memory */
    else
        buf_drop(&in->buf, done);
    runtime_stream_consumed(in->stream, done);
    if (in->buf.len == 0 && in->ended) {
        if (in->kind == PROGRAM_INPUT_TERMINAL)
            program_input_type_eof(in);
        program_input_close(in);
        return;
    }
    ev_io_set(in->stream->streams->ev, &in->io, in->buf.len > 0 ? EPOLLOUT : 0);
}

static void program_input_on_writable(void *arg, uint32_t events)
{
    struct program_input *in = arg;

    if (in->stream->is_finished || in->fd < 0)
        return;
    if (events & EPOLLERR && in->kind != PROGRAM_INPUT_TERMINAL)
        program_input_close(in);
    else
        program_input_flush(in);
}

int program_input_watch(struct program_input *in, struct err *err)
{
    return in->fd < 0 ? 0 : ev_io_add(in->stream->streams->ev, &in->io, in->fd, 0, program_input_on_writable, in, err);
}

void program_input_take(struct program_input *in, const struct frame *f)
{
    if (in->ended || in->fd < 0) {
        runtime_stream_consumed(in->stream, f->len);
        return;
    }
    buf_add(&in->buf, f->data, f->len);
    in->ended = f->flags & RT_END;
    program_input_flush(in);
}
