/* The WebSocket client against a hostile server: a thread that completes the handshake and then
 * writes what the test wants. */
#include "remote/fetch/wsock.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/wskey.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SOON_NS (120 * NS_PER_S)

struct scene {
    struct ev *ev;
    struct wsock *ws;
    int listener;
    _Atomic int fd; /* the server's socket */
    pthread_t thread;
    const char *head;       /* sent instead of a valid handshake response */
    bool drips;             /* the head comes byte by byte, without an end */
    const struct buf *says; /* sent after the handshake */
    bool free_at_once;      /* free the socket in the first on_message */
    struct buf messages;    /* each followed by a newline */
    unsigned code;
    char reason[128];
};

static void shake_hands(const struct scene *s, int fd, const char *asked)
{
    const char *at = strstr(asked, "Sec-WebSocket-Key: ") + strlen("Sec-WebSocket-Key: ");
    auto_free char *key = str_dup_n(at, strcspn(at, "\r"));
    char proof[WSKEY_ACCEPT];

    wskey_accept(key, proof);
    auto_free char *head = str_printf(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: cove.v1\r\n\r\n",
        proof);
    const char *said = s->head ? s->head : head;
    (void)fd_write_all(fd, said, strlen(said));
}

static void *serve(void *arg)
{
    struct scene *s = arg;
    auto_fd int fd = accept(s->listener, NULL, NULL);
    auto_buf heard = { 0 };
    char piece[4096];
    ssize_t n;

    s->fd = fd;
    while ((!heard.data || !strstr(heard.data, "\r\n\r\n")) && (n = read(fd, piece, sizeof(piece))) > 0)
        buf_add(&heard, piece, (size_t)n);
    while (s->drips && send(fd, "x", 1, MSG_NOSIGNAL) == 1)
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    if (s->drips)
        return NULL;
    shake_hands(s, fd, heard.data);
    if (s->says)
        (void)fd_write_all(fd, s->says->data, s->says->len);
    /* The server does not read; a close would discard what it sent. */
    (void)poll(&(struct pollfd){ .fd = fd }, 1, -1);
    return NULL;
}

static void on_message(void *arg, const char *text, size_t len)
{
    struct scene *s = arg;

    assert_int_equal(text[len], '\0');
    buf_add(&s->messages, text, len);
    buf_adds(&s->messages, "\n");
    if (s->free_at_once)
        wsock_free(take_ptr(&s->ws));
}

static void on_closed(void *arg, unsigned code, const char *reason)
{
    struct scene *s = arg;

    s->code = code;
    str_copy(s->reason, sizeof(s->reason), reason);
}

