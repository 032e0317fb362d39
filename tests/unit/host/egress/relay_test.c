/* A relay between two socket pairs: the test has the outer ends. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "host/egress/relay.h"

#include <errno.h>

static struct ev *ev;
static struct shares shares;
static struct relay_shared shared;
static struct share_tenant *tenant;
static struct relay *relay;
static int client[2], server[2]; /* [0]: the relay's end */
static size_t sent, received, sent_max;
static int ended; /* enum relay_end; -1: not yet */
static enum relay_verdict verdict;
static size_t inspected;

static bool on_bytes(void *arg UNUSED, size_t s, size_t r)
{
    sent += s;
    received += r;
    return sent <= sent_max;
}

static void on_end(void *arg UNUSED, enum relay_end why)
{
    ended = (int)why;
}

static enum relay_verdict on_inspect(void *arg UNUSED, const uint8_t *data UNUSED, size_t n, bool last UNUSED)
{
    inspected = n;
    return verdict;
}

static int setup(void **state UNUSED)
{
    struct err err;

    ended = -1;
    sent = received = inspected = 0;
    sent_max = SIZE_MAX;
    shares_init(&shares, 100, 100);
    tenant = shares_join(&shares, "t");
    if (ev_new(&ev, &err) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, client) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, server) < 0)
        return -1;
    shared = (struct relay_shared){ .ev = ev, .shares = &shares, .scratch = malloc(RELAY_BUFFER) };
    return 0;
}

static int teardown(void **state UNUSED)
{
    relay_free(relay);
    for (size_t i = 0; i < 2; i++) {
        fd_close(&client[i]);
        fd_close(&server[i]);
    }
    bool leaked = shares.buffered != 0;
    free(shared.scratch);
    shares_done(&shares);
    ev_free(ev);
    return leaked ? -1 : 0;
}

static void start(bool inspects, const char *first)
{
    static const struct relay_ops plain = { NULL, on_bytes, on_end }, inspecting = { on_inspect, on_bytes, on_end };

    assert_int_equal(relay_new(&shared, tenant, client[0], server[0], first, strlen(first),
                               inspects ? &inspecting : &plain, NULL, &relay, NULL),
                     0);
}

static void run(void)
{
    for (int i = 0; i < 20; i++)
        ev_turn(ev, 0);
}

static void expect(int fd, const char *text)
{
    char got[64] = "";
    ssize_t n = recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT);

    assert_int_equal(n, strlen(text));
    assert_string_equal(got, text);
}

TEST(bytes_go_both_ways_and_ends_one_way)
{
    start(false, "early ");
    assert_int_equal(send(client[1], "hello", 5, 0), 5);
    assert_int_equal(send(server[1], "greeting", 8, 0), 8);
    run();
    expect(server[1], "early hello");
    expect(client[1], "greeting");
    shutdown(client[1], SHUT_WR);
    run();
    expect(server[1], ""); /* the end, */
    assert_int_equal(ended, -1);
    assert_int_equal(send(server[1], "answer", 6, 0), 6); /* and the other direction goes on */
    run();
    expect(client[1], "answer");
    shutdown(server[1], SHUT_WR);
    run();
    assert_int_equal(ended, RELAY_FINISHED);
    assert_int_equal(sent, 11);
    assert_int_equal(received, 14);
}

TEST(a_receiver_that_does_not_read_stops_its_sender_and_loses_nothing)
{
    static uint8_t block[65536], got[65536];
    size_t put = 0, taken = 0;

    start(false, "");
    for (int i = 0; i < 200; i++) {
        ssize_t n = send(client[1], block, sizeof(block), MSG_DONTWAIT);

        put += n > 0 ? (size_t)n : 0;
        ev_turn(ev, 0);
    }
    assert_true(shares.buffered > 0 && shares.buffered <= RELAY_BUFFER);
    assert_true(put < 4 * MIB);
    while (taken < put) {
        ssize_t n = recv(server[1], got, sizeof(got), MSG_DONTWAIT);

        taken += n > 0 ? (size_t)n : 0;
        ev_turn(ev, 0);
    }
    run();
    assert_int_equal(shares.buffered, 0);
    assert_int_equal(sent, put);
}

TEST(inspected_bytes_wait_for_the_verdict_and_the_server_may_speak_first)
{
    verdict = RELAY_MORE;
    start(true, "");
    assert_int_equal(send(server[1], "220 ready", 9, 0), 9);
    assert_int_equal(send(client[1], "abc", 3, 0), 3);
    run();
    expect(client[1], "220 ready");
    assert_int_equal(recv(server[1], (char[1]){ 0 }, 1, MSG_DONTWAIT), -1);
    assert_int_equal(inspected, 3);
    verdict = RELAY_PASS;
    assert_int_equal(send(client[1], "def", 3, 0), 3);
    run();
    assert_int_equal(inspected, 6);
    expect(server[1], "abcdef");
    verdict = RELAY_REFUSE; /* asked no more */
    assert_int_equal(send(client[1], "ghi", 3, 0), 3);
    run();
    expect(server[1], "ghi");
}

TEST(refused_bytes_never_reach_the_server)
{
    verdict = RELAY_REFUSE;
    start(true, "secret");
    run();
    assert_int_equal(ended, RELAY_REFUSED);
    assert_int_equal(recv(server[1], (char[1]){ 0 }, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

TEST(the_owner_may_stop_it)
{
    sent_max = 4;
    start(false, "");
    assert_int_equal(send(client[1], "12345", 5, 0), 5);
    run();
    assert_int_equal(ended, RELAY_STOPPED);
}

TEST(a_side_that_is_gone_ends_it)
{
    start(false, "");
    fd_close(&server[1]);
    run();
    assert_int_equal(send(client[1], "12345", 5, 0), 5);
    run();
    assert_int_equal(ended, RELAY_BROKEN);
}

#define RELAY_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RELAY_TEST(bytes_go_both_ways_and_ends_one_way),
        RELAY_TEST(a_receiver_that_does_not_read_stops_its_sender_and_loses_nothing),
        RELAY_TEST(inspected_bytes_wait_for_the_verdict_and_the_server_may_speak_first),
        RELAY_TEST(refused_bytes_never_reach_the_server),
        RELAY_TEST(the_owner_may_stop_it),
        RELAY_TEST(a_side_that_is_gone_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
