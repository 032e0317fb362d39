#include "tests/unit/test.h"

#include "inside/runtime/reported_names.h"

#include <stdio.h>

TEST(a_name_is_removed_once_and_only_for_its_directory)
{
    struct reported_names t = { 0 };
    char name[32];

    assert_false(reported_names_remove(&t, 1, "a"));
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        reported_names_add(&t, i % 7, name);
        reported_names_add(&t, i % 7, name);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        assert_false(reported_names_remove(&t, i % 7 + 7, name));
        assert_true(reported_names_remove(&t, i % 7, name));
        assert_false(reported_names_remove(&t, i % 7, name));
    }
    reported_names_add(&t, 1, "again");
    assert_true(reported_names_remove(&t, 1, "again"));
    reported_names_add(&t, 1, "cleared");
    reported_names_clear(&t);
    assert_false(reported_names_remove(&t, 1, "cleared"));
}

TEST(names_beyond_the_bound_are_not_stored)
{
    struct reported_names t = { 0 };
    char name[32];

    for (int i = 0; i < 300000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        reported_names_add(&t, 1, name);
    }
    assert_true(t.slots <= 4 * REPORTED_NAMES_MAX);
    assert_true(reported_names_remove(&t, 1, "n0"));
    assert_false(reported_names_remove(&t, 1, "n299999"));
    reported_names_clear(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_name_is_removed_once_and_only_for_its_directory),
        RUN(names_beyond_the_bound_are_not_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
