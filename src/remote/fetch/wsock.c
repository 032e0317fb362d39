/* Frames are written and read here: a client needs only a small part of RFC 6455. Our frames are
 * unfragmented and masked; the server's may be fragmented, with control frames in between, and
 * are limited by MESSAGE_MAX. A frame that a server must not send ends the connection with 1002.
 * libcurl only transports bytes (CURLOPT_CONNECT_ONLY). */
#include "remote/fetch/wsock.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "core/base/wskey.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <strings.h>
#include <sys/random.h>

#define CONNECT_MS 10000l
#define HANDSHAKE_NS (20 * NS_PER_S)
#define HEAD_MAX (64 * KIB)
#define BODY_MAX (64 * KIB)
#define MESSAGE_MAX (16 * MIB)
#define READ_MAX (256 * KIB) /* bytes per loop iteration */
#define PONGS_MAX (64 * KIB) /* unsent bytes above which pings are no longer answered: the server does not read */

enum { WSOCK_OP_CONTINUATION = 0, WSOCK_OP_TEXT = 1, WSOCK_OP_CLOSE = 8, WSOCK_OP_PING = 9, WSOCK_OP_PONG = 10 };

struct wsock {
    struct ev *ev;
    CURL *easy;
    int fd;
    const struct wsock_ops *ops;
    void *arg;
    struct ev_io io;
    struct ev_defer receive_defer, closed_defer;
    struct buf in, out, message;
    bool in_message, is_closed;
    bool in_callback, free_pending; /* free_pending: freed inside a callback; released when that returns */
    unsigned code;
    uint64_t handshake_deadline_ns; /* the handshake must be complete by then */
    char reason[128];
};

void wsock_free(struct wsock *s)
{
    if (!s)
        return;
    ev_io_del(s->ev, &s->io);
    ev_defer_clear(s->ev, &s->receive_defer);
    ev_defer_clear(s->ev, &s->closed_defer);
    s->is_closed = true;
    if (s->in_callback) {
        s->free_pending = true;
        return;
    }
    curl_easy_cleanup(s->easy);
    buf_done(&s->in);
    buf_done(&s->out);
    buf_done(&s->message);
    free(s);
}

static void wsock_report_closed(void *arg)
{
    struct wsock *s = arg;

    s->ops->on_closed(s->arg, s->code, s->reason);
}

static void wsock_set_closed(struct wsock *s, unsigned code, const char *reason)
{
    if (s->is_closed)
        return;
    s->is_closed = true;
    s->code = code;
    snprintf(s->reason, sizeof(s->reason), "%s", reason);
    ev_io_del(s->ev, &s->io);
    ev_defer(s->ev, &s->closed_defer, wsock_report_closed, s);
}

/* --- sending --- */

static void wsock_flush(struct wsock *s)
{
    size_t n = 0;

    while (s->out.len > 0 && !s->is_closed) {
        CURLcode rc = curl_easy_send(s->easy, s->out.data, s->out.len, &n);

        if (rc == CURLE_AGAIN)
            break;
        if (rc != CURLE_OK)
            wsock_set_closed(s, 1006, curl_easy_strerror(rc));
        else
            buf_drop(&s->out, n);
    }
    if (!s->is_closed)
        ev_io_set(s->ev, &s->io, EPOLLIN | (s->out.len ? EPOLLOUT : 0u));
}

static void wsock_add_frame(struct wsock *s, unsigned op, const char *data, size_t len)
{
    uint8_t head[14] = { (uint8_t)(0x80 | op) }, *p = head + 2;
    auto_free char *masked = mem_copy(len ? data : "", len ? len : 1);
    uint8_t mask[4];

    head[1] = (uint8_t)(0x80 | (len < 126 ? len : len < 65536 ? 126 : 127));
    for (int shift = len < 126 ? -8 : len < 65536 ? 8 : 56; shift >= 0; shift -= 8)
        *p++ = (uint8_t)(len >> shift);
    if (getrandom(mask, sizeof(mask), 0) != (ssize_t)sizeof(mask))
        abort();
    memcpy(p, mask, 4);
    buf_add(&s->out, head, (size_t)(p + 4 - head));
    for (size_t i = 0; i < len; i++)
        masked[i] = (char)((uint8_t)masked[i] ^ mask[i & 3]);
    buf_add(&s->out, masked, len);
}

