/* One connection: TLS on the side of the network, a socket pair on the side of the server.
 *
 * Bytes stay in kernel buffers wherever possible. A record is read when the server's socket has
 * room for it, and bytes of the server are read when the client's socket has; only the rest of a
 * partial write waits in `in` or `out`, at most one record each. So a slow reader on either side
 * slows down the other (back-pressure), and an idle connection costs only the memory of OpenSSL.
 *
 * 1. The server sees the same as without TLS: bytes, the end of the client's sending side, and the
 *    end of the connection. When the server closes, that is passed on after all bytes it wrote, and
 *    then the client's last bytes are discarded for LINGER_MS: closing a socket with unread bytes
 *    would discard the answer. TLS has a half-close; a client that also closes the TCP connection
 *    after it waits for nothing more.
 * 2. Every state in which only the client can act has a timeout, except the open state, where the
 *    server has its own.
 * 3. The first byte distinguishes TLS from plain HTTP, so that a client that used http instead of
 *    https gets a helpful answer. */
#include "server/tls/tls_internal.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>

#define LINGER_MS 2000
#define LINGER_MAX (4u * 1024 * 1024)
#define ROUNDS 8               /* records in one direction before other connections are served */
#define UNSENT_MAX (64 * 1024) /* unsent bytes that the socket buffer may hold beyond those in flight to the client */
#define TLS_HANDSHAKE 0x16
#define SHARE 4 /* one address may have 1/SHARE of the handshakes, so that it cannot displace all others */

enum tls_relay_state {
    RELAY_FIRST,     /* no byte has arrived */
    RELAY_HANDSHAKE, /* TLS handshake */
    RELAY_OPEN,
    RELAY_FLUSH,  /* the server has closed: the remaining bytes are sent to the client */
    RELAY_LINGER, /* everything is sent; waits until the client closes */
};

struct tls_relay_pending {
    unsigned char *data;
    size_t at, len;
};

struct tls_relay {
    struct tls_relay_set *owner;
    struct tls_relay *prev, *next;
    struct tls_relay *older, *newer; /* list of relays in the handshake */
    enum tls_relay_state state;
    SSL *ssl;
    int net_fd, plain_fd;
    struct ev_io net_io, plain_io;
    struct ev_timer timer;
    union tls_addr from;
    struct tls_relay_pending in, out;
    bool net_ended;          /* the client has closed its sending side */
    bool server_read_closed; /* the server has closed its receiving side */
    bool read_blocked;       /* SSL_read waits until the socket is writable */
    bool write_blocked;      /* SSL_write waits until the socket is writable */
    size_t discarded_bytes;
};

/* --- construction --- */

static void tls_relay_link(struct tls_relay *r)
{
    struct tls_relay_set *all = r->owner;

    r->next = all->first;
    if (r->next)
        r->next->prev = r;
    all->first = r;
    r->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = r;
    all->newest = r;
    all->handshaking++;
}

static void tls_relay_leave_handshake(struct tls_relay *r)
{
    struct tls_relay_set *all = r->owner;

    *(r->older ? &r->older->newer : &all->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &all->newest) = r->older;
    r->older = r->newer = NULL;
    all->handshaking--;
}

static bool tls_relay_in_handshake(const struct tls_relay *r)
{
    return r->state == RELAY_FIRST || r->state == RELAY_HANDSHAKE;
}

static void tls_relay_free(struct tls_relay *r)
{
    struct tls_relay_set *all = r->owner;

    if (tls_relay_in_handshake(r))
        tls_relay_leave_handshake(r);
    *(r->prev ? &r->prev->next : &all->first) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    ev_io_del(all->ev, &r->net_io);
    ev_io_del(all->ev, &r->plain_io);
    ev_timer_clear(all->ev, &r->timer);
    SSL_free(r->ssl);
    fd_close(&r->net_fd);
    fd_close(&r->plain_fd);
    free(r->in.data);
    free(r->out.data);
    free(r);
    all->counters->open--;
    all->on_relay_freed(all->arg);
}

static void tls_relay_fail(struct tls_relay *r)
{
    if (tls_relay_in_handshake(r))
        r->owner->counters->failed++;
    tls_relay_free(r);
}

