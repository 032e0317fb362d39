#include "tests/unit/test.h"

#include "service/execute/run_path.h"

TEST(paths_stay_below_workspace_and_tmp)
{
    static const struct {
        const char *path, *full; /* NULL: refused */
    } rows[] = {
        { "a", "/workspace/a" },
        { "a/b.txt", "/workspace/a/b.txt" },
        { ".env", "/workspace/.env" },
        { "..a", "/workspace/..a" },
        { "/workspace/a", "/workspace/a" },
        { "/tmp/x", "/tmp/x" },
        { "out/*.png", "/workspace/out/*.png" },
        { "", NULL },
        { ".", NULL },
        { "..", NULL },
        { "../a", NULL },
        { "a/../b", NULL },
        { "a/./b", NULL },
        { "a//b", NULL },
        { "a/", NULL },
        { "/", NULL },
        { "/workspace", NULL },
        { "/workspace/", NULL },
        { "/workspacex/a", NULL },
        { "/tmp/../etc/passwd", NULL },
        { "/etc/passwd", NULL },
        { "/proc/self/mem", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };
        char *full = NULL;
        int rc = run_path_resolve(rows[i].path, "outputs[3]", &full, &err);

        if ((rc == 0) != (rows[i].full != NULL) || (rc == 0 && strcmp(full, rows[i].full) != 0))
            fail_msg("'%s' became '%s'", rows[i].path, rc == 0 ? full : err.msg);
        if (rc < 0 && strncmp(err.msg, "outputs[3]: ", 12) != 0)
            fail_msg("'%s' is refused without the name of its field: %s", rows[i].path, err.msg);
        free(full);
    }
}

TEST(a_path_that_is_too_long_is_refused_and_not_cut)
{
    char long_path[3000], part[300];
    struct err err = { 0 };
    char *full = NULL;

    memset(long_path, 'a', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(run_path_resolve(long_path, "x", &full, &err), -1);
    memset(part, 'a', sizeof(part) - 1);
    part[sizeof(part) - 1] = '\0';
    assert_int_equal(run_path_resolve(part, "x", &full, &err), -1);
}

TEST(a_path_is_split_before_its_first_pattern)
{
    static const struct {
        const char *path, *dir, *rest;
    } rows[] = {
        { "/workspace/a*.png", "/workspace", "a*.png" },
        { "/workspace/out/[ab]?/c", "/workspace/out", "[ab]?/c" },
        { "/workspace/*/x", "/workspace", "*/x" },
        { "/workspace/plain", NULL, NULL },
        { "/tmp/a/b", NULL, NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *dir = NULL;
        const char *rest = NULL;
        bool found = run_path_split(rows[i].path, &dir, &rest);

        assert_int_equal(found, rows[i].dir != NULL);
        if (found) {
            assert_string_equal(dir, rows[i].dir);
            assert_string_equal(rest, rows[i].rest);
        }
        free(dir);
    }
}

TEST(a_pattern_matches_one_part_and_no_hidden_names)
{
    static const struct {
        const char *rest, *name;
        bool matches;
        const char *left;
    } rows[] = {
        { "*.txt", "a.txt", true, "" }, { "*.txt", "a.png", false, NULL },       { "*", ".hidden", false, NULL },
        { ".*", ".hidden", true, "" },  { "a?/b/*", "ab", true, "b/*" },         { "[ab]/x", "b", true, "x" },
        { "[!ab]", "a", false, NULL },  { "plain/rest", "plain", true, "rest" }, { "a\\*", "a*", false, NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *left = NULL;

        if (run_path_matches(rows[i].rest, rows[i].name, &left) != rows[i].matches)
            fail_msg("'%s' and '%s'", rows[i].rest, rows[i].name);
        if (rows[i].matches)
            assert_string_equal(left, rows[i].left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_stay_below_workspace_and_tmp),
        cmocka_unit_test(a_path_that_is_too_long_is_refused_and_not_cut),
        cmocka_unit_test(a_path_is_split_before_its_first_pattern),
        cmocka_unit_test(a_pattern_matches_one_part_and_no_hidden_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
