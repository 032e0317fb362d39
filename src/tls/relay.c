/* One connection: TLS on the side of the network, a socket pair on the side of the server.
 *
 * Nothing is buffered here that can stay in the kernel. A record is read when the server has room for it, and bytes of
 * the server are read when the client has; only what one side took in part waits in `in` or `out`, at most one record
 * each. So a slow reader on either side slows the other, and an idle connection costs what OpenSSL keeps for it.
 *
 * 1. The server sees what it would see without TLS: bytes, the end of the client's side, and the end of all. The end
 *    that the server makes is passed on after all that it wrote, and then the client's last bytes are thrown away for
 *    a moment: closing a socket with unread bytes in it would take back the answer.
 *    TLS has an end of one side; a client that after it also ends the connection below waits for nothing more.
 * 2. Every state in which only the client can act has a clock, except the open one, where the server has its own.
 * 3. The first byte tells TLS from plain HTTP, so that somebody who forgot the s in https is told so. */
#include "tls/inside.h"

#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>

#define LINGER_MS 2000
#define LINGER_MAX (4u * 1024 * 1024)
#define ROUNDS 8               /* records in one direction before others have their turn */
#define UNSENT_MAX (64 * 1024) /* bytes that the kernel keeps beyond what is under way to the client */
#define TLS_HANDSHAKE 0x16
#define SHARE 4 /* one address has at most this part of the handshakes, so that alone it cannot push others out */

enum state {
    RELAY_FIRST,     /* no byte has come */
    RELAY_HANDSHAKE, /* TLS is being agreed on */
    RELAY_OPEN,
    RELAY_FLUSH,  /* the server has closed: the rest goes to the client */
    RELAY_LINGER, /* all is sent; until the client closes */
};

struct rest {
    unsigned char *data;
    size_t at, len;
};

struct relay {
    struct relays *all;
    struct relay *prev, *next;
    struct relay *older, *newer; /* in the handshake */
    enum state state;
    SSL *ssl;
    int net, plain;
    struct ev_io net_io, plain_io;
    struct ev_timer timer;
    union tls_addr from;
    struct rest in, out;
    bool net_ended;     /* the client sends no more */
    bool deaf;          /* the server reads no more */
    bool read_blocked;  /* SSL_read waits for room in the socket */
    bool write_blocked; /* SSL_write does */
    size_t thrown_away;
};

/* --- life --- */

static void list(struct relay *r)
{
    struct relays *all = r->all;

    r->next = all->all;
    if (r->next)
        r->next->prev = r;
    all->all = r;
    r->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = r;
    all->newest = r;
    all->handshaking++;
}

static void unlist_handshake(struct relay *r)
{
    struct relays *all = r->all;

    *(r->older ? &r->older->newer : &all->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &all->newest) = r->older;
    r->older = r->newer = NULL;
    all->handshaking--;
}

static bool in_handshake(const struct relay *r)
{
    return r->state == RELAY_FIRST || r->state == RELAY_HANDSHAKE;
}

static void relay_free(struct relay *r)
{
    struct relays *all = r->all;

    if (in_handshake(r))
        unlist_handshake(r);
    *(r->prev ? &r->prev->next : &all->all) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    ev_io_del(all->ev, &r->net_io);
    ev_io_del(all->ev, &r->plain_io);
    ev_timer_clear(all->ev, &r->timer);
    SSL_free(r->ssl);
    fd_close(&r->net);
    fd_close(&r->plain);
    free(r->in.data);
    free(r->out.data);
    free(r);
    all->counters->open--;
    all->on_gone(all->arg);
}

static void fail(struct relay *r)
{
    if (in_handshake(r))
        r->all->counters->failed++;
    relay_free(r);
}

void relay_give_up(struct relay *r)
{
    if (in_handshake(r))
        r->all->counters->late++;
    relay_free(r);
}

static void on_late(void *arg)
{
    relay_give_up(arg);
}

static void set_clock(struct relay *r, uint64_t ms)
{
    ev_timer_set(r->all->ev, &r->timer, ev_now(r->all->ev) + ms * NS_PER_MS, on_late, r);
}

/* --- the end --- */

static void linger(struct relay *r)
{
    r->state = RELAY_LINGER;
    shutdown(r->net, SHUT_WR);
    ev_io_del(r->all->ev, &r->plain_io);
    fd_close(&r->plain);
    ev_io_set(r->all->ev, &r->net_io, EPOLLIN);
    set_clock(r, LINGER_MS);
}

