#include "tests/unit/core/calc/calc_host.h"

static const struct calc_settings words = { .words = true };

TEST(problems_in_words_have_one_reading)
{
    static const struct calc_row rows[] = {
        { "What is 2 + 2?", "4", 0 },
        { "Calculate 2.5 + 1", "3.5", 0 },
        { "Calculate 2.5 + 1.", "3.5", 0 },
        { "What is 5!?", "120", 0 },
        { "five plus three", "8", 0 },
        { "What is 5 plus three times 2", "11", 0 },
        { "10 minus 4 minus 3", "3", 0 },
        { "12 divided by 8", "1.5", 0 },
        { "6 multiplied by 7", "42", 0 },
        { "3 x 4", "12", 0 },
        { "What is the sum of 3 and 4?", "7", 0 },
        { "sum of 1, 2 and 3", "6", 0 },
        { "sum of 1,000 and 2,000", "3000", 0 },
        { "the difference between 10 and 3", "7", 0 },
        { "the difference between 3 and 10", "7", 0 },
        { "product of 6 and 7", "42", 0 },
        { "quotient of 10 and 4", "2.5", 0 },
        { "add 3 and 4", "7", 0 },
        { "add 3 to 4", "7", 0 },
        { "subtract 3 from 10", "7", 0 },
        { "3 subtracted from 10", "7", 0 },
        { "3 less than 10", "7", 0 },
        { "multiply 6 by 7", "42", 0 },
        { "divide 10 by 4", "2.5", 0 },
        { "15 percent of 80", "12", 0 },
        { "What is 15% of 80?", "12", 0 },
        { "increase 80 by 15%", "92", 0 },
        { "80 decreased by 25%", "60", 0 },
        { "20 is what percent of 80", "25", 0 },
        { "What percent of 80 is 20?", "25", 0 },
        { "square root of 16", "4", 0 },
        { "the cube root of 27", "3", 0 },
        { "seven squared", "49", 0 },
        { "2 cubed", "8", 0 },
        { "half of 10", "5", 0 },
        { "twice 21", "42", 0 },
        { "two thirds of 90", "60", 0 },
        { "2 to the power of 10", "1024", 0 },
        { "2 to the 10th power", "1024", 0 },
        { "raise 2 to the power of 5", "32", 0 },
        { "twenty-one plus one hundred and five", "126", 0 },
        { "three million four hundred thousand and six minus 6", "3400000", 0 },
        { "2.5 million divided by 5", "500000", 0 },
        { "two point five times 2", "5", 0 },
        { "average of 3, 4 and 5", "4", 0 },
        { "greatest common divisor of 12 and 18", "6", 0 },
        { "square root of the sum of 9 and 16", "5", 0 },
        { "10 plus the sum of 3 and 4", "17", 0 },
        { "remainder when 17 is divided by 5", "2", 0 },
        { "add 3 and 4, then multiply by 2", "14", 0 },
        { "negative 3 plus 5", "2", 0 },
        { "sqrt(16) plus 2", "6", 0 },
    };

    check_rows(rows, ARRAY_LEN(rows), &words);
}

TEST(text_that_is_not_understood_has_no_answer)
{
    static const char *const rows[] = {
        "hello",
        "What is the meaning of life?",
        "square root of 16 plus 9",   /* 5 or 13 */
        "the sum of 3 and 4 times 2", /* 11 or 14 */
        "half of 10 plus 4",
        "sum of 3",
        "product of one hundred and five and three", /* 315 or 1500 */
        "one two",
        "twenty twenty",
        "5 apples plus 3 oranges",
        "John has 5 apples and Mary has 3. Who has more?",
        "what is 2 + 2 and 3 + 3",
        "subtract 3",
        "2 +",
        "x + 1",
        "",
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct calc_result c;
        struct err err = { 0 };

        if (calc_solve(rows[i], strlen(rows[i]), &words, &c, &err) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        if (c.answer || c.type != CALC_UNKNOWN || !c.explanation || !*c.explanation)
            fail_msg("%s: answered %s", rows[i], c.answer);
        assert_string_equal(calc_confidence(&c), "0.1");
        calc_result_done(&c);
    }
}

TEST(confidence_tells_a_formula_from_words)
{
    static const struct {
        const char *text, *confidence, *expression;
    } rows[] = {
        { "2 + 2", "0.95", "2 + 2" },
        { "What is 2 + 2?", "0.95", "2 + 2" },
        { "subtract 3 from 10", "0.85", "10 - 3" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct calc_result c;
        struct err err = { 0 };

        assert_int_equal(calc_solve(rows[i].text, strlen(rows[i].text), &words, &c, &err), 0);
        assert_string_equal(calc_confidence(&c), rows[i].confidence);
        assert_string_equal(c.expression, rows[i].expression);
        calc_result_done(&c);
    }
}

TEST(an_understood_problem_without_a_result_is_an_error)
{
    static const struct calc_row rows[] = {
        { "divide 1 by 0", NULL, ERR_CALC_DIVISION },
        { "What is 1/0?", NULL, ERR_CALC_DIVISION },
        { "square root of -4", NULL, ERR_CALC_UNDEFINED },
        { "9 to the power of 9999999", NULL, ERR_CALC_LIMIT },
    };

    check_rows(rows, ARRAY_LEN(rows), &words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(problems_in_words_have_one_reading),
        RUN(text_that_is_not_understood_has_no_answer),
        RUN(confidence_tells_a_formula_from_words),
        RUN(an_understood_problem_without_a_result_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