static int start(struct scene *s, uint64_t patience_ns, struct err *err)
{
    static const struct wsock_ops ops = { on_message, on_closed };
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    auto_buf body = { 0 };
    int status;

    signal(SIGPIPE, SIG_IGN);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s->listener, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(ev_new(&s->ev, err), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    auto_free char *url = str_printf("http://127.0.0.1:%d/v1", ntohs(a.sin_port));
    struct wsock_spec spec = { .url = url, .protocol = "cove.v1", .handshake_timeout_ns = patience_ns };
    return wsock_open(s->ev, &spec, &ops, s, &s->ws, &status, &body, err);
}

static void stop(struct scene *s)
{
    wsock_free(s->ws);
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    ev_turn(s->ev, 0);
    ev_free(s->ev);
    close(s->listener);
    buf_done(&s->messages);
}

static void turn_until(struct scene *s, const char *messages)
{
    uint64_t end = clock_mono_ns() + SOON_NS;

    while (!s->code && (!messages || !s->messages.data || !str_eq(s->messages.data, messages))) {
        assert_true(clock_mono_ns() < end);
        ev_turn(s->ev, 200);
    }
}

static void frame(struct buf *out, unsigned first, const char *data, size_t len)
{
    const uint8_t head[4] = { (uint8_t)first, (uint8_t)(len < 126 ? len : 126), (uint8_t)(len >> 8), (uint8_t)len };

    buf_add(out, head, len < 126 ? 2 : 4);
    buf_add(out, data, len);
}

TEST(a_fragmented_message_with_pings_in_between_is_reassembled)
{
    auto_buf says = { 0 };
    struct scene s = { .says = &says };
    struct err err = { 0 };

    frame(&says, 0x01, "on", 2);
    frame(&says, 0x89, "are you there", 13);
    frame(&says, 0x00, "", 0);
    frame(&says, 0x80, "e", 1);
    frame(&says, 0x81, "two", 3);
    assert_int_equal(start(&s, 0, &err), 0);
    turn_until(&s, "one\ntwo\n");
    stop(&s);
}

TEST(every_forbidden_frame_closes_with_1002)
{
    static const struct {
        const char *what, *bytes;
        size_t len;
    } bad[] = {
        { "masked", "\x81\x82zzzz..", 8 },
        { "a reserved bit", "\xc1\x01x", 3 },
        { "an unknown opcode", "\x83\x01x", 3 },
        { "a binary message", "\x82\x01x", 3 },
        { "a fragmented control frame", "\x09\x01x", 3 },
        { "a long control frame", "\x89\x7e\x00\x7e", 4 },
        { "an unknown control frame", "\x8b\x00", 2 },
        { "more than the maximum of a message", "\x81\x7f\x00\x00\x00\x00\x01\x00\x00\x01", 10 },
        { "2^63 and more", "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10 },
        { "a continuation without a beginning", "\x80\x01x", 3 },
        { "a message inside of a fragmented message", "\x01\x01x\x81\x01x", 6 },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_buf says = { 0 };
        struct scene s = { .says = &says };
        struct err err = { 0 };

        buf_add(&says, bad[i].bytes, bad[i].len);
        assert_int_equal(start(&s, 0, &err), 0);
        turn_until(&s, NULL);
        if (s.code != 1002)
            fail_msg("%s: %u", bad[i].what, s.code);
        stop(&s);
    }
}

TEST(a_flood_of_pings_without_reading_costs_no_memory)
{
    auto_buf says = { 0 };
    struct scene s = { .says = &says };
    struct err err = { 0 };
    char full[125] = { 0 };

    for (int i = 0; i < 100000; i++) /* the answers to all of them exceed any socket buffer */
        frame(&says, 0x89, full, sizeof(full));
    frame(&says, 0x81, "end", 3);
    assert_int_equal(start(&s, 0, &err), 0);
    turn_until(&s, "end\n");
    assert_true(wsock_unsent_bytes(s.ws) < 128 * KIB);
    stop(&s);
}

TEST(a_close_reports_its_code_and_reason)
{
    auto_buf says = { 0 };
    struct scene s = { .says = &says };
    struct err err = { 0 };

    frame(&says, 0x88, "\x11\x31gone", 6);
    frame(&says, 0x81, "after", 5);
    assert_int_equal(start(&s, 0, &err), 0);
    turn_until(&s, NULL);
    assert_int_equal(s.code, 4401);
    assert_string_equal(s.reason, "gone");
    assert_null(s.messages.data);
    stop(&s);
}

TEST(on_message_may_free_the_socket_while_more_is_buffered)
{
    auto_buf says = { 0 };
    struct scene s = { .says = &says, .free_at_once = true };
    struct err err = { 0 };

    frame(&says, 0x81, "one", 3);
    frame(&says, 0x81, "two", 3);
    assert_int_equal(start(&s, 0, &err), 0);
    turn_until(&s, "one\n");
    ev_turn(s.ev, 0);
    assert_string_equal(s.messages.data, "one\n");
    stop(&s);
}

TEST(a_handshake_without_accept_key_or_protocol_is_refused)
{
    static const char *const heads[] = {
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\nSec-WebSocket-Protocol: cove.v1\r\n\r\n"),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct scene s = { .head = heads[i] };
        struct err err = { 0 };

        assert_int_equal(start(&s, 0, &err), -1);
        assert_int_equal(err.id, ERR_PROTOCOL);
        stop(&s);
    }
}

TEST(a_slow_handshake_is_given_up_at_its_deadline)
{
    struct scene s = { .drips = true };
    struct err err = { 0 };

    /* Not only when its 64 KiB are full, which takes 40 minutes. */
    assert_int_equal(start(&s, 300 * NS_PER_MS, &err), -1);
    assert_int_equal(err.id, ERR_CUT_OFF);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_fragmented_message_with_pings_in_between_is_reassembled),
        RUN(every_forbidden_frame_closes_with_1002),
        RUN(a_flood_of_pings_without_reading_costs_no_memory),
        RUN(a_close_reports_its_code_and_reason),
        RUN(on_message_may_free_the_socket_while_more_is_buffered),
        RUN(a_handshake_without_accept_key_or_protocol_is_refused),
        RUN(a_slow_handshake_is_given_up_at_its_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
