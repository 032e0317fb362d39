/* The connection to the jailer, against a socket of the test. */
#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "service/jailer_link.h"

#include <sys/socket.h>
#include <unistd.h>

struct scene {
    struct ev *ev;
    struct jailer_link *link;
    int jailer; /* the other side */
    int refuse; /* how many attempts fail */
    int attempts, connected, lost;
};

static int connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err)
{
    struct scene *s = arg;
    int pair[2];

    s->attempts++;
    if (s->refuse > 0) {
        s->refuse--;
        return err_set(err, ERR_SYS, "attempt %d", s->attempts);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->jailer);
    s->jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    return 0;
}

static void on_connected(void *arg)
{
    struct scene *s = arg;

    assert_non_null(jailer_link_engine(s->link));
    s->connected++;
}

static void on_lost(void *arg)
{
    struct scene *s = arg;

    s->lost++;
}

static void open_scene(struct scene *s, int refuse)
{
    *s = (struct scene){ .jailer = -1, .refuse = refuse };
    assert_int_equal(ev_new(&s->ev, NULL), 0);
    s->link = jailer_link_new(
        s->ev,
        &(struct jailer_link_ops){
            .connect = connect_jailer, .connect_arg = s, .on_connected = on_connected, .on_lost = on_lost, .arg = s });
    jailer_link_start(s->link);
}

static void close_scene(struct scene *s)
{
    jailer_link_free(s->link);
    ev_turn(s->ev, 0);
    ev_free(s->ev);
    fd_close(&s->jailer);
}

static void turn_until(struct scene *s, const int *count, int n)
{
    uint64_t end = clock_mono_ns() + slow_factor() * 5 * NS_PER_S;

    while (*count < n && clock_mono_ns() < end)
        ev_turn(s->ev, 5);
    assert_int_equal(*count, n);
}

TEST(a_refused_connection_is_tried_again_later_and_says_why)
{
    uint64_t began = clock_mono_ns();
    struct scene s;

    open_scene(&s, 2);
    assert_null(jailer_link_engine(s.link));
    assert_string_equal(jailer_link_why_lost(s.link), "no connection to the jailer: attempt 1");
    turn_until(&s, &s.attempts, 2);
    assert_string_equal(jailer_link_why_lost(s.link), "no connection to the jailer: attempt 2");
    turn_until(&s, &s.connected, 1);
    assert_true(clock_mono_ns() - began >= 300 * NS_PER_MS); /* 100 ms, then 200 ms */
    assert_int_equal(jailer_link_connections(s.link), 1);
    assert_int_equal(s.lost, 2);
    close_scene(&s);
}

TEST(a_lost_connection_is_reported_and_made_again)
{
    struct scene s;

    open_scene(&s, 0);
    assert_int_equal(s.connected, 1);
    fd_close(&s.jailer);
    turn_until(&s, &s.lost, 1);
    assert_null(jailer_link_engine(s.link));
    turn_until(&s, &s.connected, 2);
    assert_int_equal(jailer_link_connections(s.link), 2);
    fd_close(&s.jailer);
    turn_until(&s, &s.lost, 2);
    close_scene(&s); /* while it waits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_refused_connection_is_tried_again_later_and_says_why),
        RUN(a_lost_connection_is_reported_and_made_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
