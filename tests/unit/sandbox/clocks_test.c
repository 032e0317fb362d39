#include "tests/unit/test.h"

#include "sandbox/clocks.h"

#include <sys/mman.h>
#include <unistd.h>

#define MS NS_PER_MS
#define T0 (5 * NS_PER_S)

static const struct cpu_rate two_cores = { .quota_milli = 0, .cores = 2 };

#define SAMPLE(used, when) ((struct cpu_sample){ .ns = (used), .at = (when) })

TEST(the_wall_clock_expires_at_its_deadline_and_not_before)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 100, 0, two_cores, T0, 0);
    assert_int_equal(exec_clocks_next(&c), T0 + 100 * MS);
    assert_false(exec_clocks_check(&c, T0 + 100 * MS - 1, SAMPLE(0, T0 + 100 * MS - 1), &by));
    assert_true(exec_clocks_check(&c, T0 + 100 * MS, SAMPLE(0, T0 + 100 * MS), &by));
    assert_int_equal(by, ENDED_TIMEOUT);
}

TEST(no_clock_set_means_no_deadline)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 0, 0, two_cores, T0, 0);
    assert_int_equal(exec_clocks_next(&c), CLOCKS_NEVER);
    assert_false(exec_clocks_check(&c, UINT64_MAX - 1, SAMPLE(UINT64_MAX - 1, UINT64_MAX - 1), &by));
}

TEST(the_cpu_counter_is_read_when_the_budget_could_first_be_used_up)
{
    /* budget, CPU time used at the read, time until the next read */
    static const struct {
        struct cpu_rate rate;
        uint64_t budget_ms, used_ms, wait_ms;
    } rows[] = {
        { { 0, 2 }, 1000, 0, 500 }, /* two cores use it up in half the time */
        { { 0, 1 }, 1000, 0, 1000 },
        { { 0, 0 }, 1000, 0, 1000 },   /* unknown number of cores: one */
        { { 2000, 2 }, 1000, 0, 500 }, /* a quota of all cores is not a restriction */
        { { 1000, 2 }, 1000, 0, 900 }, /* quota of one core, minus one period of burst */
        { { 500, 2 }, 1000, 0, 1900 },
        { { 1000, 2 }, 1000, 950, 25 }, /* the burst is larger than the rest: only the cores limit it */
        { { 1000, 2 }, 1000, 998, 2 },  /* never less than the minimum interval */
        { { 0, 2 }, 1000, 999, 2 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct exec_clocks c;
        enum ended_by by;
        uint64_t at = T0;

        exec_clocks_start(&c, 0, rows[i].budget_ms, rows[i].rate, T0, 77);
        if (rows[i].used_ms > 0) {
            at = exec_clocks_next(&c);
            assert_false(exec_clocks_check(&c, at, SAMPLE(77 + rows[i].used_ms * MS, at), &by));
        }
        if (exec_clocks_next(&c) != at + rows[i].wait_ms * MS)
            fail_msg("row %zu: reads after %" PRIu64 " us", i, (exec_clocks_next(&c) - at) / 1000);
    }
}

TEST(the_cpu_clock_expires_when_the_budget_is_used_up)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 0, 10, two_cores, T0, 1000 * MS);
    assert_false(exec_clocks_check(&c, exec_clocks_next(&c), SAMPLE(1009 * MS, exec_clocks_next(&c)), &by));
    assert_true(exec_clocks_check(&c, exec_clocks_next(&c), SAMPLE(1010 * MS, exec_clocks_next(&c)), &by));
    assert_int_equal(by, ENDED_CPU);
}

TEST(a_counter_that_goes_backwards_does_not_use_up_the_budget)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 0, 10, two_cores, T0, 1000 * MS);
    assert_false(exec_clocks_check(&c, exec_clocks_next(&c), SAMPLE(3, exec_clocks_next(&c)), &by));
}

TEST(an_unreadable_counter_is_read_again_later)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 0, 10, two_cores, T0, 0);
    uint64_t at = exec_clocks_next(&c);
    assert_false(exec_clocks_check(&c, at, SAMPLE(CPU_UNKNOWN, at), &by));
    assert_true(exec_clocks_next(&c) > at && exec_clocks_next(&c) <= at + 20 * MS);

    exec_clocks_start(&c, 0, 10, two_cores, T0, CPU_UNKNOWN);
    assert_int_equal(exec_clocks_next(&c), CLOCKS_NEVER);
}

