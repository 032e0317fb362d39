#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/ev/ev.h"

#include <fcntl.h>
#include <sys/wait.h>

/* The callbacks that ran in a test, in order. */
static char seen[64];
static struct ev *loop;

static void note(char c)
{
    size_t n = strlen(seen);

    assert_true(n + 1 < sizeof(seen));
    seen[n] = c;
    seen[n + 1] = '\0';
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    seen[0] = '\0';
    return ev_new(&loop, &err);
}

static int teardown(void **state UNUSED)
{
    ev_free(loop);
    return 0;
}

static void on_note(void *arg)
{
    note((char)(uintptr_t)arg);
}
#define NOTE(c) on_note, (void *)(uintptr_t)(c)

/* A pipe whose read end is watched. */
struct tap {
    int r, w;
    struct ev_io io;
    char name;
    struct tap *victim; /* removed by the callback */
};

static void on_tap(void *arg, uint32_t events)
{
    struct tap *t = arg;
    char c;

    note(t->name);
    if (events & EPOLLIN)
        assert_int_equal(read(t->r, &c, 1), 1);
    if (events & EPOLLHUP)
        note('!');
    if (t->victim)
        ev_io_del(loop, &t->victim->io);
}

static void tap_open(struct tap *t, char name)
{
    struct err err = { 0 };
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
    *t = (struct tap){ .r = p[0], .w = p[1], .name = name };
    assert_int_equal(ev_io_add(loop, &t->io, t->r, EPOLLIN, on_tap, t, &err), 0);
}

static void tap_close(struct tap *t)
{
    ev_io_del(loop, &t->io);
    close(t->r);
    fd_close(&t->w);
}

static void tap_write(struct tap *t)
{
    assert_int_equal(write(t->w, "x", 1), 1);
}

TEST(timers_fire_in_order_of_time_whatever_the_order_of_setting)
{
    struct ev_timer t[26] = { 0 };
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";
    uint64_t now = ev_now(loop);

    for (size_t i = 0; i < 26; i++) {
        size_t k = i * 7 % 26; /* a permutation */

        ev_timer_set(loop, &t[k], now - 1000 + k, NOTE(names[k]));
    }
    ev_turn(loop, 0);
    assert_string_equal(seen, names);
}

TEST(moving_and_clearing_timers_keeps_the_heap_ordered)
{
    struct ev_timer t[20] = { 0 };
    static const char names[] = "abcdefghijklmnopqrst";
    uint64_t now = ev_now(loop);

    for (size_t i = 0; i < 20; i++)
        ev_timer_set(loop, &t[i], now - 100 + i, NOTE(names[i]));
    ev_timer_set(loop, &t[0], now - 1, NOTE(names[0]));     /* first becomes last */
    ev_timer_set(loop, &t[19], now - 200, NOTE(names[19])); /* last becomes first */
    for (size_t i = 1; i < 19; i += 3)
        ev_timer_clear(loop, &t[i]);
    ev_timer_clear(loop, &t[1]); /* a second clear has no effect */
    ev_turn(loop, 0);
    assert_string_equal(seen, "tcdfgijlmoprsa");
}

static uint64_t last_at;
static size_t fired;

static void on_ordered(void *arg)
{
    const struct ev_timer *t = arg;

    assert_true(t->at >= last_at);
    last_at = t->at;
    fired++;
}

TEST(thousands_of_moves_and_clears_lose_no_timer_and_keep_the_order)
{
    static struct ev_timer t[500];
    uint64_t x = 88172645463325252ull; /* xorshift: the same sequence in every run */
    size_t set = 0;

    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        struct ev_timer *one = &t[x % ARRAY_LEN(t)];
        if (x >> 60 < 5)
            ev_timer_clear(loop, one);
        else
            ev_timer_set(loop, one, 1 + (x >> 20) % 1000, on_ordered, one);
    }
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        set += t[i].slot != 0;
    last_at = fired = 0;
    ev_turn(loop, 0);
    assert_true(set > 0);
    assert_int_equal(fired, set);
    ev_run(loop); /* no source is left, so it returns */
}

TEST(a_timer_never_fires_early_and_the_loop_sleeps_until_it)
{
    struct ev_timer t = { 0 };
    uint64_t at = clock_mono_ns() + 3 * NS_PER_MS + 300 * NS_PER_US;
    int turns = 0;

    ev_timer_set(loop, &t, at, NOTE('t'));
    for (; !seen[0]; turns++) {
        ev_turn(loop, -1);
        assert_true(seen[0] || ev_now(loop) < at);
    }
    assert_true(ev_now(loop) >= at);
    assert_true(turns <= 2);
}

