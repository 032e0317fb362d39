#include "tests/unit/test.h"

#include "inside/runtime/env.h"

TEST(the_last_value_of_a_name_wins_and_the_order_is_kept)
{
    const char *base[] = { "A=1", "B=2", "AB=3", NULL }, *over[] = { "B=x", "C=", "C=y=z", NULL };
    auto_free const char **env = env_merge(base, over);

    assert_string_equal(env[0], "A=1");
    assert_string_equal(env[1], "B=x");
    assert_string_equal(env[2], "AB=3");
    assert_string_equal(env[3], "C=y=z");
    assert_null(env[4]);
}

TEST(a_value_is_found_by_its_whole_name)
{
    const char *env[] = { "PATHS=no", "PATH=/bin=x", NULL };

    assert_string_equal(env_get(env, "PATH"), "/bin=x");
    assert_null(env_get(env, "PAT"));
    assert_null(env_get(NULL, "PATH"));
}

TEST(entries_without_name_or_value_are_refused)
{
    static const char *const bad[] = { "", "=", "=x", "NAME" };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *env[] = { "OK=1", bad[i], NULL };

        assert_int_equal(env_check(env, &err), -1);
        assert_int_equal(err.id, ERR_INVALID);
    }
    const char *good[] = { "A=", "line\nbreak=x", NULL };
    assert_int_equal(env_check(good, &err), 0);
    assert_int_equal(env_check(NULL, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_last_value_of_a_name_wins_and_the_order_is_kept),
        RUN(a_value_is_found_by_its_whole_name),
        RUN(entries_without_name_or_value_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
