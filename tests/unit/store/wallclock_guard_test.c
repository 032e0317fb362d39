#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "store/wallclock_guard.h"

#define DAY WALLCLOCK_GUARD_DAY_MS
#define HOUR_NS (3600 * NS_PER_S)
#define START (20000 * DAY)
#define YEARS (1000 * DAY)

static char kept[WALLCLOCK_GUARD_TEXT];

static struct wallclock_guard begin(const char *text, uint64_t now_ns, uint64_t real_ms)
{
    struct wallclock_guard c;

    wallclock_guard_init(&c, text, now_ns, real_ms);
    return c;
}

TEST(a_first_start_and_a_quick_restart_trust_the_clock_at_once)
{
    struct wallclock_guard c = begin(NULL, 5, START);

    assert_false(c.is_distrusted);
    assert_true(wallclock_guard_update(&c, 5 + HOUR_NS, START + DAY / 24));
    assert_string_equal(wallclock_guard_format(&c, kept), "1728003600000 0");
    c = begin(kept, 7, START + WALLCLOCK_GUARD_AHEAD_MS);
    assert_false(c.is_distrusted);
    assert_int_equal(wallclock_guard_now_ms(&c, 7 + NS_PER_S, START + WALLCLOCK_GUARD_AHEAD_MS + 1000),
                     START + WALLCLOCK_GUARD_AHEAD_MS + 1000);
}

TEST(a_clock_that_jumped_ahead_is_trusted_after_a_day_across_restarts)
{
    struct wallclock_guard c = begin(NULL, 0, START);
    uint64_t real = START + YEARS;

    assert_true(wallclock_guard_update(&c, 0, START));
    c = begin(wallclock_guard_format(&c, kept), 0, real);
    assert_true(c.is_distrusted);
    for (unsigned h = 1; h < 13; h++)
        assert_false(wallclock_guard_update(&c, h * HOUR_NS, real + h * DAY / 24));
    real += DAY / 2;
    c = begin(wallclock_guard_format(&c, kept), 0, real); /* the time waited and the trusted time are both kept */
    assert_true(c.is_distrusted);
    for (unsigned h = 1; h < 12; h++)
        assert_false(wallclock_guard_update(&c, h * HOUR_NS, real + h * DAY / 24));
    assert_true(wallclock_guard_update(&c, 12 * HOUR_NS, real + DAY / 2));
    c = begin(wallclock_guard_format(&c, kept), 0, real + DAY);
    assert_false(c.is_distrusted);
}

TEST(a_clock_that_is_corrected_during_the_wait_is_trusted_at_once)
{
    struct wallclock_guard c = begin("1728000000000 0", 0, START + YEARS);

    assert_true(c.is_distrusted);
    assert_true(wallclock_guard_update(&c, HOUR_NS, START + DAY));
    assert_int_equal(wallclock_guard_now_ms(&c, HOUR_NS, START + DAY), START + DAY);
}

TEST(a_clock_that_jumps_ahead_while_the_server_runs_is_not_followed)
{
    struct wallclock_guard c = begin(NULL, 0, START);

    assert_true(wallclock_guard_update(&c, HOUR_NS, START + YEARS));
    assert_int_equal(wallclock_guard_now_ms(&c, HOUR_NS, START + YEARS), START + DAY / 24);
    c = begin(wallclock_guard_format(&c, kept), 0, START + YEARS);
    assert_true(c.is_distrusted);
}

TEST(unreadable_state_counts_as_none)
{
    static const char *const bad[] = { "", "x", "1", "1 ", "1 x", "1 0 ", "-1 0", "1 99999999999999", "1 0x" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(begin(bad[i], 0, START).is_distrusted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_start_and_a_quick_restart_trust_the_clock_at_once),
        cmocka_unit_test(a_clock_that_jumped_ahead_is_trusted_after_a_day_across_restarts),
        cmocka_unit_test(a_clock_that_is_corrected_during_the_wait_is_trusted_at_once),
        cmocka_unit_test(a_clock_that_jumps_ahead_while_the_server_runs_is_not_followed),
        cmocka_unit_test(unreadable_state_counts_as_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
