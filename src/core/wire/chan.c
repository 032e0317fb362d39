/* Design:
 *
 * 1. Last frames must arrive. A peer that dies has often just sent the reason, and then our own
 *    CREDIT fails on the closed socket. So a failed send does not end the channel: it stops
 *    sending, drops the queue, and reads until nothing is left. For the same reason ECONNRESET from
 *    recv is skipped: the kernel reports it once, before the packets that are still there.
 * 2. chan_send never calls back, because owners would have to survive being freed in the middle of
 *    a function. The consequences of a failed send are deferred (`after_failure`).
 * 3. One channel cannot starve the others: it handles at most BURST packets, then the loop
 *    continues with its next source. The remaining packets are read in the next iteration.
 *
 * A packet is sent directly from the caller's memory as header and payload, and copied only if it
 * has to wait. A payload is valid only during its on_frame call, since a transport reuses the
 * memory. */
#include "core/wire/chan.h"

#include "core/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#define BURST 32

struct chan_packet {
    struct chan_packet *next;
    int fds[FD_PASS_MAX];
    size_t nfds;
    size_t len;
    size_t sent; /* bytes that a byte stream has accepted */
    uint8_t bytes[];
};

/* Queue. */

static void chan_packet_free(struct chan_packet *p)
{
    for (size_t i = 0; i < p->nfds; i++)
        close(p->fds[i]);
    explicit_bzero(p->bytes, p->len); /* a claim or a binding may hold secrets */
    free(p);
}

static size_t chan_packet_cost(const struct chan_packet *p)
{
    return sizeof(*p) + p->len;
}

/* Duplicates the descriptors, because the caller closes its own. */
static struct chan_packet *chan_packet_new(const struct iovec iov[2], const int *fds, size_t nfds)
{
    size_t len = iov[0].iov_len + iov[1].iov_len;
    struct chan_packet *p = mem_alloc(sizeof(*p) + len);