TEST(a_timer_in_the_far_future_does_not_cause_a_busy_loop)
{
    struct ev_timer t = { 0 };
    uint64_t before = clock_mono_ns();

    ev_timer_set(loop, &t, UINT64_MAX, NOTE('t'));
    ev_turn(loop, 5);
    assert_true(clock_mono_ns() - before >= 5 * NS_PER_MS);
    assert_string_equal(seen, "");
    ev_timer_clear(loop, &t);
}

static struct ev_timer again;

static void on_again(void *arg UNUSED)
{
    note('t');
    ev_timer_set(loop, &again, 0, on_again, NULL);
}

TEST(a_timer_that_rearms_itself_does_not_starve_descriptors)
{
    struct tap a;

    tap_open(&a, 'a');
    tap_write(&a);
    ev_timer_set(loop, &again, 0, on_again, NULL);
    ev_turn(loop, -1);
    tap_write(&a);
    ev_turn(loop, -1);
    assert_string_equal(seen, "atat");
    ev_timer_clear(loop, &again);
    tap_close(&a);
}

static struct ev_timer doomed;

static void on_clear_doomed(void *arg UNUSED)
{
    note('c');
    ev_timer_clear(loop, &doomed);
}

TEST(a_timer_cleared_in_the_same_iteration_does_not_fire)
{
    struct ev_timer first = { 0 };

    ev_timer_set(loop, &first, 1, on_clear_doomed, NULL);
    ev_timer_set(loop, &doomed, 2, NOTE('d'));
    ev_turn(loop, 0);
    assert_string_equal(seen, "c");
}

TEST(a_source_removed_in_the_same_iteration_is_not_called)
{
    struct tap a, b;

    tap_open(&a, 'a');
    tap_open(&b, 'b');
    a.victim = &b;
    b.victim = &a;
    tap_write(&a);
    tap_write(&b);
    ev_turn(loop, -1);
    assert_int_equal(strlen(seen), 1); /* the first callback removed the other */
    tap_close(&a);
    tap_close(&b);
}

static void on_pause_victim(void *arg, uint32_t events UNUSED)
{
    struct tap *t = arg;

    note(t->name);
    ev_io_set(loop, &t->victim->io, 0);
    ev_io_set(loop, &t->io, 0);
}

TEST(interest_removed_in_the_same_iteration_suppresses_a_fetched_event)
{
    struct tap a, b;

    tap_open(&a, 'a');
    tap_open(&b, 'b');
    a.victim = &b;
    b.victim = &a;
    a.io.fn = b.io.fn = on_pause_victim;
    tap_write(&a);
    tap_write(&b);
    ev_turn(loop, -1);
    assert_int_equal(strlen(seen), 1);
    tap_close(&a);
    tap_close(&b);
}

TEST(a_source_without_interest_gets_hangup_once_and_does_not_wake_the_loop_again)
{
    struct tap a;
    uint64_t before;

    tap_open(&a, 'a');
    ev_io_set(loop, &a.io, 0);
    tap_write(&a); /* not of interest */
    ev_turn(loop, 0);
    assert_string_equal(seen, "");
    fd_close(&a.w);
    ev_turn(loop, 0);
    assert_string_equal(seen, "a!");
    before = clock_mono_ns();
    ev_turn(loop, 5);
    assert_true(clock_mono_ns() - before >= 5 * NS_PER_MS);
    assert_string_equal(seen, "a!");
    tap_close(&a);
}

static struct ev_defer defer_a, defer_b;

static void on_defer_again(void *arg UNUSED)
{
    note('a');
    ev_defer(loop, &defer_a, on_defer_again, NULL);
    ev_defer(loop, &defer_b, NOTE('b'));
}

TEST(deferred_calls_run_last_and_once_and_nested_ones_in_the_next_iteration)
{
    struct ev_timer t = { 0 };
    struct ev_defer d = { 0 };

    ev_timer_set(loop, &t, 0, NOTE('t'));
    ev_defer(loop, &d, NOTE('d'));
    ev_defer(loop, &d, NOTE('D')); /* already deferred */
    ev_defer(loop, &defer_a, on_defer_again, NULL);
    ev_turn(loop, -1);
    assert_string_equal(seen, "tda");
    ev_turn(loop, -1); /* does not sleep, because a call is deferred */
    assert_string_equal(seen, "tdaab");
    ev_defer_clear(loop, &defer_a);
    ev_defer_clear(loop, &defer_b);
}

TEST(a_deferred_call_can_be_cleared_at_any_position_in_the_list)
{
    struct ev_defer d[4] = { 0 };
    static const char names[] = "0123";

    for (size_t i = 0; i < 4; i++)
        ev_defer(loop, &d[i], NOTE(names[i]));
    ev_defer_clear(loop, &d[3]);
    ev_defer_clear(loop, &d[0]);
    ev_defer(loop, &d[0], NOTE(names[0]));
    ev_turn(loop, 0);
    assert_string_equal(seen, "120");
}