void tls_relay_abort(struct tls_relay *r)
{
    if (tls_relay_in_handshake(r))
        r->owner->counters->timed_out++;
    tls_relay_free(r);
}

static void tls_relay_on_timeout(void *arg)
{
    tls_relay_abort(arg);
}

static void tls_relay_set_timeout(struct tls_relay *r, uint64_t ms)
{
    ev_timer_set(r->owner->ev, &r->timer, ev_now(r->owner->ev) + ms * NS_PER_MS, tls_relay_on_timeout, r);
}

/* --- closing --- */

static void tls_relay_linger(struct tls_relay *r)
{
    r->state = RELAY_LINGER;
    shutdown(r->net_fd, SHUT_WR);
    ev_io_del(r->owner->ev, &r->plain_io);
    fd_close(&r->plain_fd);
    ev_io_set(r->owner->ev, &r->net_io, EPOLLIN);
    tls_relay_set_timeout(r, LINGER_MS);
}

static void tls_relay_discard(struct tls_relay *r)
{
    ssize_t n = recv(r->net_fd, r->owner->scratch, sizeof(r->owner->scratch), MSG_DONTWAIT);

    if (n > 0)
        r->discarded_bytes += (size_t)n;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || r->discarded_bytes > LINGER_MAX)
        tls_relay_free(r);
}

/* --- bytes --- */

static void tls_relay_pending_set(struct tls_relay_pending *rest, const unsigned char *data, size_t len)
{
    free(rest->data);
    *rest = (struct tls_relay_pending){ .data = mem_copy(data, len), .len = len };
}

static void tls_relay_pending_consume(struct tls_relay_pending *rest, size_t n)
{
    rest->at += n;
    if (rest->at == rest->len) {
        free(rest->data);
        *rest = (struct tls_relay_pending){ 0 };
    }
}

/* Writes to the server as much as its socket accepts and returns the number of bytes. If the server
 * reads no more, all bytes are discarded. */
static size_t tls_relay_send_to_server(struct tls_relay *r, const unsigned char *data, size_t len)
{
    ssize_t n = r->server_read_closed ? (ssize_t)len : send(r->plain_fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0) {
        r->server_read_closed = true;
        return len;
    }
    return (size_t)n;
}

static void tls_relay_client_ended(struct tls_relay *r)
{
    r->net_ended = true;
    shutdown(r->plain_fd, SHUT_WR);
}

/* Returns false if the connection is lost. */
static bool tls_relay_read_record(struct tls_relay *r, bool *again)
{
    unsigned char *to = r->owner->scratch;
    int n = SSL_read(r->ssl, to, TLS_RECORD_MAX);

    *again = n > 0;
    if (n > 0) {
        size_t taken = tls_relay_send_to_server(r, to, (size_t)n);

        if (taken < (size_t)n) {
            tls_relay_pending_set(&r->in, to + taken, (size_t)n - taken);
            *again = false;
        }
        return true;
    }
    switch (SSL_get_error(r->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        return true;
    case SSL_ERROR_WANT_WRITE:
        r->read_blocked = true;
        return true;
    case SSL_ERROR_ZERO_RETURN:
        tls_relay_client_ended(r);
        return true;
    default: /* closed without close_notify: the data may be truncated, so the server must not take it for complete */
        return false;
    }
}

static bool tls_relay_pump_client(struct tls_relay *r)
{
    bool again = !r->net_ended && r->state == RELAY_OPEN;

    r->read_blocked = false;
    if (r->in.len > 0) {
        tls_relay_pending_consume(&r->in, tls_relay_send_to_server(r, r->in.data + r->in.at, r->in.len - r->in.at));
        if (r->in.len > 0)
            return true;
    }
    for (int i = 0; i < ROUNDS && again; i++)
        if (!tls_relay_read_record(r, &again))
            return false;
    return true;
}

/* Returns the number of bytes that the client's socket accepted, or -1 if the connection is
 * lost. */
static ssize_t tls_relay_encrypt(struct tls_relay *r, const unsigned char *data, size_t len)
{
    int n = SSL_write(r->ssl, data, (int)len);

    if (n > 0)
        return n;
    switch (SSL_get_error(r->ssl, n)) {
    case SSL_ERROR_WANT_WRITE:
        r->write_blocked = true;
        return 0;
    default: /* also SSL_ERROR_WANT_READ, which does not occur after the handshake */
        return -1;
    }
}

static bool tls_relay_send_pending(struct tls_relay *r)
{
    ssize_t n = tls_relay_encrypt(r, r->out.data + r->out.at, r->out.len - r->out.at);

    if (n > 0) {
        tls_relay_pending_consume(&r->out, (size_t)n);
        if (r->state == RELAY_FLUSH)
            tls_relay_set_timeout(r, r->owner->set->write_ms);
    }
    return n >= 0;
}

static bool tls_relay_write_record(struct tls_relay *r, bool *again)
{
    unsigned char *to = r->owner->scratch;
    ssize_t n = recv(r->plain_fd, to, TLS_RECORD_MAX, MSG_DONTWAIT);

    *again = n > 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) { /* also if the server closed with unread bytes */
        r->state = RELAY_FLUSH;
        tls_relay_set_timeout(r, r->owner->set->write_ms);
        return true;
    }
    ssize_t done = tls_relay_encrypt(r, to, (size_t)n);
    if (done >= 0 && done < n) {
        tls_relay_pending_set(&r->out, to + done, (size_t)(n - done));
        *again = false;
    }
    return done >= 0;
}

