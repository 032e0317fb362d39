#include "../test.h"

#include "sandbox/allowance.h"

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

static uint64_t used(const struct allowance *a, enum store_period p, enum store_budgeted what)
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

        assert_int_equal(allowance_begin(STORE_DAY, now), at(d[0], d[1], d[2], 0, 0, 0, 0));
        assert_int_equal(allowance_renews(STORE_DAY, now), at(e[0], e[1], e[2], 0, 0, 0, 0));
        assert_int_equal(allowance_begin(STORE_MONTH, now), at(m[0], m[1], m[2], 0, 0, 0, 0));
        assert_int_equal(allowance_renews(STORE_MONTH, now), at(x[0], x[1], x[2], 0, 0, 0, 0));
    }
}

TEST(the_sums_of_a_day_end_with_it_and_those_of_the_month_go_on)
{
    struct allowance a = { .owner = "acme" };

    allowance_add(&a, STORE_CPU_S, 7, at(2027, 1, 30, 23, 59, 59, 999));
    assert_int_equal(used(&a, STORE_DAY, STORE_CPU_S), 7);
    allowance_add(&a, STORE_CPU_S, 1, at(2027, 1, 31, 0, 0, 0, 0)); /* a millisecond later is another day */
    assert_int_equal(used(&a, STORE_DAY, STORE_CPU_S), 1);
    assert_int_equal(used(&a, STORE_MONTH, STORE_CPU_S), 8);
    allowance_add(&a, STORE_CPU_S, 1, at(2027, 1, 31, 1, 0, 0, 0)); /* and an hour is nothing */
    assert_int_equal(used(&a, STORE_DAY, STORE_CPU_S), 2);
    allowance_turn(&a, at(2027, 1, 31, 23, 59, 59, 999));
    assert_int_equal(used(&a, STORE_MONTH, STORE_CPU_S), 9);
    allowance_turn(&a, at(2027, 2, 1, 0, 0, 0, 0));
    assert_int_equal(used(&a, STORE_DAY, STORE_CPU_S), 0);
    assert_int_equal(used(&a, STORE_MONTH, STORE_CPU_S), 0);
}

TEST(a_bound_that_was_reached_is_open_again_in_the_millisecond_in_which_it_said_that_it_renews)
{
    struct allowance a = { .owner = "acme", .max = { [STORE_MONTH] = { [STORE_EXECUTIONS] = 2 } } };
    uint64_t eve = at(2027, 12, 31, 23, 59, 59, 999);
    enum store_period p = STORE_DAY;
    struct err err = { 0 };

    allowance_add(&a, STORE_EXECUTIONS, 1, eve);
    assert_false(allowance_reached(&a, a.used, STORE_EXECUTIONS, &p));
    allowance_add(&a, STORE_EXECUTIONS, 1, eve);
    assert_true(allowance_reached(&a, a.used, STORE_EXECUTIONS, &p));
    assert_int_equal(p, STORE_MONTH);
    assert_int_equal(allowance_explain(&a, a.used, STORE_EXECUTIONS, p, eve, &err), -1);
    assert_int_equal(err.id, ERR_BUDGET);
    assert_string_equal(err.msg, "the budget of acme is used up: 2 of 2 executions this month; it renews at "
                                 "2028-01-01T00:00:00.000Z");
    allowance_turn(&a, eve + 1);
    assert_false(allowance_reached(&a, a.used, STORE_EXECUTIONS, &p));
}

TEST(a_life_across_midnight_counts_in_each_period_for_what_of_it_lay_there)
{
    struct allowance a = { 0 };
    uint64_t from = at(2027, 2, 28, 22, 0, 0, 0), to = at(2027, 3, 1, 1, 0, 0, 0);

    allowance_add_span(&a, from, to, to);
    assert_int_equal(used(&a, STORE_DAY, STORE_SANDBOX_S), 3600000); /* since midnight, which began both */
    assert_int_equal(used(&a, STORE_MONTH, STORE_SANDBOX_S), 3600000);
    allowance_add_span(&a, to, to + 5, to + 5);
    assert_int_equal(used(&a, STORE_DAY, STORE_SANDBOX_S), 3600005);
    allowance_add_span(&a, from, at(2027, 2, 28, 23, 0, 0, 0), to + 5); /* it ended before */
    assert_int_equal(used(&a, STORE_DAY, STORE_SANDBOX_S), 3600005);
    allowance_add_span(&a, to, to + 5, at(2027, 3, 2, 0, 0, 0, 0)); /* told a day late: it lay in the month */
    assert_int_equal(used(&a, STORE_DAY, STORE_SANDBOX_S), 0);
    assert_int_equal(used(&a, STORE_MONTH, STORE_SANDBOX_S), 3600010);
}

TEST(a_bound_is_met_by_whole_units_only)
{
    struct allowance a = { .max = { [STORE_DAY] = { [STORE_CPU_S] = 2 } } };
    uint64_t now = at(2027, 6, 1, 12, 0, 0, 0);
    enum store_period p;

    allowance_add(&a, STORE_CPU_S, 1999999, now);
    assert_false(allowance_reached(&a, a.used, STORE_CPU_S, &p));
    allowance_add(&a, STORE_CPU_S, 1, now);
    assert_true(allowance_reached(&a, a.used, STORE_CPU_S, &p));
    assert_false(allowance_reached(&a, a.used, STORE_SANDBOX_S, &p)); /* which has no bound */
}

TEST(nine_tenths_of_a_bound_are_near_to_it)
{
    struct allowance a = { .max = { [STORE_DAY] = { [STORE_EXECUTIONS] = 10, [STORE_CPU_S] = 1 } } };
    static const enum allowance_state at_[] = { [8] = ALLOWANCE_OPEN, [9] = ALLOWANCE_NEAR, [10] = ALLOWANCE_SPENT };

    for (unsigned i = 8; i <= 10; i++) {
        a.used[STORE_DAY][STORE_EXECUTIONS] = i;
        assert_int_equal(allowance_state(&a, a.used, STORE_DAY, STORE_EXECUTIONS), at_[i]);
    }
    assert_int_equal(allowance_state(&a, a.used, STORE_DAY, STORE_CPU_S), ALLOWANCE_OPEN); /* one, and none of it */
}

TEST(a_calendar_that_is_set_back_counts_against_nobody)
{
    struct allowance a = { .max = { [STORE_DAY] = { [STORE_EXECUTIONS] = 1 } } };
    uint64_t now = at(2027, 6, 1, 12, 0, 0, 0);
    enum store_period p;

    allowance_add(&a, STORE_EXECUTIONS, 1, now);
    allowance_turn(&a, now - 86400000);
    assert_false(allowance_reached(&a, a.used, STORE_EXECUTIONS, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(days_and_months_begin_at_midnight_of_utc_whatever_their_length),
        cmocka_unit_test(the_sums_of_a_day_end_with_it_and_those_of_the_month_go_on),
        cmocka_unit_test(a_bound_that_was_reached_is_open_again_in_the_millisecond_in_which_it_said_that_it_renews),
        cmocka_unit_test(a_life_across_midnight_counts_in_each_period_for_what_of_it_lay_there),
        cmocka_unit_test(a_bound_is_met_by_whole_units_only),
        cmocka_unit_test(nine_tenths_of_a_bound_are_near_to_it),
        cmocka_unit_test(a_calendar_that_is_set_back_counts_against_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
