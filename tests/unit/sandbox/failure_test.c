#include "tests/unit/test.h"

#include "sandbox/failure.h"

#include <string.h>

TEST(the_end_of_the_output_is_kept_within_its_bound)
{
    auto_free char *block = malloc(3 * HINT_OUTPUT_MAX);
    struct failure f = { 0 };

    assert_non_null(block);
    memset(block, 'a', 3 * HINT_OUTPUT_MAX);
    for (int i = 0; i < 100; i++) {
        failure_add_output(&f, block, (size_t)i * 37 % (3 * HINT_OUTPUT_MAX));
        failure_add_output(&f, "the end", 7);
        assert_true(f.output.len <= 2 * HINT_OUTPUT_MAX);
        assert_memory_equal(f.output.data + f.output.len - 7, "the end", 7);
    }
    assert_true(f.output.len >= HINT_OUTPUT_MAX);
    failure_done(&f);
}

TEST(code_of_a_command_line_is_code_of_its_language)
{
    const char *python[] = { "/usr/bin/python3", "-c", "import x", NULL };
    const char *plain[] = { "curl", "-s", "https://example.com", NULL };
    struct hint_facts facts = { 0 };
    struct failure f = { 0 };

    failure_set_argv(&f, python);
    failure_fill_facts(&f, &facts);
    assert_string_equal(facts.language, "python");
    assert_string_equal(facts.code, "import x");
    failure_set_argv(&f, plain);
    failure_fill_facts(&f, &facts);
    assert_null(facts.language);
    assert_string_equal(facts.code, "curl -s https://example.com");
    failure_done(&f);
}

TEST(long_texts_are_cut)
{
    auto_free char *text = malloc(64 * KIB);
    struct failure f = { 0 };

    assert_non_null(text);
    memset(text, 'x', 64 * KIB - 1);
    text[64 * KIB - 1] = '\0';
    text[64 * KIB - 2] = 'e';
    failure_set_code(&f, "python", text);
    failure_set_exception(&f, "Error", text, text);
    assert_int_equal(strlen(f.code), FAILURE_CODE_MAX);
    assert_int_equal(strlen(f.exception_value), FAILURE_TEXT_MAX);
    assert_int_equal(f.traceback[FAILURE_TEXT_MAX - 1], 'e');
    failure_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_end_of_the_output_is_kept_within_its_bound),
        RUN(code_of_a_command_line_is_code_of_its_language),
        RUN(long_texts_are_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