TEST(the_wall_clock_wins_when_both_are_due)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 10, 10, two_cores, T0, 0);
    assert_true(exec_clocks_check(&c, T0 + 10 * MS, SAMPLE(50 * MS, T0 + 10 * MS), &by));
    assert_int_equal(by, ENDED_TIMEOUT);
}

TEST(paused_time_counts_for_neither_clock_of_an_execution)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 100, 1000, two_cores, T0, 0);
    exec_clocks_pause(&c, T0 + 60 * MS);
    exec_clocks_pause(&c, T0 + 70 * MS); /* a second pause changes nothing */
    assert_int_equal(exec_clocks_next(&c), CLOCKS_NEVER);
    assert_false(exec_clocks_check(&c, T0 + 1000 * MS, SAMPLE(0, T0 + 1000 * MS), &by));
    exec_clocks_resume(&c, T0 + 1060 * MS);
    assert_int_equal(exec_clocks_next(&c), T0 + 1100 * MS);
    assert_true(exec_clocks_check(&c, T0 + 1100 * MS, SAMPLE(0, T0 + 1100 * MS), &by));
}

TEST(a_deadline_beyond_the_range_never_expires)
{
    struct exec_clocks c;

    exec_clocks_start(&c, UINT64_MAX / NS_PER_MS, 0, two_cores, T0, 0);
    assert_int_equal(exec_clocks_next(&c), CLOCKS_NEVER);
    exec_clocks_start(&c, UINT64_MAX, UINT64_MAX, two_cores, T0, 0);
    assert_int_equal(exec_clocks_next(&c), CLOCKS_NEVER);
}

TEST(the_lifetime_runs_during_executions_and_pauses)
{
    struct sandbox_clocks l;
    enum ended_by by;

    sandbox_clocks_start(&l, 1000, 0, T0);
    sandbox_clocks_set_busy(&l);
    sandbox_clocks_pause(&l, T0 + 10 * MS);
    assert_int_equal(sandbox_clocks_next(&l), T0 + 1000 * MS);
    assert_false(sandbox_clocks_check(&l, T0 + 999 * MS, &by));
    assert_true(sandbox_clocks_check(&l, T0 + 1000 * MS, &by));
    assert_int_equal(by, ENDED_LIFETIME);
}

TEST(idle_time_restarts_after_each_execution)
{
    struct sandbox_clocks l;
    enum ended_by by;

    sandbox_clocks_start(&l, 0, 50, T0);
    assert_int_equal(sandbox_clocks_next(&l), T0 + 50 * MS);
    sandbox_clocks_set_busy(&l);
    assert_int_equal(sandbox_clocks_next(&l), CLOCKS_NEVER);
    sandbox_clocks_set_idle(&l, T0 + 200 * MS);
    assert_false(sandbox_clocks_check(&l, T0 + 249 * MS, &by));
    assert_true(sandbox_clocks_check(&l, T0 + 250 * MS, &by));
    assert_int_equal(by, ENDED_IDLE);
}

TEST(idle_time_stops_while_paused)
{
    struct sandbox_clocks l;

    sandbox_clocks_start(&l, 0, 50, T0);
    sandbox_clocks_pause(&l, T0 + 20 * MS);
    assert_int_equal(sandbox_clocks_next(&l), CLOCKS_NEVER);
    sandbox_clocks_resume(&l, T0 + 1020 * MS);
    assert_int_equal(sandbox_clocks_next(&l), T0 + 1050 * MS);

    sandbox_clocks_set_busy(&l); /* an execution that ends during the pause starts the idle time there */
    sandbox_clocks_pause(&l, T0 + 2000 * MS);
    sandbox_clocks_set_idle(&l, T0 + 2100 * MS);
    sandbox_clocks_resume(&l, T0 + 3000 * MS);
    assert_int_equal(sandbox_clocks_next(&l), T0 + 3050 * MS);
}

