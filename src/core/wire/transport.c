/* A packet socket is read into one buffer of the process, since a packet is delivered whole. A byte
 * stream keeps the beginning of a frame between two reads, so each has a buffer of its own, of one
 * frame: it is empty or holds at most one incomplete frame whenever the stream says EAGAIN.
 *
 * A stream whose header is wrong cannot be read further, since the place of the next frame is
 * unknown. transport_receive then returns the header alone, which frame_parse refuses with the
 * reason. The same is done with a frame that the peer cut off by closing. */
#include "core/wire/transport.h"

#include "core/base/mem.h"
#include "core/base/pack.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct transport_ops {
    bool passes_fds;
    ssize_t (*send)(struct transport *t, struct iovec *iov, size_t niov, const int *fds, size_t nfds);
    ssize_t (*receive)(struct transport *t, const uint8_t **packet, int *fds, size_t *nfds);
    bool (*pending)(const struct transport *t);
};

/* --- packets --- */

static uint8_t transport_packet_inbox[FRAME_MAX];

static ssize_t transport_packet_send(struct transport *t, struct iovec *iov, size_t niov, const int *fds, size_t nfds)
{
    return fd_sendv(t->out, iov, niov, fds, nfds, MSG_DONTWAIT);
}

static ssize_t transport_packet_receive(struct transport *t, const uint8_t **packet, int *fds, size_t *nfds)
{
    *packet = transport_packet_inbox;
    return fd_recv(t->in, transport_packet_inbox, sizeof(transport_packet_inbox), fds, nfds, MSG_DONTWAIT);
}

static bool transport_packet_pending(const struct transport *t)
{
    char byte;

    return recv(t->in, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static const struct transport_ops transport_packet_ops = { true, transport_packet_send, transport_packet_receive,
                                                           transport_packet_pending };

/* --- byte streams --- */

static ssize_t transport_stream_send(struct transport *t, struct iovec *iov, size_t niov, const int *fds UNUSED,
                                     size_t nfds)
{
    ssize_t n;

    if (nfds) {
        errno = EOPNOTSUPP;
        return -1;
    }
    do
        n = t->out == t->in ? fd_sendv(t->out, iov, niov, NULL, 0, MSG_DONTWAIT) : writev(t->out, iov, (int)niov);
    while (n < 0 && errno == EINTR);
    return n;
}

/* The length of the first packet in the inbox; 0: it is incomplete. */
static size_t transport_stream_first(const struct transport *t)
{
    struct unpack u;
    size_t have = t->end - t->at;

    if (have < FRAME_HEADER)
        return 0;
    unpack_init(&u, t->inbox + t->at, FRAME_HEADER);
    uint32_t len = unpack_u32(&u);
    if (len > FRAME_PAYLOAD_MAX)
        return FRAME_HEADER; /* frame_parse says why */
    return have < FRAME_HEADER + len ? 0 : FRAME_HEADER + len;
}

static ssize_t transport_stream_read(struct transport *t)
{
    ssize_t n;

    if (!t->inbox)
        t->inbox = mem_alloc(FRAME_MAX);
    memmove(t->inbox, t->inbox + t->at, t->end - t->at);
    t->end -= t->at;
    t->at = 0;
    do
        n = read(t->in, t->inbox + t->end, FRAME_MAX - t->end);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        t->end += (size_t)n;
    return n;
}

static ssize_t transport_stream_receive(struct transport *t, const uint8_t **packet, int *fds UNUSED, size_t *nfds)
{
    size_t len;

    *nfds = 0;
    while ((len = transport_stream_first(t)) == 0) {
        ssize_t n = transport_stream_read(t);

        if (n < 0)
            return -1;
        if (n == 0) {
            len = t->end - t->at;
            break;
        }
    }
    *packet = t->inbox + t->at;
    t->at += len;
    return (ssize_t)len;
}

static bool transport_stream_pending(const struct transport *t)
{
    struct pollfd p = { .fd = t->in, .events = POLLIN };

    return transport_stream_first(t) > 0 || poll(&p, 1, 0) != 0;
}

static const struct transport_ops transport_stream_ops = { false, transport_stream_send, transport_stream_receive,
                                                           transport_stream_pending };

/* --- both --- */

static const struct transport_ops *transport_ops_of(int fd)
{
    int type = 0;
    socklen_t len = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET ? &transport_packet_ops
                                                                                           : &transport_stream_ops;
}

int transport_init(struct transport *t, int in, int out, struct err *err)
{
    *t = (struct transport){ .ops = transport_ops_of(in), .in = in, .out = out };
    if (fd_nonblock(in, true) == 0 && (out == in || fd_nonblock(out, true) == 0))
        return 0;
    err_sys(err, ERR_SYS, "cannot make descriptor %d non-blocking", in);
    transport_close(t, false);
    return -1;
}

void transport_close(struct transport *t, bool hang_up)
{
    if (t->out != t->in)
        fd_close(&t->out);
    if (hang_up && t->in >= 0)
        fd_hang_up(take_fd(&t->in));
    fd_close(&t->in);
    t->out = -1;
    free(t->inbox);
    t->inbox = NULL;
    t->at = t->end = 0;
}

bool transport_passes_fds(const struct transport *t)
{
    return t->ops->passes_fds;
}

ssize_t transport_send(struct transport *t, struct iovec *iov, size_t niov, const int *fds, size_t nfds)
{
    return t->ops->send(t, iov, niov, fds, nfds);
}

ssize_t transport_receive(struct transport *t, const uint8_t **packet, int *fds, size_t *nfds)
{
    return t->ops->receive(t, packet, fds, nfds);
}

bool transport_has_frame(const struct transport *t)
{
    return t->inbox && transport_stream_first(t) > 0;
}

bool transport_pending(const struct transport *t)
{
    return t->ops->pending(t);
}
