/* Standard input for an execution, while its output is followed: read as it comes, and sent in pieces with their
 * offsets. A piece is sent again until the server has it; what it has of a piece already it leaves out, so nothing
 * arrives twice and nothing is lost when a connection breaks or the server is restarted.
 *
 * Our descriptor is shared with whoever started us and is not made non-blocking: it is read when it is ready. A file is
 * always ready, and epoll says so by not taking it. */
#include "ctl/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <unistd.h>

#define PIECE (256 * KIB)
#define TRIES 100
#define WAIT_NS (250 * NS_PER_MS)

struct ctl_feed {
    struct ctl *c;
    char *path;
    struct ev_io io;
    bool is_file; /* epoll does not take it */
    bool ended;   /* nothing follows what is in `piece` */
    int tries;
    uint64_t offset;
    size_t len;
    struct client_side *post;
    struct ev_timer again;
    struct ev_defer next;
    struct err err;
    char piece[PIECE];
};

static void give_up(struct ctl_feed *f, const struct err *err)
{
    f->err = *err;
    client_interrupt(f->c->client);
}

static void send_piece(void *arg);
static void on_ready(void *arg, uint32_t events);

static void read_piece(void *arg)
{
    struct ctl_feed *f = arg;
    struct err err;
    ssize_t n = read(STDIN_FILENO, f->piece, sizeof(f->piece));

    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        if (f->is_file)
            ev_defer(f->c->ev, &f->next, read_piece, f);
        return;
    }
    if (n < 0) {
        err_sys(&err, ERR_SYS, "standard input");
        give_up(f, &err);
        return;
    }
    f->len = (size_t)n;
    f->ended = n == 0;
    f->tries = 0;
    ev_io_set(f->c->ev, &f->io, 0);
    send_piece(f);
}

static void on_ready(void *arg, uint32_t events UNUSED)
{
    struct ctl_feed *f = arg;

    if (!f->post && !f->ended && !f->again.slot)
        read_piece(f);
}

static bool is_worth_a_try(const struct err *err)
{
    return err->id == ERR_CUT_OFF || err->id == ERR_UNREACHABLE || err->id == ERR_BUSY || err->id == ERR_TIMEOUT ||
           err->id == ERR_RATE_LIMITED;
}

static void on_sent(void *arg, const struct err *err, const json_t *answer UNUSED)
{
    struct ctl_feed *f = arg;

    client_side_free(take_ptr(&f->post));
    if (err && is_worth_a_try(err) && f->tries++ < TRIES) {
        ev_timer_set(f->c->ev, &f->again, ev_now(f->c->ev) + WAIT_NS, send_piece, f);
        return;
    }
    if (err && err->id != ERR_EXISTS && err->id != ERR_MISSING && err->id != ERR_SANDBOX_ENDED) {
        give_up(f, err);
        return;
    }
    f->ended = f->ended || err; /* it has ended, or closed its input, and wants no more */
    f->offset += f->len;
    f->len = 0;
    if (!f->ended && f->is_file)
        ev_defer(f->c->ev, &f->next, read_piece, f);
    else if (!f->ended)
        ev_io_set(f->c->ev, &f->io, EPOLLIN);
}

static void send_piece(void *arg)
{
    struct ctl_feed *f = arg;
    auto_free char *path = str_printf("%s?offset=%" PRIu64 "%s", f->path, f->offset, f->ended ? "&close=true" : "");
    struct err err = { 0 };

    if (client_post(f->c->client, path, f->piece, f->len, on_sent, f, &f->post, &err) < 0)
        give_up(f, &err);
}

struct ctl_feed *ctl_feed_new(struct ctl *c, const char *sandbox, const char *execution)
{
    struct ctl_feed *f = mem_new(struct ctl_feed);
    struct err err = { 0 };

    f->c = c;
    f->path = ctl_path("/v1/sandboxes/%s/executions/%s/stdin", sandbox, execution);
    if (ev_io_add(c->ev, &f->io, STDIN_FILENO, EPOLLIN, on_ready, f, &err) == 0)
        return f;
    f->is_file = true;
    ev_defer(c->ev, &f->next, read_piece, f); /* a descriptor that is none is told by the read */
    return f;
}

const struct err *ctl_feed_error(const struct ctl_feed *f)
{
    return f && f->err.id != ERR_NONE ? &f->err : NULL;
}

void ctl_feed_free(struct ctl_feed *f)
{
    if (!f)
        return;
    ev_io_del(f->c->ev, &f->io);
    ev_timer_clear(f->c->ev, &f->again);
    ev_defer_clear(f->c->ev, &f->next);
    client_side_free(f->post);
    free(f->path);
    free(f);
}
