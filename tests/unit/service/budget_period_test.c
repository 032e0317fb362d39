#include "tests/unit/test.h"

#include "service/budget_period.h"

#include <time.h>

/* A moment of UTC in milliseconds. */
static uint64_t at(int year, int month, int day, int hour, int minute, int second, int ms)
{
    struct tm tm = { .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day };

    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_sec = second;
    return (uint64_t)timegm(&tm) * 1000 + (uint64_t)ms;
}

static uint64_t used(const struct budget_period *a, enum store_period p, enum store_budget_resource what)
{
    return a->used[p][what];
}

TEST(days_and_months_begin_at_midnight_of_utc_whatever_their_length)
{
    static const struct {
        int now[7], day[3], next_day[3], month[3], next_month[3];
    } rows[] = {
        { { 2027, 1, 31, 23, 59, 59, 999 }, { 2027, 1, 31 }, { 2027, 2, 1 }, { 2027, 1, 1 }, { 2027, 2, 1 } },
        { { 2027, 2, 1, 0, 0, 0, 0 }, { 2027, 2, 1 }, { 2027, 2, 2 }, { 2027, 2, 1 }, { 2027, 3, 1 } },
        { { 2028, 2, 28, 12, 0, 0, 0 }, { 2028, 2, 28 }, { 2028, 2, 29 }, { 2028, 2, 1 }, { 2028, 3, 1 } },
        { { 2028, 2, 29, 23, 0, 0, 0 }, { 2028, 2, 29 }, { 2028, 3, 1 }, { 2028, 2, 1 }, { 2028, 3, 1 } },
        { { 2027, 12, 31, 23, 59, 59, 999 }, { 2027, 12, 31 }, { 2028, 1, 1 }, { 2027, 12, 1 }, { 2028, 1, 1 } },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const int *n = rows[i].now, *d = rows[i].day, *e = rows[i].next_day, *m = rows[i].month,
                  *x = rows[i].next_month;
        uint64_t now = at(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);

        assert_int_equal(budget_period_begin_ms(STORE_PERIOD_DAY, now), at(d[0], d[1], d[2], 0, 0, 0, 0));
        assert_int_equal(budget_period_end_ms(STORE_PERIOD_DAY, now), at(e[0], e[1], e[2], 0, 0, 0, 0));
        assert_int_equal(budget_period_begin_ms(STORE_PERIOD_MONTH, now), at(m[0], m[1], m[2], 0, 0, 0, 0));
        assert_int_equal(budget_period_end_ms(STORE_PERIOD_MONTH, now), at(x[0], x[1], x[2], 0, 0, 0, 0));
    }
}

TEST(daily_sums_are_cleared_at_midnight_and_monthly_sums_continue)
{
    struct budget_period a = { .owner = "acme" };

    budget_period_add(&a, STORE_BUDGET_CPU_TIME, 7, at(2027, 1, 30, 23, 59, 59, 999));
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME), 7);
    budget_period_add(&a, STORE_BUDGET_CPU_TIME, 1,
                      at(2027, 1, 31, 0, 0, 0, 0)); /* one millisecond later is another day */
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME), 1);
    assert_int_equal(used(&a, STORE_PERIOD_MONTH, STORE_BUDGET_CPU_TIME), 8);
    budget_period_add(&a, STORE_BUDGET_CPU_TIME, 1, at(2027, 1, 31, 1, 0, 0, 0)); /* one hour later is the same day */
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME), 2);
    budget_period_roll(&a, at(2027, 1, 31, 23, 59, 59, 999));
    assert_int_equal(used(&a, STORE_PERIOD_MONTH, STORE_BUDGET_CPU_TIME), 9);
    budget_period_roll(&a, at(2027, 2, 1, 0, 0, 0, 0));
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME), 0);
    assert_int_equal(used(&a, STORE_PERIOD_MONTH, STORE_BUDGET_CPU_TIME), 0);
}

TEST(a_reached_limit_renews_exactly_at_the_reported_time)
{
    struct budget_period a = { .owner = "acme", .max = { [STORE_PERIOD_MONTH] = { [STORE_BUDGET_EXECUTIONS] = 2 } } };
    uint64_t eve = at(2027, 12, 31, 23, 59, 59, 999);
    enum store_period p = STORE_PERIOD_DAY;
    struct err err = { 0 };

    budget_period_add(&a, STORE_BUDGET_EXECUTIONS, 1, eve);
    assert_false(budget_period_limit_reached(&a, a.used, STORE_BUDGET_EXECUTIONS, &p));
    budget_period_add(&a, STORE_BUDGET_EXECUTIONS, 1, eve);
    assert_true(budget_period_limit_reached(&a, a.used, STORE_BUDGET_EXECUTIONS, &p));
    assert_int_equal(p, STORE_PERIOD_MONTH);
    assert_int_equal(budget_period_set_error(&a, a.used, STORE_BUDGET_EXECUTIONS, p, eve, &err), -1);
    assert_int_equal(err.id, ERR_BUDGET);
    assert_string_equal(err.msg, "the budget of acme is used up: 2 of 2 executions this month; it renews at "
                                 "2028-01-01T00:00:00.000Z");
    budget_period_roll(&a, eve + 1);
    assert_false(budget_period_limit_reached(&a, a.used, STORE_BUDGET_EXECUTIONS, &p));
}

