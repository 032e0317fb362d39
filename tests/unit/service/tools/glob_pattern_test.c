#include "tests/unit/test.h"

#include "service/tools/glob_pattern.h"

TEST(patterns_match_paths)
{
    static const struct {
        const char *pattern, *path;
        bool matches;
    } rows[] = {
        { "*.c", "a.c", true },
        { "*.c", "src/deep/a.c", true },
        { "*.c", "a.c/b", false },
        { "./*.c", "a.c", true },
        { "./*.c", "src/a.c", false },
        { "src/*.c", "src/a.c", true },
        { "src/*.c", "src/deep/a.c", false },
        { "src/*.c", "x/src/a.c", false },
        { "src/**/*.c", "src/a.c", true },
        { "src/**/*.c", "src/x/y/a.c", true },
        { "src/**/*.c", "src/x/y/a.h", false },
        { "**/src/*", "src/a", true },
        { "**/src/*", "x/y/src/a", true },
        { "**", "a/b/c", true },
        { "a/**", "a/b/c", true },
        { "a/**", "b/c", false },
        { "a/**/**/b", "a/b", true },
        { "**/x/**/x", "x/x", true },
        { "**/x/**/x", "a/x/b/x/c/x", true },
        { "**/x/**/x", "a/x/b", false },
        { "*.{c,h}", "x/a.h", true },
        { "*.{c,h}", "a.hh", false },
        { "{a,b/{c,d}}/*", "b/d/e", true },
        { "{a,b/{c,d}}/*", "b/e", false },
        { "a{,b}", "a", true },
        { "a{,b}", "ab", true },
        { "a{b", "a{b", true },
        { "[ab]?c", "bxc", true },
        { "[!a]c", "ac", false },
        { ".*", ".env", true },
        { "*", ".env", true },
        { "a\\*", "a\\b", true },
        { "two\nlines", "x/two\nlines", true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_(glob_pattern) g = NULL;
        struct err err = { 0 };

        if (glob_pattern_new(rows[i].pattern, &g, &err) < 0)
            fail_msg("'%s': %s", rows[i].pattern, err.msg);
        if (glob_pattern_matches(g, rows[i].path) != rows[i].matches)
            fail_msg("'%s' and '%s'", rows[i].pattern, rows[i].path);
    }
}

TEST(patterns_that_leave_the_directory_or_are_too_large_are_refused)
{
    static const char *const rows[] = { "",   "/etc/*", "..", "a/../b", "{a,..}/b",
                                        "//", "{}/",    ".",  "./.",    "{a,b}{c,d}{e,f}{g,h}{i,j}" };
    char parts[200] = "", long_one[GLOB_PATTERN_MAX + 2];
    struct glob_pattern *g = NULL;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (glob_pattern_new(rows[i], &g, &err) == 0)
            fail_msg("'%s' was accepted", rows[i]);
    for (unsigned i = 0; i <= GLOB_PATTERN_PARTS_MAX; i++)
        strcat(parts, "a/");
    assert_int_equal(glob_pattern_new(parts, &g, &err), -1);
    memset(long_one, 'a', sizeof(long_one) - 1);
    long_one[sizeof(long_one) - 1] = '\0';
    assert_int_equal(glob_pattern_new(long_one, &g, &err), -1);
}

TEST(only_directories_that_can_hold_a_match_continue)
{
    static const struct {
        const char *pattern, *directory;
        bool continues;
    } rows[] = {
        { "src/*.c", "src", true },  { "src/*.c", "docs", false }, { "*.c", "any", true },
        { "a/b/c", "a", true },      { "./*.c", "any", false },    { "{a/x,b/y}", "b", true },
        { "{a/x,b/y}", "c", false }, { "src/**", "src", true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct glob_position at, next;
        auto_(glob_pattern) g = NULL;
        struct err err;

        assert_int_equal(glob_pattern_new(rows[i].pattern, &g, &err), 0);
        glob_pattern_begin(g, &at);
        (void)glob_pattern_step(g, &at, rows[i].directory, &next);
        if (glob_pattern_continues(g, &next) != rows[i].continues)
            fail_msg("'%s' in '%s'", rows[i].pattern, rows[i].directory);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_paths),
        cmocka_unit_test(patterns_that_leave_the_directory_or_are_too_large_are_refused),
        cmocka_unit_test(only_directories_that_can_hold_a_match_continue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