TEST(cpu_counters_are_parsed_in_their_units)
{
    static const struct {
        const char *text;
        uint8_t unit;
        bool ok;
        uint64_t ns;
    } rows[] = {
        { "123456789\n", 0, true, 123456789 },
        { "0\n", 0, true, 0 },
        { "usage_usec 5000\nuser_usec 1\n", 1, true, 5000000 },
        { "", 0, false, 0 },
        { "12x\n", 0, false, 0 },
        { "-1\n", 0, false, 0 },
        { "user_usec 5\n", 1, false, 0 },
        { "99999999999999999999\n", 0, false, 0 },
        { "usage_usec 18446744073709551615\n", 1, false, 0 },
        { "5\n", 2, false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t ns = 0;

        if (cpu_counter_parse(rows[i].text, rows[i].unit, &ns) != rows[i].ok || ns != rows[i].ns)
            fail_msg("row %zu: %" PRIu64, i, ns);
    }
}

TEST(oom_kills_are_parsed_in_both_formats)
{
    assert_int_equal(oom_kills_parse("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
    assert_int_equal(oom_kills_parse("low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 7\n"), 2);
    assert_int_equal(oom_kills_parse("oom_kill_disable 5\n"), 0);
    assert_int_equal(oom_kills_parse("oom_kill x\n"), 0);
    assert_int_equal(oom_kills_parse(""), 0);
    assert_int_equal(oom_kills_read(-1), 0);
}

TEST(each_read_of_a_counter_starts_at_offset_0)
{
    int fd = memfd_create("cpu", MFD_CLOEXEC);

    assert_int_equal(pwrite(fd, "10\n", 3, 0), 3);
    assert_int_equal(cpu_counter_read(fd, 0), 10);
    assert_int_equal(pwrite(fd, "20\n", 3, 0), 3);
    assert_int_equal(cpu_counter_read(fd, 0), 20);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(cpu_counter_read(fd, 0), CPU_UNKNOWN);
    close(fd);
    assert_int_equal(cpu_counter_read(-1, 0), CPU_UNKNOWN);
}

TEST(an_old_sample_is_not_trusted_for_longer_than_the_budget_allows)
{
    struct exec_clocks c;
    enum ended_by by;

    exec_clocks_start(&c, 0, 100, two_cores, T0, 0);
    /* 40 of 100 ms used until T0 + 30 ms: two cores may have used the others by T0 + 60 ms. */
    assert_false(exec_clocks_check(&c, T0 + 50 * MS, SAMPLE(40 * MS, T0 + 30 * MS), &by));
    assert_int_equal(exec_clocks_next(&c), T0 + 60 * MS);
    /* No newer sample: ask again soon, and neither end the program nor stop looking. */
    assert_false(exec_clocks_check(&c, T0 + 60 * MS, SAMPLE(40 * MS, T0 + 30 * MS), &by));
    assert_int_equal(exec_clocks_next(&c), T0 + 70 * MS);
    assert_true(exec_clocks_check(&c, T0 + 70 * MS, SAMPLE(100 * MS, T0 + 65 * MS), &by));
    assert_int_equal(by, ENDED_CPU);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_old_sample_is_not_trusted_for_longer_than_the_budget_allows),
        RUN(the_wall_clock_expires_at_its_deadline_and_not_before),
        RUN(no_clock_set_means_no_deadline),
        RUN(the_cpu_counter_is_read_when_the_budget_could_first_be_used_up),
        RUN(the_cpu_clock_expires_when_the_budget_is_used_up),
        RUN(a_counter_that_goes_backwards_does_not_use_up_the_budget),
        RUN(an_unreadable_counter_is_read_again_later),
        RUN(the_wall_clock_wins_when_both_are_due),
        RUN(paused_time_counts_for_neither_clock_of_an_execution),
        RUN(a_deadline_beyond_the_range_never_expires),
        RUN(the_lifetime_runs_during_executions_and_pauses),
        RUN(idle_time_restarts_after_each_execution),
        RUN(idle_time_stops_while_paused),
        RUN(cpu_counters_are_parsed_in_their_units),
        RUN(oom_kills_are_parsed_in_both_formats),
        RUN(each_read_of_a_counter_starts_at_offset_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
