#include "tests/unit/core/calc/calc_host.h"

#include "core/base/mem.h"

static const struct calc_settings plain = { .digits = 0 };

TEST(numbers_that_would_be_too_large_are_refused_before_they_are_computed)
{
    static const struct calc_row rows[] = {
        { "9**9**9", NULL, ERR_CALC_LIMIT },
        { "9**9**9**9", NULL, ERR_CALC_LIMIT },
        { "2**33221", NULL, ERR_CALC_LIMIT },
        { "2**-33221", NULL, ERR_CALC_LIMIT },
        { "10**1e9", NULL, ERR_CALC_LIMIT },
        { "1.0000001**1000000000", NULL, ERR_CALC_LIMIT },
        { "2**1e9999", NULL, ERR_CALC_LIMIT },
        { "1**1e9999", "1", 0 },
        { "(-1)**(1e30+1)", "-1", 0 },
        { "0**1e30", "0", 0 },
        { "1e10001", NULL, ERR_CALC_LIMIT },
        { "1e-10001", NULL, ERR_CALC_LIMIT },
        { "1e99999999999999999999999", NULL, ERR_CALC_LIMIT },
        { "0e99999999999999999999999", "0", 0 },
        { "1e9999 * 1e9999", NULL, ERR_CALC_LIMIT },
        { "1000000!", NULL, ERR_CALC_LIMIT },
        { "1e100!", NULL, ERR_CALC_LIMIT },
        { "3!!!!", NULL, ERR_CALC_LIMIT },
        { "binomial(1e9, 5e8)", NULL, ERR_CALC_LIMIT },
        { "binomial(1e5000, 1e4000)", NULL, ERR_CALC_LIMIT },
        { "perm(1e9, 1e8)", NULL, ERR_CALC_LIMIT },
        { "exp(1e9)", NULL, ERR_CALC_LIMIT },
        { "exp(-1e9)", NULL, ERR_CALC_LIMIT },
        { "exp(exp(exp(9)))", NULL, ERR_CALC_LIMIT },
        { "pi**1e9", NULL, ERR_CALC_LIMIT },
        { "sin(1e9999)", NULL, ERR_CALC_LIMIT },
        { "round(1, 1e9)", NULL, ERR_CALC_LIMIT },
        { "root(2, 1e9)", NULL, ERR_CALC_UNDEFINED },
        { "1 / 1e9999 / 1e9999", NULL, ERR_CALC_LIMIT },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

TEST(operations_without_a_real_result_are_errors)
{
    static const struct calc_row rows[] = {
        { "1/0", NULL, ERR_CALC_DIVISION },
        { "1 // 0", NULL, ERR_CALC_DIVISION },
        { "1 mod 0", NULL, ERR_CALC_DIVISION },
        { "0 ** -1", NULL, ERR_CALC_DIVISION },
        { "0/0", NULL, ERR_CALC_DIVISION },
        { "1/sin(pi)", NULL, ERR_CALC_DIVISION },
        { "sqrt(-1)", NULL, ERR_CALC_UNDEFINED },
        { "(-8)**(1/3)", NULL, ERR_CALC_UNDEFINED },
        { "ln(0)", NULL, ERR_CALC_UNDEFINED },
        { "log10(-1)", NULL, ERR_CALC_UNDEFINED },
        { "log(8, 1)", NULL, ERR_CALC_UNDEFINED },
        { "asin(2)", NULL, ERR_CALC_UNDEFINED },
        { "acos(-1.01)", NULL, ERR_CALC_UNDEFINED },
        { "tan(pi/2)", NULL, ERR_CALC_UNDEFINED },
        { "tan(90 deg)", NULL, ERR_CALC_UNDEFINED },
        { "(-1)!", NULL, ERR_CALC_UNDEFINED },
        { "2.5!", NULL, ERR_CALC_UNDEFINED },
        { "gcd(1.5, 3)", NULL, ERR_CALC_UNDEFINED },
        { "root(2, 0)", NULL, ERR_CALC_UNDEFINED },
        { "floor(sqrt(2)**2)", NULL, ERR_CALC_UNDEFINED },
        { "1/(sqrt(2)**2 - 2)", NULL, ERR_CALC_UNDEFINED },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

static void check_repeated(const char *first, const char *part, size_t n, const char *last, enum err_id expected)
{
    struct buf text = { 0 };
    struct calc_result c;
    struct err err = { 0 };

    buf_adds(&text, first);
    for (size_t i = 0; i < n; i++)
        buf_adds(&text, part);
    buf_adds(&text, last);
    int rc = calc_solve(text.data, text.len, &plain, &c, &err);
    if (rc == 0)
        calc_result_done(&c);
    if ((rc < 0 ? err.id : ERR_NONE) != expected)
        fail_msg("%zu times %s: %s", n, part, rc < 0 ? err.msg : "accepted");
    buf_done(&text);
}

TEST(length_depth_and_work_are_bounded)
{
    check_repeated("1", "+1", 2047, "", ERR_NONE);
    check_repeated("1", "+1", 2048, "", ERR_CALC_LIMIT);
    check_repeated("", "(", 100, "1", ERR_CALC_SYNTAX);
    check_repeated("", "(", 101, "1", ERR_CALC_LIMIT);
    check_repeated("", "-", 99, "1", ERR_NONE);
    check_repeated("", "-", 4000, "1", ERR_CALC_LIMIT);
    check_repeated("", "2**", 1000, "1", ERR_CALC_LIMIT);
    check_repeated("", "sqrt(", 800, "2", ERR_CALC_LIMIT);
    check_repeated("max(1", ",1", 255, ")", ERR_NONE);
    check_repeated("max(1", ",1", 256, ")", ERR_CALC_LIMIT);
    check_repeated("1", "+1e-9999", 400, "", ERR_CALC_LIMIT);
    check_repeated("0", "+exp(1/3)", 400, "", ERR_CALC_LIMIT);
    check_repeated("0", "+root(2,97)", 300, "", ERR_CALC_LIMIT);
    check_repeated("1", "!", 4000, "", ERR_NONE);
}

TEST(more_work_is_a_setting)
{
    struct calc_settings set = { .digits = 1000, .work = CALC_WORK_COMMAND };
    struct buf text = { 0 };
    struct calc_result c;
    struct err err = { 0 };

    for (int i = 2; i < 102; i++)
        buf_addf(&text, "%ssin(1/%d)", i > 2 ? "+" : "", i);
    assert_int_equal(calc_solve(text.data, text.len, &set, &c, &err), 0);
    calc_result_done(&c);
    set.work = 0;
    assert_int_equal(calc_solve(text.data, text.len, &set, &c, &err), -1);
    assert_int_equal(err.id, ERR_CALC_LIMIT);
    buf_done(&text);
    set.digits = CALC_DIGITS_MAX + 1;
    assert_int_equal(calc_solve("1", 1, &set, &c, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(numbers_that_would_be_too_large_are_refused_before_they_are_computed),
        RUN(operations_without_a_real_result_are_errors),
        RUN(length_depth_and_work_are_bounded),
        RUN(more_work_is_a_setting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