void wsock_send(struct wsock *s, const char *text, size_t len)
{
    if (s->is_closed)
        return;
    wsock_add_frame(s, WSOCK_OP_TEXT, text, len);
    wsock_flush(s);
}

size_t wsock_unsent_bytes(const struct wsock *s)
{
    return s->out.len;
}

/* --- receiving --- */

static void wsock_protocol_error(struct wsock *s)
{
    wsock_add_frame(s, WSOCK_OP_CLOSE, "\x03\xea", 2);
    wsock_flush(s);
    wsock_set_closed(s, 1002, "the server sent an invalid frame");
}

static void wsock_on_control(struct wsock *s, unsigned op, const char *data, size_t len)
{
    char reason[126] = "";

    if (op == WSOCK_OP_PING && s->out.len < PONGS_MAX) {
        wsock_add_frame(s, WSOCK_OP_PONG, data, len);
        wsock_flush(s);
    } else if (op == WSOCK_OP_CLOSE) {
        unsigned code = len >= 2 ? (unsigned)(uint8_t)data[0] << 8 | (uint8_t)data[1] : 1005;

        wsock_add_frame(s, WSOCK_OP_CLOSE, data, len >= 2 ? 2 : 0);
        wsock_flush(s);
        if (len > 2)
            memcpy(reason, data + 2, len - 2);
        wsock_set_closed(s, code, reason);
    }
}

/* False: the message is not acceptable. */
static bool wsock_on_data(struct wsock *s, bool fin, unsigned op, const char *data, size_t len)
{
    if ((op == WSOCK_OP_CONTINUATION) != s->in_message || (op != WSOCK_OP_CONTINUATION && op != WSOCK_OP_TEXT) ||
        s->message.len + len > MESSAGE_MAX)
        return false;
    buf_add(&s->message, data, len);
    s->in_message = !fin;
    if (!fin)
        return true;
    struct buf whole = s->message;
    s->message = (struct buf){ 0 };
    s->ops->on_message(s->arg, whole.data ? whole.data : "", whole.len);
    buf_done(&whole);
    return true;
}

/* Takes one frame from the front of the input. 1: taken. 0: it is not complete yet. -1: stop. */
static int wsock_take_frame(struct wsock *s)
{
    const uint8_t *p = (const uint8_t *)s->in.data;
    size_t head = 2;

    if (s->in.len < 2)
        return 0;
    uint64_t len = p[1] & 0x7f;
    unsigned op = p[0] & 15, more = len == 126 ? 2 : len == 127 ? 8 : 0;
    bool fin = p[0] & 0x80, control = op & 8;
    if (s->in.len < head + more)
        return 0;
    for (unsigned i = 0; i < more; i++)
        len = (i ? len << 8 : 0) | p[2 + i];
    head += more;
    if (p[0] & 0x70 || p[1] & 0x80 || len > MESSAGE_MAX || (control && (!fin || len > 125 || op > WSOCK_OP_PONG))) {
        wsock_protocol_error(s);
        return -1;
    }
    if (s->in.len < head + len)
        return 0;
    auto_free char *data = str_dup_n(s->in.data + head, (size_t)len);
    buf_drop(&s->in, head + (size_t)len);
    bool ok = true;
    if (control)
        wsock_on_control(s, op, data, (size_t)len);
    else
        ok = wsock_on_data(s, fin, op, data, (size_t)len);
    if (!ok)
        wsock_protocol_error(s);
    return ok && !s->is_closed ? 1 : -1;
}

static void wsock_receive(void *arg);