TEST(a_lifetime_across_midnight_is_split_between_the_periods)
{
    struct budget_period a = { 0 };
    uint64_t from = at(2027, 2, 28, 22, 0, 0, 0), to = at(2027, 3, 1, 1, 0, 0, 0);

    budget_period_add_span(&a, from, to, to);
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME),
                     3600000); /* since midnight, when both periods began */
    assert_int_equal(used(&a, STORE_PERIOD_MONTH, STORE_BUDGET_SANDBOX_TIME), 3600000);
    budget_period_add_span(&a, to, to + 5, to + 5);
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 3600005);
    budget_period_add_span(&a, from, at(2027, 2, 28, 23, 0, 0, 0), to + 5); /* it ended before this day */
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 3600005);
    budget_period_add_span(&a, to, to + 5,
                           at(2027, 3, 2, 0, 0, 0, 0)); /* counted a day late: it belongs to the month */
    assert_int_equal(used(&a, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 0);
    assert_int_equal(used(&a, STORE_PERIOD_MONTH, STORE_BUDGET_SANDBOX_TIME), 3600010);
}

TEST(a_limit_is_reached_by_whole_units_only)
{
    struct budget_period a = { .max = { [STORE_PERIOD_DAY] = { [STORE_BUDGET_CPU_TIME] = 2000 } } };
    uint64_t now = at(2027, 6, 1, 12, 0, 0, 0);
    enum store_period p;

    budget_period_add(&a, STORE_BUDGET_CPU_TIME, 1999999, now);
    assert_false(budget_period_limit_reached(&a, a.used, STORE_BUDGET_CPU_TIME, &p));
    budget_period_add(&a, STORE_BUDGET_CPU_TIME, 1, now);
    assert_true(budget_period_limit_reached(&a, a.used, STORE_BUDGET_CPU_TIME, &p));
    assert_false(budget_period_limit_reached(&a, a.used, STORE_BUDGET_SANDBOX_TIME, &p)); /* it has no limit */
}

TEST(a_limit_is_near_from_nine_tenths_on)
{
    struct budget_period a = { .max = { [STORE_PERIOD_DAY] = {
                                            [STORE_BUDGET_EXECUTIONS] = 10, [STORE_BUDGET_CPU_TIME] = 1 } } };
    static const enum budget_limit_state at_[] = {
        [8] = BUDGET_LIMIT_OPEN, [9] = BUDGET_LIMIT_NEAR, [10] = BUDGET_LIMIT_REACHED
    };

    for (unsigned i = 8; i <= 10; i++) {
        a.used[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS] = i;
        assert_int_equal(budget_period_limit_state(&a, a.used, STORE_PERIOD_DAY, STORE_BUDGET_EXECUTIONS), at_[i]);
    }
    assert_int_equal(budget_period_limit_state(&a, a.used, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME),
                     BUDGET_LIMIT_OPEN); /* the limit is 1, nothing is used */
}

TEST(a_wall_clock_set_back_clears_the_sums)
{
    struct budget_period a = { .max = { [STORE_PERIOD_DAY] = { [STORE_BUDGET_EXECUTIONS] = 1 } } };
    uint64_t now = at(2027, 6, 1, 12, 0, 0, 0);
    enum store_period p;

    budget_period_add(&a, STORE_BUDGET_EXECUTIONS, 1, now);
    budget_period_roll(&a, now - 86400000);
    assert_false(budget_period_limit_reached(&a, a.used, STORE_BUDGET_EXECUTIONS, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(days_and_months_begin_at_midnight_of_utc_whatever_their_length),
        cmocka_unit_test(daily_sums_are_cleared_at_midnight_and_monthly_sums_continue),
        cmocka_unit_test(a_reached_limit_renews_exactly_at_the_reported_time),
        cmocka_unit_test(a_lifetime_across_midnight_is_split_between_the_periods),
        cmocka_unit_test(a_limit_is_reached_by_whole_units_only),
        cmocka_unit_test(a_limit_is_near_from_nine_tenths_on),
        cmocka_unit_test(a_wall_clock_set_back_clears_the_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
