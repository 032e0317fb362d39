/* Sends standard input to an execution while its output is followed: it is read as it arrives and
 * sent in pieces with offsets. A piece is retried until the server has it; the server drops bytes
 * that it already has, so nothing is lost or duplicated when a connection breaks or the server
 * restarts.
 *
 * Our descriptor is shared with the parent process, so it stays blocking and is read only when it
 * is ready. A regular file is always ready; epoll refuses it. */
#include "client/ctl/ctl_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <unistd.h>

#define PIECE (256 * KIB)
#define TRIES 100
#define WAIT_NS (250 * NS_PER_MS)

struct ctl_stdin_feed {
    struct ctl *c;
    char *path;
    struct ev_io io;
    bool is_file; /* a regular file, which epoll refuses */
    bool ended;   /* `piece` holds the last bytes */
    int tries;
    uint64_t offset;
    size_t len;
    struct client_async_request *post;
    struct ev_timer retry_timer;
    struct ev_defer read_defer;
    struct err err;
    char piece[PIECE];
};

static void ctl_stdin_feed_fail(struct ctl_stdin_feed *f, const struct err *err)
{
    f->err = *err;
    client_interrupt(f->c->client);
}

static void ctl_stdin_feed_send(void *arg);
static void ctl_stdin_feed_on_ready(void *arg, uint32_t events);

static void ctl_stdin_feed_read(void *arg)
{
    struct ctl_stdin_feed *f = arg;
    struct err err;
    ssize_t n = read(STDIN_FILENO, f->piece, sizeof(f->piece));

    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        if (f->is_file)
            ev_defer(f->c->ev, &f->read_defer, ctl_stdin_feed_read, f);
        return;
    }
    if (n < 0) {
        err_sys(&err, ERR_SYS, "standard input");
        ctl_stdin_feed_fail(f, &err);
        return;
    }
    f->len = (size_t)n;
    f->ended = n == 0;
    f->tries = 0;
    ev_io_set(f->c->ev, &f->io, 0);
    ctl_stdin_feed_send(f);
}

static void ctl_stdin_feed_on_ready(void *arg, uint32_t events UNUSED)
{
    struct ctl_stdin_feed *f = arg;

    if (!f->post && !f->ended && !f->retry_timer.slot)
        ctl_stdin_feed_read(f);
}

static bool ctl_stdin_feed_is_retryable(const struct err *err)
{
    return err->id == ERR_CUT_OFF || err->id == ERR_UNREACHABLE || err->id == ERR_BUSY || err->id == ERR_TIMEOUT ||
           err->id == ERR_RATE_LIMITED;
}

static void ctl_stdin_feed_on_sent(void *arg, const struct err *err, const json_t *answer UNUSED)
{
    struct ctl_stdin_feed *f = arg;

    client_async_request_free(take_ptr(&f->post));
    if (err && ctl_stdin_feed_is_retryable(err) && f->tries++ < TRIES) {
        ev_timer_set(f->c->ev, &f->retry_timer, ev_now(f->c->ev) + WAIT_NS, ctl_stdin_feed_send, f);
        return;
    }
    if (err && err->id != ERR_EXISTS && err->id != ERR_MISSING && err->id != ERR_SANDBOX_ENDED) {
        ctl_stdin_feed_fail(f, err);
        return;
    }
    f->ended = f->ended || err; /* the execution has ended or closed its input */
    f->offset += f->len;
    f->len = 0;
    if (!f->ended && f->is_file)
        ev_defer(f->c->ev, &f->read_defer, ctl_stdin_feed_read, f);
    else if (!f->ended)
        ev_io_set(f->c->ev, &f->io, EPOLLIN);
}

static void ctl_stdin_feed_send(void *arg)
{
    struct ctl_stdin_feed *f = arg;
    auto_free char *path = str_printf("%s?offset=%" PRIu64 "%s", f->path, f->offset, f->ended ? "&close=true" : "");
    struct err err = { 0 };

    if (client_post(f->c->client, path, f->piece, f->len, ctl_stdin_feed_on_sent, f, &f->post, &err) < 0)
        ctl_stdin_feed_fail(f, &err);
}

struct ctl_stdin_feed *ctl_stdin_feed_new(struct ctl *c, const char *sandbox, const char *execution)
{
    struct ctl_stdin_feed *f = mem_new(struct ctl_stdin_feed);
    struct err err = { 0 };

    f->c = c;
    f->path = ctl_api_path("/v1/sandboxes/%s/executions/%s/stdin", sandbox, execution);
    if (ev_io_add(c->ev, &f->io, STDIN_FILENO, EPOLLIN, ctl_stdin_feed_on_ready, f, &err) == 0)
        return f;
    f->is_file = true;
    ev_defer(c->ev, &f->read_defer, ctl_stdin_feed_read, f); /* the read reports an invalid descriptor */
    return f;
}

const struct err *ctl_stdin_feed_error(const struct ctl_stdin_feed *f)
{
    return f && f->err.id != ERR_NONE ? &f->err : NULL;
}

void ctl_stdin_feed_free(struct ctl_stdin_feed *f)
{
    if (!f)
        return;
    ev_io_del(f->c->ev, &f->io);
    ev_timer_clear(f->c->ev, &f->retry_timer);
    ev_defer_clear(f->c->ev, &f->read_defer);
    client_async_request_free(f->post);
    free(f->path);
    free(f);
}