static void wsock_read_available(struct wsock *s)
{
    char piece[16 * KIB] __attribute__((uninitialized));
    int rc;

    while ((rc = wsock_take_frame(s)) == 1) /* frames read together with the head */
        ;
    if (rc < 0)
        return;
    for (size_t got = 0; !s->is_closed;) {
        size_t n = 0;
        CURLcode code = curl_easy_recv(s->easy, piece, sizeof(piece), &n);

        if (code == CURLE_AGAIN)
            break;
        if (code != CURLE_OK || n == 0) {
            wsock_set_closed(s, 1006, "the connection was lost");
            return;
        }
        buf_add(&s->in, piece, n);
        while ((rc = wsock_take_frame(s)) == 1)
            ;
        if (rc < 0)
            return;
        got += n;
        if (got >= READ_MAX) { /* TLS may hold more data, which the descriptor does not show */
            ev_defer(s->ev, &s->receive_defer, wsock_receive, s);
            return;
        }
    }
}

static void wsock_receive(void *arg)
{
    struct wsock *s = arg;

    s->in_callback = true;
    wsock_read_available(s);
    s->in_callback = false;
    if (s->free_pending)
        wsock_free(s);
}

static void wsock_on_io(void *arg, uint32_t events)
{
    struct wsock *s = arg;

    if (events & EPOLLOUT)
        wsock_flush(s);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        wsock_receive(s);
}

/* --- opening --- */

/* False: the deadline of the handshake passed first. */
static bool wsock_wait_for(const struct wsock *s, short what)
{
    struct pollfd p = { .fd = s->fd, .events = what };
    uint64_t now = clock_mono_ns();

    return now < s->handshake_deadline_ns && poll(&p, 1, (int)((s->handshake_deadline_ns - now) / NS_PER_MS) + 1) > 0;
}

static int wsock_send_head(struct wsock *s, const struct wsock_spec *spec, const char *key, struct err *err)
{
    const char *host = strstr(spec->url, "://") + 3, *path = host + strcspn(host, "/");
    auto_buf head = { 0 };
    size_t n, done = 0;

    buf_addf(&head, "GET %s HTTP/1.1\r\nHost: %.*s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
             *path ? path : "/", (int)(path - host), host);
    buf_addf(&head, "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n", key,
             spec->protocol);
    for (const char *const *h = spec->headers; h && *h; h++)
        buf_addf(&head, "%s\r\n", *h);
    buf_adds(&head, "\r\n");
    while (done < head.len) {
        CURLcode rc = curl_easy_send(s->easy, head.data + done, head.len - done, &n);

        if (rc == CURLE_OK)
            done += n;
        else if (rc != CURLE_AGAIN || !wsock_wait_for(s, POLLOUT))
            return err_set(err, ERR_CUT_OFF, "sending the handshake: %s", curl_easy_strerror(rc));
    }
    return 0;
}

/* Reads until `in` has `want` bytes; with 0, until the end of the head. */
static int wsock_read_until(struct wsock *s, size_t want, struct err *err)
{
    char piece[4096];
    size_t n;

    while (want ? s->in.len < want : !s->in.data || !strstr(s->in.data, "\r\n\r\n")) {
        CURLcode rc = curl_easy_recv(s->easy, piece, sizeof(piece), &n);

        if (rc == CURLE_OK && n > 0 && s->in.len + n <= HEAD_MAX + BODY_MAX)
            buf_add(&s->in, piece, n);
        else if (rc != CURLE_AGAIN || !wsock_wait_for(s, POLLIN))
            return err_set(err, ERR_CUT_OFF, "the server did not complete its answer");
    }
    return 0;
}

static bool wsock_has_header(const char *head, const char *line)
{
    const char *at = strcasestr(head, line);

    return at && at[-1] == '\n' && str_starts(at + strlen(line), "\r\n");
}

static int wsock_read_head(struct wsock *s, const struct wsock_spec *spec, const char *key, int *ret_status,
                           struct buf *ret_body, struct err *err)
{
    char proof[WSKEY_ACCEPT];
    uint32_t status;

