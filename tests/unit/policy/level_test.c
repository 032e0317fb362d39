#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/level.h"
#include "core/wire/rt.h"

/* The rights at a path as Landlock computes them: the union over all rules on the way to it. */
static unsigned granted(const char *path)
{
    size_t n;
    const struct file_rule *r = level_file_rules(LEVEL_STANDARD, &n);
    unsigned bits = 0;

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(r[i].path);

        if (len == 1 || (str_starts(path, r[i].path) && (path[len] == '/' || path[len] == '\0')))
            bits |= 1u << r[i].access;
    }
    return bits;
}

#define LIST (1u << FILE_LIST)

TEST(level_names_are_parsed_and_others_refused)
{
    enum level l = LEVEL_CUSTOM;

    for (unsigned i = LEVEL_STANDARD; i <= LEVEL_CUSTOM; i++) {
        assert_true(level_parse(level_name((enum level)i), &l));
        assert_int_equal(l, i);
    }
    assert_false(level_parse("", &l));
    assert_false(level_parse("Standard", &l));
    assert_int_equal(l, LEVEL_CUSTOM);
}

TEST(no_rule_opens_files_in_the_root_or_in_the_runtime_directory)
{
    assert_int_equal(granted("/"), LIST);
    assert_int_equal(granted("/.cove/runtime"), LIST);
    assert_int_equal(granted("/surprise"), LIST);
    assert_int_equal(granted("/sys/kernel"), LIST);
    assert_int_equal(granted("/usrlocal"), LIST);
}

TEST(only_the_workspace_and_temporary_directories_are_writable)
{
    static const char *const writable[] = { "/workspace", "/workspace/a/b", "/tmp", "/tmp/x", "/dev/shm/y" };
    static const char *const not_writable[] = { "/usr/bin/env", "/bin/sh",   "/etc/passwd", "/opt/x",   "/skills/s",
                                                "/mnt/data",    "/proc/sys", "/lib/x",      "/dev/null" };

    for (size_t i = 0; i < ARRAY_LEN(writable); i++)
        assert_true(granted(writable[i]) & 1u << FILE_READ_WRITE);
    for (size_t i = 0; i < ARRAY_LEN(not_writable); i++)
        assert_false(granted(not_writable[i]) & 1u << FILE_READ_WRITE);
    assert_true(granted("/dev/pts/0") & 1u << FILE_DEVICE);
    assert_int_equal(granted("/proc/self/comm"), LIST | 1u << FILE_READ);
}

TEST(file_rules_fit_the_wire_and_use_its_numbers)
{
    size_t n;
    const struct file_rule *r = level_file_rules(LEVEL_STANDARD, &n);

    assert_true(n <= RT_RULES_MAX);
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].path[0] == '/' && strlen(r[i].path) <= RT_RULE_PATH_MAX);
        assert_true(r[i].access >= 1 && r[i].access <= RT_ACCESS_LIST);
    }
    assert_int_equal(FILE_READ, RT_ACCESS_READ);
    assert_int_equal(FILE_READ_EXEC, RT_ACCESS_READ_EXEC);
    assert_int_equal(FILE_READ_WRITE, RT_ACCESS_READ_WRITE);
    assert_int_equal(FILE_DEVICE, RT_ACCESS_DEVICE);
    assert_int_equal(FILE_LIST, RT_ACCESS_LIST);
}

TEST(the_environment_has_each_variable_once_and_none_of_the_host)
{
    const char *const *env = level_environment(LEVEL_STANDARD, NETWORK_NONE);
    bool path = false, home = false;

    for (size_t i = 0; env[i]; i++) {
        size_t len = strcspn(env[i], "=");

        assert_true(len > 0 && env[i][len] == '=');
        for (size_t k = 0; k < i; k++)
            assert_true(strncmp(env[i], env[k], len + 1) != 0);
        path |= str_eq(env[i], "PATH=/usr/local/bin:/usr/bin:/bin");
        home |= str_eq(env[i], "HOME=/workspace");
    }
    assert_true(path && home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(level_names_are_parsed_and_others_refused),
        RUN(no_rule_opens_files_in_the_root_or_in_the_runtime_directory),
        RUN(only_the_workspace_and_temporary_directories_are_writable),
        RUN(file_rules_fit_the_wire_and_use_its_numbers),
        RUN(the_environment_has_each_variable_once_and_none_of_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
