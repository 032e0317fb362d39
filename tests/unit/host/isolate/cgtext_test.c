#include "tests/unit/test.h"

#include "host/isolate/cgtext.h"

TEST(values_are_found_by_whole_key_on_any_line)
{
    const char *text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";

    assert_int_equal(cgtext_value(text, "oom_kill"), 3);
    assert_int_equal(cgtext_value(text, "under_oom"), 0);
    assert_true(cgtext_value(text, "oom") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("", "oom") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("max", "max") == CGTEXT_UNKNOWN);
}

TEST(what_is_no_number_is_unknown_and_never_zero)
{
    assert_int_equal(cgtext_number("12\n"), 12);
    assert_true(cgtext_number("max\n") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("12x") == CGTEXT_UNKNOWN);
    assert_true(cgtext_number("99999999999999999999999") == CGTEXT_UNKNOWN);
    assert_true(cgtext_value("a -1\n", "a") == CGTEXT_UNKNOWN);
}

TEST(words_match_whole)
{
    assert_true(cgtext_has_word("cpuset cpu io memory\n", "cpu"));
    assert_true(cgtext_has_word("memory\n", "memory"));
    assert_false(cgtext_has_word("cpuset io\n", "cpu"));
    assert_false(cgtext_has_word("xcpu\n", "cpu"));
    assert_false(cgtext_has_word("", "cpu"));
}

TEST(a_list_of_processes_that_was_cut_off_names_nobody_else)
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
        RUN(values_are_found_by_whole_key_on_any_line),
        RUN(what_is_no_number_is_unknown_and_never_zero),
        RUN(words_match_whole),
        RUN(a_list_of_processes_that_was_cut_off_names_nobody_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