    if (wsock_read_until(s, 0, err) < 0)
        return -1;
    size_t len = (size_t)(strstr(s->in.data, "\r\n\r\n") - s->in.data) + 4;
    auto_free char *head = str_dup_n(s->in.data, len);
    buf_drop(&s->in, len);
    const char *p = head;
    if (!str_eat(&p, "HTTP/1.1 ") || !str_eat_u32(&p, 999, &status))
        return err_set(err, ERR_PROTOCOL, "the server does not speak HTTP/1.1");
    if (status != 101) {
        const char *length = strcasestr(head, "\r\nContent-Length: ");
        size_t want = length ? min_size((size_t)strtoull(length + 18, NULL, 10), BODY_MAX) : 0;

        if (want && wsock_read_until(s, want, err) < 0)
            return -1;
        buf_add(ret_body, s->in.data ? s->in.data : "", s->in.len);
        *ret_status = (int)status;
        return err_set(err, ERR_PROTOCOL, "the server answered with status %" PRIu32, status);
    }
    wskey_accept(key, proof);
    auto_free char *accept = str_printf("Sec-WebSocket-Accept: %s", proof);
    auto_free char *protocol = str_printf("Sec-WebSocket-Protocol: %s", spec->protocol);
    if (!wsock_has_header(head, accept) || !wsock_has_header(head, protocol) ||
        !wsock_has_header(head, "Upgrade: websocket"))
        return err_set(err, ERR_PROTOCOL, "the server did not accept the WebSocket handshake");
    return 0;
}

static int wsock_connect(struct wsock *s, const struct wsock_spec *spec, struct err *err)
{
    curl_socket_t fd = -1;

    s->easy = curl_easy_init();
    if (!s->easy)
        return err_set(err, ERR_SYS, "libcurl could not be initialized");
    curl_easy_setopt(s->easy, CURLOPT_URL, spec->url);
    curl_easy_setopt(s->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(s->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(s->easy, CURLOPT_SSL_ENABLE_ALPN, 0L); /* no HTTP/2: it has no Upgrade */
    curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    if (spec->cacert) {
        curl_easy_setopt(s->easy, CURLOPT_CAINFO, spec->cacert);
        curl_easy_setopt(s->easy, CURLOPT_CAPATH, NULL);
    }
    if (spec->unix_socket)
        curl_easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, spec->unix_socket);
    CURLcode rc = curl_easy_perform(s->easy);
    if (rc != CURLE_OK)
        return err_set(err, ERR_UNREACHABLE, "%s", curl_easy_strerror(rc));
    if (curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK || fd < 0)
        return err_set(err, ERR_UNREACHABLE, "the connection has no descriptor");
    s->fd = fd;
    return 0;
}

int wsock_open(struct ev *ev, const struct wsock_spec *spec, const struct wsock_ops *ops, void *arg, struct wsock **ret,
               int *ret_status, struct buf *ret_body, struct err *err)
{
    auto_(wsock) s = mem_new(struct wsock);
    auto_buf key = { 0 };
    char random[16];

    *ret_status = 0;
    s->ev = ev;
    s->ops = ops;
    s->arg = arg;
    s->handshake_deadline_ns = clock_mono_ns() +
                               (spec->handshake_timeout_ns ? spec->handshake_timeout_ns : HANDSHAKE_NS);
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_sys(err, ERR_SYS, "getrandom");
    text_base64(&key, random, sizeof(random));
    if (wsock_connect(s, spec, err) < 0 || wsock_send_head(s, spec, key.data, err) < 0 ||
        wsock_read_head(s, spec, key.data, ret_status, ret_body, err) < 0 ||
        ev_io_add(ev, &s->io, s->fd, EPOLLIN, wsock_on_io, s, err) < 0)
        return -1;
    ev_defer(ev, &s->receive_defer, wsock_receive, s); /* data that came after the head */
    *ret = take_ptr(&s);
    return 0;
}
