#include "tests/unit/core/calc/calc_host.h"

static const struct calc_settings plain = { .digits = 0 };

TEST(rational_arithmetic_is_exact)
{
    static const struct calc_row rows[] = {
        { "1/3 + 1/6", "0.5", 0 },
        { "0.1 + 0.2", "0.3", 0 },
        { "2/3 - 1/7", "11/21", 0 },
        { "1/3*3", "1", 0 },
        { "2.50", "2.5", 0 },
        { "-7 // 2", "-4", 0 },
        { "-7 % 3", "2", 0 },
        { "7 % -3.5", "", 0 },
        { "mod(7, -3)", "-2", 0 },
        { "17 mod 5", "2", 0 },
        { "7.5 % 2", "1.5", 0 },
        { "2 ** -2", "0.25", 0 },
        { "(2/3) ** 3", "8/27", 0 },
        { "0 ** 0", "1", 0 },
        { "0x1F + 0b101 + 0o17", "51", 0 },
        { "1e3 + 1.5e-1", "1000.15", 0 },
        { ".5 + 5.", "5.5", 0 },
        { "1_000 + 1", "1001", 0 },
        { "12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900", 0 },
        { "2 \u00d7 3 \u00f7 4 \u2212 1", "0.5", 0 },
        { "2 + 2 =", "4", 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (*rows[i].answer)
            check_rows(&rows[i], 1, &plain);
        else
            check_rows(&(struct calc_row){ rows[i].text, NULL, ERR_CALC_SYNTAX }, 1, &plain);
}

TEST(operators_bind_as_in_mathematics)
{
    static const struct calc_row rows[] = {
        { "2 + 3 * 4", "14", 0 },
        { "(2 + 3) * 4", "20", 0 },
        { "2 ** 3 ** 2", "512", 0 },
        { "-2 ** 2", "-4", 0 },
        { "2 ** -1 * 4", "2", 0 },
        { "2 ** 3!", "64", 0 },
        { "-3!", "-6", 0 },
        { "100 / 10 / 2", "5", 0 },
        { "10 - 3 - 2", "5", 0 },
        { "2 ^ 10", "1024", 0 },
        { "- - 3", "3", 0 },
        { "3!!", "720", 0 },
        { "2\u00b2 + 3\u00b3", "31", 0 },
        { "\u221a16 + 1", "5", 0 },
        { "-(2 + 3)", "-5", 0 },
        { "7 // 2 * 2", "6", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

TEST(percentages_follow_their_documented_rules)
{
    static const struct calc_row rows[] = {
        { "15% of 80", "12", 0 },
        { "20 + 10%", "22", 0 },
        { "100 - 20%", "80", 0 },
        { "20 + (10%)", "20.1", 0 },
        { "10% + 5%", "0.15", 0 },
        { "20 + 10% + 5%", "23.1", 0 },
        { "20 + 10% of 50", "25", 0 },
        { "5 * 10%", "0.5", 0 },
        { "10% of 50% of 40", "2", 0 },
        { "10 % 3", "1", 0 },
        { "10%3", "1", 0 },
        { "15% of 80 + 5", "17", 0 },
        { "10% - 3", "-2.9", 0 },
        { "10 % - 3", NULL, ERR_CALC_SYNTAX },
        { "50%", "0.5", 0 },
        { "10% of 2 ** 3", "0.8", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

TEST(functions_are_exact_where_their_value_is_rational)
{
    static const struct calc_row rows[] = {
        { "sqrt(16)", "4", 0 },
        { "sqrt(16/9)", "4/3", 0 },
        { "cbrt(-27)", "-3", 0 },
        { "root(81, 4)", "3", 0 },
        { "8 ** (2/3)", "4", 0 },
        { "4 ** -0.5", "0.5", 0 },
        { "log2(1/8)", "-3", 0 },
        { "log10(1000)", "3", 0 },
        { "log(81, 3)", "4", 0 },
        { "ln(1)", "0", 0 },
        { "exp(0)", "1", 0 },
        { "sin(30 deg)", "0.5", 0 },
        { "cos(60\u00b0)", "0.5", 0 },
        { "sin(pi)", "0", 0 },
        { "cos(pi)", "-1", 0 },
        { "tan(pi/4)", "1", 0 },
        { "sin(1000001 * pi)", "0", 0 },
        { "cos(-pi/3)", "0.5", 0 },
        { "degrees(asin(1/2))", "30", 0 },
        { "radians(180)/pi", "1", 0 },
        { "degrees(acos(-1/2))", "120", 0 },
        { "degrees(atan(1))", "45", 0 },
        { "tau/pi", "2", 0 },
        { "floor(pi * 100)", "314", 0 },
        { "pow(2, 10)", "1024", 0 },
        { "SQRT(4)", "2", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

TEST(rounding_and_integer_functions)
{
    static const struct calc_row rows[] = {
        { "floor(-2.5)", "-3", 0 },
        { "ceil(-2.5)", "-2", 0 },
        { "trunc(-2.5)", "-2", 0 },
        { "round(2.5)", "3", 0 },
        { "round(-2.5)", "-3", 0 },
        { "round(2.675, 2)", "2.68", 0 },
        { "round(1234, -2)", "1200", 0 },
        { "round(pi, 3)", "3.142", 0 },
        { "abs(-1/3)", "1/3", 0 },
        { "min(3, 1, 2)", "1", 0 },
        { "max(3, pi, 2) > 3.14", NULL, ERR_NONE },
        { "sum(1, 2, 3)", "6", 0 },
        { "avg(1, 2)", "1.5", 0 },
        { "mean(1, 2, 4)", "7/3", 0 },
        { "median(3, 1, 2)", "2", 0 },
        { "median(4, 1, 3, 2)", "2.5", 0 },
        { "median(2, 1)", "1.5", 0 },
        { "gcd(12, 18, 27)", "3", 0 },
        { "lcm(4, 6, 10)", "60", 0 },
        { "factorial(20)", "2432902008176640000", 0 },
        { "binomial(50, 25)", "126410606437752", 0 },
        { "comb(3, 5)", "0", 0 },
        { "perm(5, 2)", "20", 0 },
        { "perm(5, 0)", "1", 0 },
        { "comb(1e20, 2)", "4999999999999999999950000000000000000000", 0 },
        { "median(1/3, sqrt(2), 1) = 1", "true", 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].answer)
            check_rows(&rows[i], 1, &plain);
    check_rows(&(struct calc_row){ "max(3, pi, 2) > 3.14", "true", 0 }, 1, &plain);
}

TEST(comparisons_are_decided_exactly)
{
    static const struct calc_row rows[] = {
        { "0.1 + 0.2 = 0.3", "true", 0 },
        { "1/3 == 0.3333", "false", 0 },
        { "2 < 3", "true", 0 },
        { "3 <= 3", "true", 0 },
        { "3 != 3", "false", 0 },
        { "pi > 22/7", "false", 0 },
        { "sqrt(2)*sqrt(2) = 2", NULL, ERR_CALC_UNDEFINED },
        { "1 < 2 < 3", NULL, ERR_CALC_SYNTAX },
        { "(1 < 2) + 1", NULL, ERR_CALC_SYNTAX },
        { "2 >= 3", "false", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

/* The digits are those of published tables. */
TEST(irrational_results_are_correctly_rounded)
{
    static const struct {
        const char *text, *decimal;
        unsigned digits;
    } rows[] = {
        { "pi", "3.1415926535897932384626433832795028841971693993751", 50 },
        { "e", "2.7182818284590452353602874713526624977572470937", 47 },
        { "sqrt(2)", "1.4142135623730950488016887242096980785696718753769", 50 },
        { "ln(2)", "0.69314718055994530941723212145817656807550013436026", 50 },
        { "sin(1)", "0.84147", 5 },
        { "exp(-1000)", "5.0759588975e-435", 11 },
        { "10**50 / 3 * pi / pi", "33333333333333333333333333333333333333333333333333", 50 },
        { "1e-30/3*pi/pi", "3.33e-31", 3 },
        { "2/3", "0.667", 3 },
        { "9.9999/7*7*pi/pi", "9.9999", 6 },
        { "99999/100003", "0.99996", 5 },
        { "1/7", "0.1", 1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct calc_result c;
        struct err err = { 0 };

        if (calc_solve(rows[i].text, strlen(rows[i].text), &(struct calc_settings){ .digits = rows[i].digits }, &c,
                       &err) < 0)
            fail_msg("%s: %s", rows[i].text, err.msg);
        if (strcmp(c.decimal, rows[i].decimal) != 0)
            fail_msg("%s: %s; expected: %s", rows[i].text, c.decimal, rows[i].decimal);
        calc_result_done(&c);
    }
}

TEST(rounded_results_say_so_and_exact_ones_have_a_fraction)
{
    struct calc_result c;
    struct err err = { 0 };

    assert_int_equal(calc_solve("1/3", 3, &plain, &c, &err), 0);
    assert_true(c.exact && !c.decimal_exact && c.digits == CALC_DIGITS_DEFAULT);
    assert_string_equal(c.answer, "1/3");
    assert_string_equal(c.fraction, "1/3");
    assert_string_equal(c.decimal, "0.3333333333333333333333333333333333");
    calc_result_done(&c);

    assert_int_equal(calc_solve("sqrt(2)", 7, &plain, &c, &err), 0);
    assert_true(!c.exact && !c.decimal_exact && c.digits == CALC_DIGITS_DEFAULT && !c.fraction && !c.error_bound);
    calc_result_done(&c);

    assert_int_equal(calc_solve("sqrt(2)**2 - 2", 14, &plain, &c, &err), 0);
    assert_string_equal(c.answer, "0");
    assert_true(!c.exact && c.error_bound);
    calc_result_done(&c);

    assert_int_equal(calc_solve("1/8", 3, &plain, &c, &err), 0);
    assert_true(c.exact && c.decimal_exact && c.digits == 0);
    calc_result_done(&c);
}

TEST(steps_list_each_reduction)
{
    struct calc_result c;
    struct err err = { 0 };

    assert_int_equal(calc_solve("1/3 + 1/6", 9, &(struct calc_settings){ .steps = true }, &c, &err), 0);
    assert_int_equal(c.nsteps, 3);
    assert_string_equal(c.steps[0], "1 / 3 = 1/3");
    assert_string_equal(c.steps[2], "1/3 + 1/6 = 0.5");
    calc_result_done(&c);
    assert_int_equal(calc_solve("sqrt(2)", 7, &(struct calc_settings){ .steps = true }, &c, &err), 0);
    assert_string_equal(c.steps[0], "sqrt(2) \u2248 1.414213562");
    calc_result_done(&c);
}

TEST(text_with_two_readings_or_none_is_refused)
{
    static const struct calc_row rows[] = {
        { "", NULL, ERR_CALC_SYNTAX },
        { "2 +", NULL, ERR_CALC_SYNTAX },
        { "2 pi", NULL, ERR_CALC_SYNTAX },
        { "2(3)", NULL, ERR_CALC_SYNTAX },
        { "1 1/2", NULL, ERR_CALC_SYNTAX },
        { "1,23", NULL, ERR_CALC_SYNTAX },
        { "max(1,234, 5)", NULL, ERR_CALC_SYNTAX },
        { "sum(1,000, 2)", NULL, ERR_CALC_SYNTAX },
        { "x + 1", NULL, ERR_CALC_SYNTAX },
        { "sqrt 4", NULL, ERR_CALC_SYNTAX },
        { "(1", NULL, ERR_CALC_SYNTAX },
        { "1)", NULL, ERR_CALC_SYNTAX },
        { "sqrt()", NULL, ERR_CALC_SYNTAX },
        { "sqrt(1, 2)", NULL, ERR_CALC_SYNTAX },
        { "1 + * 2", NULL, ERR_CALC_SYNTAX },
        { "what is 2 + 2", NULL, ERR_CALC_SYNTAX },
        { "'a' * 3", NULL, ERR_CALC_SYNTAX },
        { "1; 2", NULL, ERR_CALC_SYNTAX },
        { "\xff", NULL, ERR_CALC_SYNTAX },
        { "1,234", "1234", 0 },
        { "1,234,567.5", "1234567.5", 0 },
        { "max(1,234)", "234", 0 },
        { "max((1,234), 5)", "1234", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &plain);
}

TEST(an_error_names_the_character)
{
    struct calc_result c;
    struct err err = { 0 };

    assert_int_equal(calc_solve("\u221a4 + 1/0", strlen("\u221a4 + 1/0"), &plain, &c, &err), -1);
    assert_int_equal(err.id, ERR_CALC_DIVISION);
    assert_non_null(strstr(err.msg, "character 7: division by zero"));
    assert_int_equal(calc_solve("2 + foo(3)", 10, &plain, &c, &err), -1);
    assert_non_null(strstr(err.msg, "character 5: 'foo'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(rational_arithmetic_is_exact),
        RUN(operators_bind_as_in_mathematics),
        RUN(percentages_follow_their_documented_rules),
        RUN(functions_are_exact_where_their_value_is_rational),
        RUN(rounding_and_integer_functions),
        RUN(comparisons_are_decided_exactly),
        RUN(irrational_results_are_correctly_rounded),
        RUN(rounded_results_say_so_and_exact_ones_have_a_fraction),
        RUN(steps_list_each_reduction),
        RUN(text_with_two_readings_or_none_is_refused),
        RUN(an_error_names_the_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