    p->len = len;
    memcpy(p->bytes, iov[0].iov_base, iov[0].iov_len);
    if (iov[1].iov_len)
        memcpy(p->bytes + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
    for (; p->nfds < nfds; p->nfds++) {
        p->fds[p->nfds] = fcntl(fds[p->nfds], F_DUPFD_CLOEXEC, 0);
        if (p->fds[p->nfds] < 0) {
            chan_packet_free(p);
            return NULL;
        }
    }
    return p;
}

static void chan_queue_push(struct chan *c, struct chan_packet *p)
{
    if (c->tail)
        c->tail->next = p;
    else
        c->head = p;
    c->tail = p;
    c->queued += chan_packet_cost(p);
    c->was_full = c->was_full || chan_full(c);
}

static void chan_queue_pop(struct chan *c)
{
    struct chan_packet *p = c->head;

    c->head = p->next;
    if (!c->head)
        c->tail = NULL;
    c->queued -= chan_packet_cost(p);
    chan_packet_free(p);
}

static void chan_queue_clear(struct chan *c)
{
    while (c->head)
        chan_queue_pop(c);
}

static void chan_set_interest(struct chan *c)
{
    uint32_t in = c->paused ? 0 : EPOLLIN;
    uint32_t out = c->head ? EPOLLOUT : 0;

    if (c->writer.on) {
        ev_io_set(c->ev, &c->io, in);
        ev_io_set(c->ev, &c->writer, out);
    } else {
        ev_io_set(c->ev, &c->io, in | out);
    }
}

/* End of a channel. */

static void chan_close_socket(struct chan *c)
{
    c->dead = true;
    ev_defer_clear(c->ev, &c->after_failure);
    ev_defer_clear(c->ev, &c->more);
    ev_io_del(c->ev, &c->io);
    ev_io_del(c->ev, &c->writer);
    transport_close(&c->transport, c->is_sole_holder);
    c->io.fd = -1;
    chan_queue_clear(c);
}

static void chan_end(struct chan *c, const struct err *why)
{
    chan_close_socket(c);
    c->ops->on_end(c->arg, why);
}

static void chan_after_send_failure(void *arg);

/* Sending failed permanently. The frames that the peer sent before are read first; then on_end
 * follows. */
static void chan_stop_sending(struct chan *c)
{
    chan_queue_clear(c);
    chan_set_interest(c);
    ev_defer(c->ev, &c->after_failure, chan_after_send_failure, c);
}

static void chan_stop_sending_errno(struct chan *c)
{
    if (errno == EPIPE || errno == ECONNRESET)
        err_set(&c->send_error, ERR_LOST, "the other side closed the connection");
    else
        err_sys(&c->send_error, ERR_SYS, "sending");
    chan_stop_sending(c);
}

/* Sending. */

enum chan_send_result { CHAN_SENT, CHAN_SEND_LATER, CHAN_SEND_FAILED };

/* CHAN_SEND_LATER: *sent bytes were accepted, and the others have to wait. */
static enum chan_send_result chan_transmit(struct chan *c, struct iovec *iov, size_t niov, const int *fds, size_t nfds,
                                           size_t *sent)
{
    size_t len = iov[0].iov_len + (niov > 1 ? iov[1].iov_len : 0);
    ssize_t n = transport_send(&c->transport, iov, niov, fds, nfds);

    *sent = n > 0 ? (size_t)n : 0;
    if (n >= 0)
        return *sent == len ? CHAN_SENT : CHAN_SEND_LATER;
    return errno == EAGAIN || errno == ENOBUFS ? CHAN_SEND_LATER : CHAN_SEND_FAILED;
}

static void chan_enqueue(struct chan *c, const struct iovec iov[2], const int *fds, size_t nfds, size_t sent)
{
    struct chan_packet *p = chan_packet_new(iov, fds, nfds);

    if (p)
        p->sent = sent;
    if (!p) {
        chan_stop_sending_errno(c);
    } else if (c->queued + chan_packet_cost(p) > CHAN_HARD) {
        chan_packet_free(p);
        err_set(&c->send_error, ERR_LIMIT, "the peer does not read; %zu bytes are queued for it", c->queued);
        chan_stop_sending(c);
    } else {
        chan_queue_push(c, p);
        chan_set_interest(c);
    }
}

void chan_send_fds(struct chan *c, const struct frame *f, const int *fds, size_t nfds)
{
    uint8_t header[FRAME_HEADER];
    struct iovec iov[2] = { { header, sizeof(header) }, { (void *)(uintptr_t)f->data, f->len } };
    size_t sent = 0;

    assert(nfds <= FD_PASS_MAX);
    if (c->dead || c->send_error.id)
        return;
    frame_header(header, f);
    enum chan_send_result r = c->head ? CHAN_SEND_LATER : chan_transmit(c, iov, 2, fds, nfds, &sent);
    if (r == CHAN_SEND_LATER)
        chan_enqueue(c, iov, fds, nfds, sent);
    else if (r == CHAN_SEND_FAILED)
        chan_stop_sending_errno(c);
}

void chan_send(struct chan *c, const struct frame *f)
{
    chan_send_fds(c, f, NULL, 0);
}

static void chan_call_drain(struct chan *c)
{
    if (!c->was_full || chan_full(c))
        return;
    c->was_full = false;
    if (c->ops->on_drain)
        c->ops->on_drain(c->arg);
}

static void chan_flush(struct chan *c)
{
    while (c->head) {
        struct chan_packet *p = c->head;
        struct iovec iov = { p->bytes + p->sent, p->len - p->sent };
        size_t sent;
        enum chan_send_result r = chan_transmit(c, &iov, 1, p->fds, p->nfds, &sent);

        p->sent += sent;
        if (r == CHAN_SEND_LATER)
            break;
        if (r == CHAN_SEND_FAILED) {
            chan_stop_sending_errno(c);
            return;
        }
        chan_queue_pop(c);
    }
    chan_set_interest(c);
    chan_call_drain(c);
}

/* Receiving. */

/* Returns 0 if the caller should continue reading, -1 if there is nothing more now. */
static int chan_receive_one(struct chan *c)
{
    int fds[FD_PASS_MAX];
    size_t nfds = c->fds_allowed ? FD_PASS_MAX : 0;
    const uint8_t *packet;
    ssize_t n = transport_receive(&c->transport, &packet, fds, &nfds);
    struct err why = c->send_error;
    struct frame f;

    if (n < 0 && errno == ECONNRESET)
        return 0;
    if (n < 0 && errno == EAGAIN) {
        if (c->send_error.id)
            chan_end(c, &why);
        return -1;
    }
    if (n > 0 && frame_parse(packet, (size_t)n, &f, &why) == 0) {
        c->ops->on_frame(c->arg, &f, fds, nfds);
        return 0;
    }
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    if (n < 0 && errno == EPROTO)
        err_set(&why, ERR_PROTOCOL, "a packet is longer than a frame, or carries descriptors that cannot be accepted");
    else if (n < 0)
        err_sys(&why, ERR_SYS, "receiving");
    else if (n == 0 && !why.id)
        err_set(&why, ERR_LOST, "the other side closed the connection");
    chan_end(c, &why);
    return -1;
}

static void chan_receive_more(void *arg);

static void chan_receive(struct chan *c)
{
    for (int i = 0; i < BURST && !c->dead && !c->paused; i++)
        if (chan_receive_one(c) < 0)
            return;
    if (!c->dead && !c->paused && transport_has_frame(&c->transport))
        ev_defer(c->ev, &c->more, chan_receive_more, c);
}

/* For frames that a byte stream has delivered already: the loop sees no event for them. */
static void chan_receive_more(void *arg)
{
    chan_receive(arg);
}

static void chan_after_send_failure(void *arg)
{
    struct chan *c = arg;

    chan_call_drain(c); /* the queue is empty: an owner that paused because of it must be called to continue reading */
    chan_receive(c);
}

static void chan_on_io(void *arg, uint32_t events)
{
    struct chan *c = arg;

    if (events & EPOLLOUT)
        chan_flush(c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        chan_receive(c);
}

/* The descriptor for writing: its reader accepts bytes again, or has closed. */
static void chan_on_writable(void *arg, uint32_t events)
{
    struct chan *c = arg;

    if (!(events & EPOLLERR)) {
        chan_flush(c);
        return;
    }
    ev_io_del(c->ev, &c->writer); /* the event would be reported for ever */
    if (!c->send_error.id) {
        err_set(&c->send_error, ERR_LOST, "the other side closed the connection");
        chan_stop_sending(c);
    }
}

int chan_init_pair(struct chan *c, struct ev *ev, int in, int out, bool fds_allowed, const struct chan_ops *ops,
                   void *arg, struct err *err)
{
    *c = (struct chan){ .ev = ev, .ops = ops, .arg = arg, .fds_allowed = fds_allowed };
    if (transport_init(&c->transport, in, out, err) < 0) {
        *c = (struct chan){ .dead = true };
        return -1;
    }
    if (ev_io_add(ev, &c->io, in, EPOLLIN, chan_on_io, c, err) == 0) {
        if (out == in || ev_io_add(ev, &c->writer, out, 0, chan_on_writable, c, err) == 0)
            return 0;
        ev_io_del(ev, &c->io);
    }
    transport_close(&c->transport, false);
    *c = (struct chan){ .dead = true };
    return -1;
}

int chan_init(struct chan *c, struct ev *ev, int fd, bool fds_allowed, const struct chan_ops *ops, void *arg,
              struct err *err)
{
    return chan_init_pair(c, ev, fd, fd, fds_allowed, ops, arg, err);
}

void chan_done(struct chan *c)
{
    if (!c->ev)
        return;
    if (!c->dead)
        chan_close_socket(c);
    c->ev = NULL;
}

void chan_pause(struct chan *c, bool paused)
{
    c->paused = paused;
    if (c->dead)
        return;
    chan_set_interest(c);
    if (!paused && c->send_error.id)
        ev_defer(c->ev, &c->after_failure, chan_after_send_failure, c);
    if (!paused && transport_has_frame(&c->transport))
        ev_defer(c->ev, &c->more, chan_receive_more, c);
}

bool chan_full(const struct chan *c)
{
    return c->queued >= CHAN_HIGH;
}

bool chan_pending(const struct chan *c)
{
    return c->dead || c->send_error.id || transport_pending(&c->transport);
}

bool chan_idle(const struct chan *c)
{
    return !c->head;
}