static void throw_away(struct relay *r)
{
    ssize_t n = recv(r->net, r->all->scratch, sizeof(r->all->scratch), MSG_DONTWAIT);

    if (n > 0)
        r->thrown_away += (size_t)n;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || r->thrown_away > LINGER_MAX)
        relay_free(r);
}

/* --- bytes --- */

static void keep(struct rest *rest, const unsigned char *data, size_t len)
{
    free(rest->data);
    *rest = (struct rest){ .data = mem_copy(data, len), .len = len };
}

static void used(struct rest *rest, size_t n)
{
    rest->at += n;
    if (rest->at == rest->len) {
        free(rest->data);
        *rest = (struct rest){ 0 };
    }
}

/* To the server, as much as it has room for; bytes taken. A server that reads no more takes all of it. */
static size_t give(struct relay *r, const unsigned char *data, size_t len)
{
    ssize_t n = r->deaf ? (ssize_t)len : send(r->plain, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0) {
        r->deaf = true;
        return len;
    }
    return (size_t)n;
}

static void client_ended(struct relay *r)
{
    r->net_ended = true;
    shutdown(r->plain, SHUT_WR);
}

/* False: the connection is lost. */
static bool read_record(struct relay *r, bool *again)
{
    unsigned char *to = r->all->scratch;
    int n = SSL_read(r->ssl, to, RECORD_MAX);

    *again = n > 0;
    if (n > 0) {
        size_t taken = give(r, to, (size_t)n);

        if (taken < (size_t)n) {
            keep(&r->in, to + taken, (size_t)n - taken);
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
        client_ended(r);
        return true;
    default: /* cut off without the end that TLS has: what came may be cut short, and nobody may take it for whole */
        return false;
    }
}

static bool from_client(struct relay *r)
{
    bool again = !r->net_ended && r->state == RELAY_OPEN;

    r->read_blocked = false;
    if (r->in.len > 0) {
        used(&r->in, give(r, r->in.data + r->in.at, r->in.len - r->in.at));
        if (r->in.len > 0)
            return true;
    }
    for (int i = 0; i < ROUNDS && again; i++)
        if (!read_record(r, &again))
            return false;
    return true;
}

/* Bytes that the client's side took, or -1 when it is lost. */
static ssize_t encrypt(struct relay *r, const unsigned char *data, size_t len)
{
    int n = SSL_write(r->ssl, data, (int)len);

    if (n > 0)
        return n;
    switch (SSL_get_error(r->ssl, n)) {
    case SSL_ERROR_WANT_WRITE:
        r->write_blocked = true;
        return 0;
    default: /* also the wish to read first, which nobody has once the handshake is done */
        return -1;
    }
}

static bool send_rest(struct relay *r)
{
    ssize_t n = encrypt(r, r->out.data + r->out.at, r->out.len - r->out.at);

    if (n > 0) {
        used(&r->out, (size_t)n);
        if (r->state == RELAY_FLUSH)
            set_clock(r, r->all->set->write_ms);
    }
    return n >= 0;
}

static bool write_record(struct relay *r, bool *again)
{
    unsigned char *to = r->all->scratch;
    ssize_t n = recv(r->plain, to, RECORD_MAX, MSG_DONTWAIT);

    *again = n > 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) { /* also when the server closed with bytes of ours unread */
        r->state = RELAY_FLUSH;
        set_clock(r, r->all->set->write_ms);
        return true;
    }
    ssize_t done = encrypt(r, to, (size_t)n);
    if (done >= 0 && done < n) {
        keep(&r->out, to + done, (size_t)(n - done));
        *again = false;
    }
    return done >= 0;
}

static bool from_server(struct relay *r)
{
    bool again = true;

    r->write_blocked = false;
    for (int i = 0; i < ROUNDS && again; i++) {
        if (r->out.len > 0) {
            if (!send_rest(r))
                return false;
            again = !r->write_blocked;
        } else if (r->state == RELAY_OPEN) {
            if (!write_record(r, &again))
                return false;
        } else {
            again = false;
        }
    }
    return true;
}

static void wait_for_more(struct relay *r)
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
    ev_io_set(r->all->ev, &r->net_io, net);
    ev_io_set(r->all->ev, &r->plain_io, plain);
}

/* False: there was no room for it yet. */
static bool say_end(struct relay *r)
{
    int n = SSL_shutdown(r->ssl);

    r->write_blocked = n < 0 && SSL_get_error(r->ssl, n) == SSL_ERROR_WANT_WRITE;
    return !r->write_blocked;
}

