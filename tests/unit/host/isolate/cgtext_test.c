#include "tests/unit/test.h"

#include "host/isolate/cgtext.h"

TEST(a_value_is_found_by_its_whole_key_on_any_line)
{
    const char *text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";

    assert_int_equal(cgtext_value(text, "oom_kill"), 3);
    assert_int_equal(cgtext_value(text, "under_oom"), 0);
    assert_true(cgtext_value(text, "oom") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("", "oom") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("max", "max") == CGTEXT_UNKNOWN);
}

TEST(text_that_is_not_a_number_is_unknown_instead_of_0)
{
    assert_int_equal(cgtext_number("12\n"), 12);
    assert_true(cgtext_number("max\n") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("12x") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("99999999999999999999999") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("a -1\n", "a") == CGTEXT_UNKNOWN);
}

TEST(only_whole_words_match)
{
    assert_true(cgtext_has_word("cpuset cpu io memory\n", "cpu"));
    assert_true(cgtext_has_word("memory\n", "memory"));
    assert_false(cgtext_has_word("cpuset io\n", "cpu"));
    assert_false(cgtext_has_word("xcpu\n", "cpu"));
    assert_false(cgtext_has_word("", "cpu"));
}

TEST(a_truncated_process_list_yields_no_wrong_pid)
{
    const char *text = "0\n1\n4711\n12\n345";
    pid_t pid;

    assert_true(cgtext_next_pid(&text, &pid));
    assert_int_equal(pid, 4711);
    assert_true(cgtext_next_pid(&text, &pid));
    assert_int_equal(pid, 12);
    assert_false(cgtext_next_pid(&text, &pid));
    text = "-5\n";
    assert_false(cgtext_next_pid(&text, &pid));
    text = "99999999999\n";
    assert_false(cgtext_next_pid(&text, &pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_value_is_found_by_its_whole_key_on_any_line),
        RUN(text_that_is_not_a_number_is_unknown_instead_of_0),
        RUN(only_whole_words_match),
        RUN(a_truncated_process_list_yields_no_wrong_pid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