static bool tls_relay_pump_server(struct tls_relay *r)
{
    bool again = true;

    r->write_blocked = false;
    for (int i = 0; i < ROUNDS && again; i++) {
        if (r->out.len > 0) {
            if (!tls_relay_send_pending(r))
                return false;
            again = !r->write_blocked;
        } else if (r->state == RELAY_OPEN) {
            if (!tls_relay_write_record(r, &again))
                return false;
        } else {
            again = false;
        }
    }
    return true;
}

static void tls_relay_update_events(struct tls_relay *r)
{
    uint32_t net = 0, plain = 0;

    if (r->state == RELAY_OPEN && !r->net_ended && r->in.len == 0 && !r->read_blocked)
        net |= EPOLLIN;
    if (r->read_blocked || r->write_blocked)
        net |= EPOLLOUT;
    if (r->state == RELAY_OPEN && r->net_ended)
        net |= EPOLLRDHUP;
    if (r->state == RELAY_OPEN && r->out.len == 0)
        plain |= EPOLLIN;
    if (r->in.len > 0)
        plain |= EPOLLOUT;
    ev_io_set(r->owner->ev, &r->net_io, net);
    ev_io_set(r->owner->ev, &r->plain_io, plain);
}

/* Returns false if the socket had no room for it yet. */
static bool tls_relay_send_close_notify(struct tls_relay *r)
{
    int n = SSL_shutdown(r->ssl);

    r->write_blocked = n < 0 && SSL_get_error(r->ssl, n) == SSL_ERROR_WANT_WRITE;
    return !r->write_blocked;
}

static void tls_relay_pump(struct tls_relay *r)
{
    ERR_clear_error();
    if (!tls_relay_pump_server(r) || !tls_relay_pump_client(r)) {
        tls_relay_free(r);
        return;
    }
    if (r->state == RELAY_FLUSH && r->out.len == 0 && tls_relay_send_close_notify(r))
        tls_relay_linger(r);
    else
        tls_relay_update_events(r);
}

static void tls_relay_on_plain(void *arg, uint32_t events UNUSED)
{
    tls_relay_pump(arg);
}

/* --- opening --- */

static void tls_relay_hand_over(struct tls_relay *r)
{
    struct tls_relay_set *all = r->owner;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        tls_relay_fail(r);
        return;
    }
    struct tls_handover h = { .fd = pair[1], .from = r->from };
    r->plain_fd = pair[0];
    if (ev_io_add(all->ev, &r->plain_io, r->plain_fd, EPOLLIN, tls_relay_on_plain, r, NULL) < 0 ||
        write(all->handover_fd, &h, sizeof(h)) !=
            (ssize_t)sizeof(h)) { /* the pipe is full: the server's loop has not run for a long time */
        close(pair[1]);
        tls_relay_fail(r);
        return;
    }
    all->counters->handshakes++;
    all->counters->resumed += SSL_session_reused(r->ssl) == 1;
    tls_relay_leave_handshake(r);
    r->state = RELAY_OPEN;
    ev_timer_clear(all->ev, &r->timer);
    tls_relay_pump(r);
}