static void on_clear_defer(void *arg)
{
    note('c');
    ev_defer_clear(loop, arg);
}

TEST(a_deferred_call_cleared_by_an_earlier_one_does_not_run)
{
    struct ev_defer a = { 0 }, b = { 0 };

    ev_defer(loop, &a, on_clear_defer, &b);
    ev_defer(loop, &b, NOTE('b'));
    ev_turn(loop, 0);
    assert_string_equal(seen, "c");
}

TEST(ready_descriptors_are_called_before_due_timers)
{
    struct ev_timer t = { 0 };
    struct tap a;

    tap_open(&a, 'a');
    tap_write(&a);
    ev_timer_set(loop, &t, 0, NOTE('t'));
    ev_turn(loop, -1);
    assert_string_equal(seen, "at");
    tap_close(&a);
}

static void on_stop(void *arg)
{
    note('s');
    ev_stop(arg);
}

TEST(run_ends_when_no_source_is_left_or_at_stop)
{
    struct ev_timer t = { 0 };
    struct tap a;

    ev_run(loop);
    ev_timer_set(loop, &t, 0, NOTE('t'));
    ev_run(loop);
    assert_string_equal(seen, "t");

    tap_open(&a, 'a'); /* would keep the loop waiting forever */
    ev_timer_set(loop, &t, 0, on_stop, loop);
    ev_run(loop);
    assert_string_equal(seen, "ts");
    ev_timer_set(loop, &t, 0, on_stop, loop);
    ev_run(loop); /* the previous stop has no effect */
    assert_string_equal(seen, "tss");
    tap_close(&a);
}

static void on_signal(void *arg UNUSED, int signo)
{
    note(signo == SIGUSR1 ? '1' : signo == SIGUSR2 ? '2' : '?');
}

TEST(signals_are_delivered_as_callbacks)
{
    struct err err = { 0 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    assert_int_equal(ev_signals(loop, &set, on_signal, NULL, &err), 0);
    raise(SIGUSR1);
    ev_turn(loop, -1);
    raise(SIGUSR2);
    ev_turn(loop, -1);
    assert_string_equal(seen, "12");
}

TEST(a_forked_child_can_remove_sources_without_affecting_the_parent)
{
    struct tap a;
    int status;

    tap_open(&a, 'a');
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ev_close_after_fork(loop);
        ev_io_set(loop, &a.io, 0);
        ev_io_del(loop, &a.io);
        ev_free(loop);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    tap_write(&a);
    ev_turn(loop, 0);
    assert_string_equal(seen, "a");
    tap_close(&a);
}

TEST(watching_a_descriptor_that_cannot_be_watched_is_an_error)
{
    struct err err = { 0 };
    struct ev_io io = { 0 };
    auto_fd int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_int_equal(ev_io_add(loop, &io, fd, EPOLLIN, on_tap, NULL, &err), -1);
    assert_int_equal(err.id, ERR_SYS);
    assert_false(io.on);
    ev_io_del(loop, &io);
    ev_run(loop); /* no source is left, so it returns */
}

#define RUN_EV(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_EV(timers_fire_in_order_of_time_whatever_the_order_of_setting),
        RUN_EV(moving_and_clearing_timers_keeps_the_heap_ordered),
        RUN_EV(thousands_of_moves_and_clears_lose_no_timer_and_keep_the_order),
        RUN_EV(a_timer_never_fires_early_and_the_loop_sleeps_until_it),
        RUN_EV(a_timer_in_the_far_future_does_not_cause_a_busy_loop),
        RUN_EV(a_timer_that_rearms_itself_does_not_starve_descriptors),
        RUN_EV(a_timer_cleared_in_the_same_iteration_does_not_fire),
        RUN_EV(a_source_removed_in_the_same_iteration_is_not_called),
        RUN_EV(interest_removed_in_the_same_iteration_suppresses_a_fetched_event),
        RUN_EV(a_source_without_interest_gets_hangup_once_and_does_not_wake_the_loop_again),
        RUN_EV(deferred_calls_run_last_and_once_and_nested_ones_in_the_next_iteration),
        RUN_EV(a_deferred_call_can_be_cleared_at_any_position_in_the_list),
        RUN_EV(a_deferred_call_cleared_by_an_earlier_one_does_not_run),
        RUN_EV(ready_descriptors_are_called_before_due_timers),
        RUN_EV(run_ends_when_no_source_is_left_or_at_stop),
        RUN_EV(signals_are_delivered_as_callbacks),
        RUN_EV(a_forked_child_can_remove_sources_without_affecting_the_parent),
        RUN_EV(watching_a_descriptor_that_cannot_be_watched_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