static void pump(struct relay *r)
{
    ERR_clear_error();
    if (!from_server(r) || !from_client(r)) {
        relay_free(r);
        return;
    }
    if (r->state == RELAY_FLUSH && r->out.len == 0 && say_end(r))
        linger(r);
    else
        wait_for_more(r);
}

static void on_plain(void *arg, uint32_t events UNUSED)
{
    pump(arg);
}

/* --- the beginning --- */

static void hand_over(struct relay *r)
{
    struct relays *all = r->all;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        fail(r);
        return;
    }
    struct handed h = { .fd = pair[1], .from = r->from };
    r->plain = pair[0];
    if (ev_io_add(all->ev, &r->plain_io, r->plain, EPOLLIN, on_plain, r, NULL) < 0 ||
        write(all->handover, &h, sizeof(h)) != (ssize_t)sizeof(h)) { /* the loop has not come round for long */
        close(pair[1]);
        fail(r);
        return;
    }
    all->counters->handshakes++;
    all->counters->resumed += SSL_session_reused(r->ssl) == 1;
    unlist_handshake(r);
    r->state = RELAY_OPEN;
    ev_timer_clear(all->ev, &r->timer);
    pump(r);
}

static void handshake(struct relay *r)
{
    ERR_clear_error();
    int n = SSL_accept(r->ssl);

    if (n == 1) {
        hand_over(r);
        return;
    }
    switch (SSL_get_error(r->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        ev_io_set(r->all->ev, &r->net_io, EPOLLIN);
        return;
    case SSL_ERROR_WANT_WRITE:
        ev_io_set(r->all->ev, &r->net_io, EPOLLOUT);
        return;
    default: /* OpenSSL has sent an alert that says why */
        fail(r);
    }
}

static void answer_plain(struct relay *r)
{
    const char *text = r->all->set->plain;

    r->all->counters->plain++;
    unlist_handshake(r);
    (void)send(r->net, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    linger(r);
}

static void first_byte(struct relay *r)
{
    unsigned char byte = 0;
    ssize_t n = recv(r->net, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && byte >= 'A' && byte <= 'Z') {
        answer_plain(r);
    } else if (n == 1 && byte == TLS_HANDSHAKE) {
        r->state = RELAY_HANDSHAKE;
        handshake(r);
    } else {
        fail(r);
    }
}

static void on_net(void *arg, uint32_t events)
{
    struct relay *r = arg;

    switch (r->state) {
    case RELAY_FIRST:
        first_byte(r);
        break;
    case RELAY_HANDSHAKE:
        handshake(r);
        break;
    case RELAY_LINGER:
        throw_away(r);
        break;
    case RELAY_OPEN:
    case RELAY_FLUSH:
        if (events & (EPOLLHUP | EPOLLERR) || (events & EPOLLRDHUP && r->state == RELAY_OPEN))
            relay_free(r);
        else
            pump(r);
        break;
    }
}

/* IPv6 hands out networks, not addresses. */
static bool same_place(const union tls_addr *a, const union tls_addr *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET6)
        return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 8) == 0;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

static struct relay *one_too_many(const struct relays *all, const struct relay *newest)
{
    unsigned limit = all->set->handshakes_max, before = 0;
    struct relay *first = NULL;

    for (struct relay *r = newest->older; r; r = r->older) {
        if (same_place(&r->from, &newest->from)) {
            first = r;
            before++;
        }
    }
    if (before >= max_u64(limit / SHARE, 1))
        return first;
    return all->handshaking > limit ? all->oldest : NULL;
}

void relay_start(struct relays *all, int fd, const union tls_addr *from, const struct tls_identity *id)
{
    struct relay *r = mem_new(struct relay);
    int yes = 1, unsent = UNSENT_MAX;

    *r = (struct relay){ .all = all, .net = fd, .plain = -1, .from = *from, .ssl = tls_identity_session(id) };
    list(r);
    all->counters->accepted++;
    all->counters->open++;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    /* So that the server, which sees the pair only, sees a client that takes its bytes slowly as one that takes them.
     */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    if (!r->ssl || SSL_set_fd(r->ssl, fd) != 1 || ev_io_add(all->ev, &r->net_io, fd, EPOLLIN, on_net, r, NULL) < 0) {
        fail(r);
        return;
    }
    SSL_set_accept_state(r->ssl);
    set_clock(r, all->set->handshake_ms);
    struct relay *other = one_too_many(all, r);
    if (other)
        relay_give_up(other);
}