static void tls_relay_handshake(struct tls_relay *r)
{
    ERR_clear_error();
    int n = SSL_accept(r->ssl);

    if (n == 1) {
        tls_relay_hand_over(r);
        return;
    }
    switch (SSL_get_error(r->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        ev_io_set(r->owner->ev, &r->net_io, EPOLLIN);
        return;
    case SSL_ERROR_WANT_WRITE:
        ev_io_set(r->owner->ev, &r->net_io, EPOLLOUT);
        return;
    default: /* OpenSSL has sent an alert with the reason */
        tls_relay_fail(r);
    }
}

static void tls_relay_answer_plain_http(struct tls_relay *r)
{
    const char *text = r->owner->set->plain;

    r->owner->counters->plain++;
    tls_relay_leave_handshake(r);
    (void)send(r->net_fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    tls_relay_linger(r);
}

static void tls_relay_read_first_byte(struct tls_relay *r)
{
    unsigned char byte = 0;
    ssize_t n = recv(r->net_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && byte >= 'A' && byte <= 'Z') {
        tls_relay_answer_plain_http(r);
    } else if (n == 1 && byte == TLS_HANDSHAKE) {
        r->state = RELAY_HANDSHAKE;
        tls_relay_handshake(r);
    } else {
        tls_relay_fail(r);
    }
}

static void tls_relay_on_net(void *arg, uint32_t events)
{
    struct tls_relay *r = arg;

    switch (r->state) {
    case RELAY_FIRST:
        tls_relay_read_first_byte(r);
        break;
    case RELAY_HANDSHAKE:
        tls_relay_handshake(r);
        break;
    case RELAY_LINGER:
        tls_relay_discard(r);
        break;
    case RELAY_OPEN:
    case RELAY_FLUSH:
        if (events & (EPOLLHUP | EPOLLERR) || (events & EPOLLRDHUP && r->state == RELAY_OPEN))
            tls_relay_free(r);
        else
            tls_relay_pump(r);
        break;
    }
}

/* For IPv6 the network counts, because clients own whole networks. */
static bool tls_addr_same_network(const union tls_addr *a, const union tls_addr *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET6)
        return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 8) == 0;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

static struct tls_relay *tls_relay_find_excess(const struct tls_relay_set *all, const struct tls_relay *newest)
{
    unsigned limit = all->set->handshakes_max, before = 0;
    struct tls_relay *first = NULL;

    for (struct tls_relay *r = newest->older; r; r = r->older) {
        if (tls_addr_same_network(&r->from, &newest->from)) {
            first = r;
            before++;
        }
    }
    if (before >= max_u64(limit / SHARE, 1))
        return first;
    return all->handshaking > limit ? all->oldest : NULL;
}

void tls_relay_start(struct tls_relay_set *all, int fd, const union tls_addr *from, const struct tls_identity *id)
{
    struct tls_relay *r = mem_new(struct tls_relay);
    int yes = 1, unsent = UNSENT_MAX;

    *r = (struct tls_relay){
        .owner = all, .net_fd = fd, .plain_fd = -1, .from = *from, .ssl = tls_identity_session(id)
    };
    tls_relay_link(r);
    all->counters->accepted++;
    all->counters->open++;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    /* Limits the unsent bytes, so that the server, which sees only the socket pair, notices the
     * progress of a slow client. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    if (!r->ssl || SSL_set_fd(r->ssl, fd) != 1 ||
        ev_io_add(all->ev, &r->net_io, fd, EPOLLIN, tls_relay_on_net, r, NULL) < 0) {
        tls_relay_fail(r);
        return;
    }
    SSL_set_accept_state(r->ssl);
    tls_relay_set_timeout(r, all->set->handshake_ms);
    struct tls_relay *other = tls_relay_find_excess(all, r);
    if (other)
        tls_relay_abort(other);
}
