/* A channel and its peer with any order of events: each byte of the input is one step of either
 * side. The wire target covers the bytes on the socket; here the order of sending, failing,
 * pausing, closing and finishing is hostile. */
#include "core/base/fd.h"
#include "core/wire/chan.h"

#include <stdlib.h>

static struct ev *loop;
static struct chan chan;
static int peer;
static uint32_t sent, peer_got; /* frames of the channel are numbered: the peer must see them in order, without a gap */
static uint32_t peer_sent, got; /* the same in the other direction */
static unsigned ends;
static bool done, done_at_next_frame;
static bool polite; /* the peer has sent nothing that ends the channel */

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void finish(void)
{
    chan_done(&chan);
    done = true;
}

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    must(arg == &chan && !done && ends == 0 && !chan.paused);
    must(nfds == 0 || chan.fds_allowed);
    must(f->stream == got++);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    if (done_at_next_frame)
        finish();
}

static void on_end(void *arg, const struct err *why)
{
    must(arg == &chan && !done && why->id != ERR_NONE);
    must(++ends == 1);
}

static void on_drain(void *arg)
{
    must(arg == &chan && !done && ends == 0 && !chan_full(&chan));
}

static const struct chan_ops ops = { on_frame, on_end, on_drain };

static void chan_says(uint32_t len, size_t nfds)
{
    static const uint8_t payload[FRAME_PAYLOAD_MAX];
    static const int fds[2] = { STDERR_FILENO, STDERR_FILENO };

    chan_send_fds(&chan, &(struct frame){ .type = FRAME_DATA, .stream = sent++, .len = len, .data = payload }, fds,
                  nfds);
    must(chan.queued <= CHAN_HARD);
}

static void peer_says(size_t len, size_t nfds)
{
    static uint8_t packet[FRAME_HEADER + 8];
    static const int fds[2] = { STDERR_FILENO, STDERR_FILENO };
    struct frame f = { .type = FRAME_CLOSE, .stream = peer_sent };

    frame_header(packet, &f);
    if (fd_send(peer, packet, len, fds, nfds, MSG_DONTWAIT) < 0)
        return;
    peer_sent++;
    polite = polite && len == FRAME_HEADER && (nfds == 0 || chan.fds_allowed);
}

static bool peer_hears(void)
{
    static uint8_t packet[FRAME_MAX];
    struct err err;
    struct frame f;
    int fds[2];
    size_t nfds = 2;
    ssize_t n = fd_recv(peer, packet, sizeof(packet), fds, &nfds, MSG_DONTWAIT);

    if (n <= 0)
        return false;
    must(frame_parse(packet, (size_t)n, &f, &err) == 0 && f.stream == peer_got++);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    return true;
}

static void step(uint8_t op)
{
    switch (op & 15) {
    case 0:
    case 1:
        ev_turn(loop, 0);
        break;
    case 2:
        chan_says(1, 0);
        break;
    case 3:
        for (int i = 0; i < 20; i++)
            chan_says(FRAME_PAYLOAD_MAX, 0);
        break;
    case 4:
        chan_says(3, 2);
        break;
    case 5:
        peer_says(FRAME_HEADER, 0);
        break;
    case 6:
        for (int i = 0; i < 100; i++)
            peer_says(FRAME_HEADER, 0);
        break;
    case 7:
        peer_says(FRAME_HEADER, 2);
        break;
    case 8:
        peer_says(op >> 5 == 7 ? 0 : FRAME_HEADER + (op >> 5), op >> 4 & 1); /* usually not a valid frame */
        break;
    case 9:
        peer_hears();
        break;
    case 10:
        while (peer_hears())
            ;
        break;
    case 11:
        chan_pause(&chan, true);
        break;
    case 12:
        chan_pause(&chan, false);
        break;
    case 13:
        fd_close(&peer);
        break;
    case 14:
        shutdown(peer, op >> 4 & 1 ? SHUT_RD : SHUT_WR);
        break;
    default:
        if (op >> 4 & 1)
            finish();
        else
            done_at_next_frame = true;
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    int pair[2], before = dup(STDERR_FILENO), after;

    close(before);
    sent = peer_got = peer_sent = got = ends = 0;
    done = done_at_next_frame = false;
    polite = true;
    must(ev_new(&loop, &err) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    must(chan_init(&chan, loop, pair[0], size > 0 && data[0] & 1, &ops, &chan, &err) == 0);
    peer = pair[1];
    for (size_t i = 1; i < size && i < 256; i++)
        step(data[i]);

    /* In every case: after the peer has closed and reading continues, the end is reported, after
     * all frames. */
    fd_close(&peer);
    chan_pause(&chan, false);
    for (int i = 0; i < 64; i++)
        ev_turn(loop, 0);
    must(done || ends == 1);
    must(done || !polite || got == peer_sent);
    ev_run(loop); /* the loop has nothing left to wait for */
    chan_done(&chan);
    ev_free(loop);
    after = dup(STDERR_FILENO); /* the lowest free descriptor is the same as before: none was leaked */
    close(after);
    must(after == before);
    return 0;
}
