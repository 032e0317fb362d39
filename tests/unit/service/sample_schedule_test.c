#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "service/sample_schedule.h"

#define BOOT_MS 5000u /* the loop's clock is so far behind the calendar's, which began at a full hour */

static struct sample_schedule l;

static uint64_t ns(uint64_t ms)
{
    return (ms - BOOT_MS) * NS_PER_MS;
}

static void stir(uint64_t ms)
{
    sample_schedule_activity(&l, ns(ms), ms);
}

static void looked(uint64_t ms, bool moved)
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

TEST(without_sandboxes_nobody_wakes_up)
{
    l.live_sandboxes = 0;
    assert_int_equal(sample_schedule_next_ns(&l), SAMPLE_NEVER);
    stir(70000);
    assert_int_equal(sample_schedule_next_ns(&l), SAMPLE_NEVER);
}

TEST(what_runs_is_looked_at_every_full_minute)
{
    l.running_executions = 1;
    stir(70000);
    assert_int_equal(next_ms(), 120000);
    looked(120000, true);
    assert_int_equal(next_ms(), 180000);
}

TEST(a_second_after_the_last_end_is_one_look_and_then_none_before_the_hour)
{
    stir(70000);
    assert_int_equal(next_ms(), 71000);
    stir(70900); /* another one */
    assert_int_equal(next_ms(), 71900);
    looked(71900, false);
    assert_int_equal(next_ms(), 3600000);
    looked(3600000, false);
    assert_int_equal(next_ms(), 7200000);
}

TEST(short_executions_without_end_do_not_put_the_minute_off)
{
    for (uint64_t ms = 70000; ms < 120000; ms += 500)
        stir(ms);
    assert_int_equal(next_ms(), 120000);
}

TEST(what_goes_on_by_itself_is_looked_at_every_minute_until_it_rests)
{
    stir(70000);
    looked(71000, true);
    assert_int_equal(next_ms(), 120000);
    looked(120000, true);
    assert_int_equal(next_ms(), 180000);
    looked(180000, false);
    assert_int_equal(next_ms(), 3600000);
}

TEST(an_execution_after_a_long_rest_brings_the_minutes_back)
{
    stir(70000);
    looked(71000, false);
    l.running_executions = 1;
    stir(605000);
    assert_int_equal(next_ms(), 660000);
    l.running_executions = 0;
    stir(606000);
    assert_int_equal(next_ms(), 607000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_sandboxes_nobody_wakes_up, fresh),
        cmocka_unit_test_setup(what_runs_is_looked_at_every_full_minute, fresh),
        cmocka_unit_test_setup(a_second_after_the_last_end_is_one_look_and_then_none_before_the_hour, fresh),
        cmocka_unit_test_setup(short_executions_without_end_do_not_put_the_minute_off, fresh),
        cmocka_unit_test_setup(what_goes_on_by_itself_is_looked_at_every_minute_until_it_rests, fresh),
        cmocka_unit_test_setup(an_execution_after_a_long_rest_brings_the_minutes_back, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
