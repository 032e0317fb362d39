#include "tests/unit/test.h"

#include "host/isolate/mountinfo.h"

TEST(fields_are_found_after_any_number_of_optional_ones)
{
    const char *text = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
                       "40 31 0:30 /a /b rw shared:1 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";
    struct mountinfo m;

    assert_true(mountinfo_next(&text, &m));
    assert_string_equal(m.root, "/");
    assert_string_equal(m.point, "/sys/fs/cgroup/cpu");
    assert_string_equal(m.type, "cgroup");
    assert_string_equal(m.super, "rw,cpu");
    assert_true(mountinfo_next(&text, &m));
    assert_string_equal(m.root, "/a");
    assert_string_equal(m.type, "cgroup2");
    assert_false(mountinfo_next(&text, &m));
}

TEST(octal_escapes_are_decoded)
{
    const char *text = "1 2 0:1 / /a\\040b\\134c rw - tmpfs tmpfs rw";
    struct mountinfo m;

    assert_true(mountinfo_next(&text, &m));
    assert_string_equal(m.point, "/a b\\c");
}

TEST(malformed_lines_are_skipped)
{
    char text[2048] = "nonsense\n\n1 2 3\n1 2 0:1 / /no-dash rw shared:1\n1 2 0:1 / /";
    struct mountinfo m;
    const char *p = text;

    memset(text + strlen(text), 'x', 600); /* a mount point longer than the field */
    strcat(text, " rw - tmpfs tmpfs rw\n1 2 0:1 / /good rw - tmpfs tmpfs rw\n");
    assert_true(mountinfo_next(&p, &m));
    assert_string_equal(m.point, "/good");
    assert_false(mountinfo_next(&p, &m));
}

TEST(only_whole_options_match)
{
    assert_true(mountinfo_has_option("rw,cpu,cpuacct", "cpu"));
    assert_true(mountinfo_has_option("rw,cpuacct,cpu", "cpu"));
    assert_false(mountinfo_has_option("rw,cpuacct", "cpu"));
    assert_false(mountinfo_has_option("rw,name=cpu", "cpu"));
    assert_false(mountinfo_has_option("", "cpu"));
    assert_false(mountinfo_has_option("rw,", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(fields_are_found_after_any_number_of_optional_ones),
        RUN(octal_escapes_are_decoded),
        RUN(malformed_lines_are_skipped),
        RUN(only_whole_options_match),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
