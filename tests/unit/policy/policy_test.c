#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/policy.h"

TEST(built_in_policies_are_complete_and_have_a_summary)
{
    const char *const *names = policy_builtins();
    struct policy p;
    size_t n = 0;

    for (; names[n]; n++) {
        struct err err = { 0 };

        assert_true(policy_builtin(names[n], &p));
        assert_string_equal(p.name, names[n]);
        assert_string_equal(p.base, names[n]);
        assert_int_equal(limits_check(&p.limits, &err), 0);
        assert_true(strlen(policy_builtin_summary(names[n])) > 0);
        policy_done(&p);
    }
    assert_int_equal(n, 3);
    assert_false(policy_builtin("custom", &p));
    assert_false(policy_builtin("", &p));
}

TEST(only_debug_has_a_grant_and_its_level_is_not_standard)
{
    struct policy p;

    assert_true(policy_builtin("standard", &p));
    assert_int_equal(p.grants, 0);
    assert_int_equal(p.level, LEVEL_STANDARD);
    assert_true(policy_builtin("debug", &p));
    assert_int_equal(p.grants, GRANT_BIT(DEBUG));
    assert_int_equal(p.level, LEVEL_CUSTOM);
    assert_true(policy_builtin("high", &p));
    assert_int_equal(p.level, LEVEL_HIGH);
}

TEST(larger_unlimited_or_other_processors_exceed_a_maximum)
{
    static const struct {
        enum limit limit;
        uint64_t value, max;
        bool beyond;
    } cases[] = {
        { LIMIT_MEMORY, 100, 100, false }, { LIMIT_MEMORY, 101, 100, true }, { LIMIT_CPU_TIME, 0, 100, true },
        { LIMIT_CPU_TIME, 100, 0, false }, { LIMIT_CPU_TIME, 0, 0, false },  { LIMIT_SWAP, 0, 0, false },
        { LIMIT_SWAP, 1, 0, true },        { LIMIT_CPUSET, 1, 3, false },    { LIMIT_CPUSET, 4, 3, true },
        { LIMIT_CPUSET, 0, 3, true },      { LIMIT_CPUSET, 5, 0, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (operator_limits_exceeded(cases[i].limit, cases[i].value, cases[i].max) != cases[i].beyond)
            fail_msg("case %zu", i);
}

static struct operator_limits tight(void)
{
    static char file[] = "floor.yaml";

    return (struct operator_limits){ .file = file,
                                     .has_max = LIMIT_BIT(MEMORY) | LIMIT_BIT(CPU_TIME),
                                     .max = { [LIMIT_MEMORY] = 64 * MIB, [LIMIT_CPU_TIME] = 1000 },
                                     .forbidden_grants = GRANT_BIT(DEBUG),
                                     .allowed_workspaces = 1u << POLICY_MEMORY };
}

TEST(a_policy_beyond_the_operator_limits_is_refused_naming_the_field)
{
    struct operator_limits f = tight();
    struct policy p;
    struct err err = { 0 };

    assert_true(policy_builtin("standard", &p));
    assert_int_equal(operator_limits_check(&f, &p, &err), 0); /* the user did not choose the 512M */
    p.limit_line[LIMIT_MEMORY] = 4;
    assert_int_equal(operator_limits_check(&f, &p, &err), -1);
    assert_int_equal(err.id, ERR_POLICY_OPERATOR_LIMIT);
    assert_non_null(strstr(err.msg, "limits.memoryBytes: 512M is more than the 64M"));
    p.limits.v[LIMIT_MEMORY] = 32 * MIB;
    assert_int_equal(operator_limits_check(&f, &p, &err), 0);
    p.workspace = POLICY_READ_WRITE;
    assert_int_equal(operator_limits_check(&f, &p, &err), -1);
    assert_non_null(strstr(err.msg, "filesystem.workspace"));
    p.workspace = POLICY_MEMORY;
    f.forbidden_drivers = DRIVER_BIT(DRIVER_NATIVE);
    assert_int_equal(operator_limits_check(&f, &p, &err), 0); /* the user did not choose native */
    p.driver_line = 5;
    assert_int_equal(operator_limits_check(&f, &p, &err), -1);
    assert_int_equal(err.id, ERR_DRIVER_REFUSED);
    assert_string_equal(err.msg, "driver: floor.yaml does not allow driver native; it allows bwrap");
    assert_true(policy_builtin("debug", &p));
    assert_int_equal(operator_limits_check(&f, &p, &err), -1);
    assert_non_null(strstr(err.msg, "syscalls.grant"));
    assert_true(policy_builtin("standard", &p));
    f.level = LEVEL_HIGH;
    assert_int_equal(operator_limits_check(&f, &p, &err), -1);
    assert_non_null(strstr(err.msg, "level"));
}

TEST(without_operator_limits_nothing_is_refused)
{
    struct operator_limits f = { 0 };
    struct policy p;
    struct err err = { 0 };

    assert_true(policy_builtin("debug", &p));
    assert_int_equal(operator_limits_check(&f, &p, &err), 0);
}

TEST(limits_that_were_not_chosen_are_lowered_to_the_operators)
{
    struct operator_limits f = tight();
    struct limits l;

    limits_default(&l);
    assert_int_equal(operator_limits_lower(&f, &l, LIMIT_BIT(MEMORY)), LIMIT_BIT(CPU_TIME));
    assert_int_equal(l.v[LIMIT_MEMORY], 512 * MIB);
    assert_int_equal(l.v[LIMIT_CPU_TIME], 1000);
    assert_int_equal(operator_limits_lower(&f, &l, 0), LIMIT_BIT(MEMORY));
    assert_int_equal(l.v[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(operator_limits_lower(&f, &l, 0), 0);
}

TEST(names_and_paths_are_validated)
{
    assert_true(policy_env_name_valid("A_1", 3));
    assert_false(policy_env_name_valid("1A", 2));
    assert_false(policy_env_name_valid("A-B", 3));
    assert_false(policy_env_name_valid("", 0));
    assert_true(policy_path_is_plain("/mnt/.hidden/a..b"));
    assert_false(policy_path_is_plain("mnt"));
    assert_false(policy_path_is_plain("/mnt/../etc"));
    assert_false(policy_path_is_plain("/mnt/."));
    assert_false(policy_path_is_plain("/mnt//a"));
    assert_false(policy_path_is_plain("/mnt/\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(built_in_policies_are_complete_and_have_a_summary),
        RUN(only_debug_has_a_grant_and_its_level_is_not_standard),
        RUN(larger_unlimited_or_other_processors_exceed_a_maximum),
        RUN(a_policy_beyond_the_operator_limits_is_refused_naming_the_field),
        RUN(without_operator_limits_nothing_is_refused),
        RUN(limits_that_were_not_chosen_are_lowered_to_the_operators),
        RUN(names_and_paths_are_validated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
