#include "../test.h"

#include "base/clock.h"
#include "store/calendar.h"

#define DAY CALENDAR_DAY_MS
#define HOUR_NS (3600 * NS_PER_S)
#define START (20000 * DAY)
#define YEARS (1000 * DAY)

static char kept[CALENDAR_TEXT];

static struct calendar begin(const char *text, uint64_t now_ns, uint64_t real_ms)
{
    struct calendar c;

    calendar_begin(&c, text, now_ns, real_ms);
    return c;
}

TEST(the_first_start_and_one_soon_after_the_last_count_at_once)
{
    struct calendar c = begin(NULL, 5, START);

    assert_false(c.waits);
    assert_true(calendar_look(&c, 5 + HOUR_NS, START + DAY / 24));
    assert_string_equal(calendar_print(&c, kept), "1728003600000 0");
    c = begin(kept, 7, START + CALENDAR_AHEAD_MS);
    assert_false(c.waits);
    assert_int_equal(calendar_now(&c, 7 + NS_PER_S, START + CALENDAR_AHEAD_MS + 1000),
                     START + CALENDAR_AHEAD_MS + 1000);
}

TEST(a_calendar_that_leapt_between_two_starts_has_to_hold_for_a_day_over_restarts)
{
    struct calendar c = begin(NULL, 0, START);
    uint64_t real = START + YEARS;

    assert_true(calendar_look(&c, 0, START));
    c = begin(calendar_print(&c, kept), 0, real);
    assert_true(c.waits);
    for (unsigned h = 1; h < 13; h++)
        assert_false(calendar_look(&c, h * HOUR_NS, real + h * DAY / 24));
    real += DAY / 2;
    c = begin(calendar_print(&c, kept), 0, real); /* what was waited stays, and how far it was believed too */
    assert_true(c.waits);
    for (unsigned h = 1; h < 12; h++)
        assert_false(calendar_look(&c, h * HOUR_NS, real + h * DAY / 24));
    assert_true(calendar_look(&c, 12 * HOUR_NS, real + DAY / 2));
    c = begin(calendar_print(&c, kept), 0, real + DAY);
    assert_false(c.waits);
}

TEST(a_calendar_that_is_set_right_while_it_is_waited_for_counts_at_once_and_ages_by_it)
{
    struct calendar c = begin("1728000000000 0", 0, START + YEARS);

    assert_true(c.waits);
    assert_true(calendar_look(&c, HOUR_NS, START + DAY));
    assert_int_equal(calendar_now(&c, HOUR_NS, START + DAY), START + DAY);
}

TEST(a_calendar_that_is_set_ahead_while_the_server_runs_is_not_followed)
{
    struct calendar c = begin(NULL, 0, START);

    assert_true(calendar_look(&c, HOUR_NS, START + YEARS));
    assert_int_equal(calendar_now(&c, HOUR_NS, START + YEARS), START + DAY / 24);
    c = begin(calendar_print(&c, kept), 0, START + YEARS);
    assert_true(c.waits);
}

TEST(what_cannot_be_read_is_as_if_there_were_nothing)
{
    static const char *const bad[] = { "", "x", "1", "1 ", "1 x", "1 0 ", "-1 0", "1 99999999999999", "1 0x" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(begin(bad[i], 0, START).waits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_start_and_one_soon_after_the_last_count_at_once),
        cmocka_unit_test(a_calendar_that_leapt_between_two_starts_has_to_hold_for_a_day_over_restarts),
        cmocka_unit_test(a_calendar_that_is_set_right_while_it_is_waited_for_counts_at_once_and_ages_by_it),
        cmocka_unit_test(a_calendar_that_is_set_ahead_while_the_server_runs_is_not_followed),
        cmocka_unit_test(what_cannot_be_read_is_as_if_there_were_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
