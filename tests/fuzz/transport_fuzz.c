/* Frames on a byte stream, cut into pieces: the first byte of the input is the length of the
 * pieces, the others are what the peer writes. */
#include "core/base/fd.h"
#include "core/wire/chan.h"

#include <stdlib.h>
#include <sys/socket.h>

static const uint8_t *bytes;
static size_t nbytes, delivered;
static unsigned ends;
static struct err reason;

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* Every frame stands in the input directly after the one before. */
static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    uint8_t head[FRAME_HEADER];

    (void)arg, (void)fds;
    must(ends == 0 && nfds == 0 && delivered + FRAME_HEADER + f->len <= nbytes);
    frame_header(head, f);
    must(memcmp(bytes + delivered, head, sizeof(head)) == 0);
    must(f->len == 0 || memcmp(bytes + delivered + FRAME_HEADER, f->data, f->len) == 0);
    delivered += FRAME_HEADER + f->len;
}

static void on_end(void *arg, const struct err *why)
{
    (void)arg;
    ends++;
    reason = *why;
}

static const struct chan_ops ops = { on_frame, on_end, NULL };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct ev *loop;
    struct chan chan;
    struct frame next;
    int pair[2];

    if (size < 1)
        return 0;
    size_t piece = data[0] + 1u;
    bytes = data + 1;
    nbytes = min_u64(size - 1, 65536); /* the socket holds all of it */
    delivered = ends = 0;
    must(ev_new(&loop, &err) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(chan_init(&chan, loop, pair[0], true, &ops, NULL, &err) == 0);
    for (size_t at = 0, n; at < nbytes && !ends; at += n) {
        n = min_u64(piece, nbytes - at);
        if (send(pair[1], bytes + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            must(ends == 1);
        ev_turn(loop, 0);
    }
    close(pair[1]);
    for (int i = 0; i < 4096 && !ends; i++)
        ev_turn(loop, 0);
    must(ends == 1);
    /* All frames were delivered; an incomplete or wrong one is the reason of the end. */
    bool whole = delivered == nbytes;
    must((reason.id == ERR_LOST) == whole);
    must(whole || frame_parse(bytes + delivered, nbytes - delivered, &next, &err) < 0 ||
         nbytes - delivered > FRAME_MAX || FRAME_HEADER + next.len != nbytes - delivered);
    chan_done(&chan);
    ev_free(loop);
    return 0;
}
