#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "service/sample_schedule.h"

#define BOOT_MS 5000u /* the loop's clock is this far behind the wall clock, which began at a full hour */

static struct sample_schedule l;

static uint64_t ns(uint64_t ms)
{
    return (ms - BOOT_MS) * NS_PER_MS;
}

static void activity(uint64_t ms)
{
    sample_schedule_activity(&l, ns(ms), ms);
}

static void sampled(uint64_t ms, bool moved)
{
    sample_schedule_sampled(&l, ns(ms), ms, moved);
}

static uint64_t next_ms(void)
{
    return sample_schedule_next_ns(&l) / NS_PER_MS + BOOT_MS;
}

static int fresh(void **state UNUSED)
{
    l = (struct sample_schedule){ .live_sandboxes = 1 };
    return 0;
}

TEST(without_sandboxes_there_is_no_sample)
{
    l.live_sandboxes = 0;
    assert_int_equal(sample_schedule_next_ns(&l), SAMPLE_NEVER);
    activity(70000);
    assert_int_equal(sample_schedule_next_ns(&l), SAMPLE_NEVER);
}

TEST(a_running_execution_is_sampled_every_full_minute)
{
    l.running_executions = 1;
    activity(70000);
    assert_int_equal(next_ms(), 120000);
    sampled(120000, true);
    assert_int_equal(next_ms(), 180000);
}

TEST(one_sample_follows_the_last_end_and_the_next_is_hourly)
{
    activity(70000);
    assert_int_equal(next_ms(), 71000);
    activity(70900); /* another end */
    assert_int_equal(next_ms(), 71900);
    sampled(71900, false);
    assert_int_equal(next_ms(), 3600000);
    sampled(3600000, false);
    assert_int_equal(next_ms(), 7200000);
}

TEST(continuous_short_executions_do_not_delay_the_minute_sample)
{
    for (uint64_t ms = 70000; ms < 120000; ms += 500)
        activity(ms);
    assert_int_equal(next_ms(), 120000);
}

TEST(a_program_without_an_execution_is_sampled_every_minute_until_it_is_idle)
{
    activity(70000);
    sampled(71000, true);
    assert_int_equal(next_ms(), 120000);
    sampled(120000, true);
    assert_int_equal(next_ms(), 180000);
    sampled(180000, false);
    assert_int_equal(next_ms(), 3600000);
}

TEST(an_execution_after_idle_time_restores_the_minute_samples)
{
    activity(70000);
    sampled(71000, false);
    l.running_executions = 1;
    activity(605000);
    assert_int_equal(next_ms(), 660000);
    l.running_executions = 0;
    activity(606000);
    assert_int_equal(next_ms(), 607000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_sandboxes_there_is_no_sample, fresh),
        cmocka_unit_test_setup(a_running_execution_is_sampled_every_full_minute, fresh),
        cmocka_unit_test_setup(one_sample_follows_the_last_end_and_the_next_is_hourly, fresh),
        cmocka_unit_test_setup(continuous_short_executions_do_not_delay_the_minute_sample, fresh),
        cmocka_unit_test_setup(a_program_without_an_execution_is_sampled_every_minute_until_it_is_idle, fresh),
        cmocka_unit_test_setup(an_execution_after_idle_time_restores_the_minute_samples, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
