#include "tests/unit/test.h"

#include "host/jailer/sweep.h"

#include <string.h>

TEST(a_cgroup_parent_must_start_with_cove_and_be_one_name)
{
    static const char *const good[] = { "cove", "cove-1", "cove-test-12", "covetest",
                                        "cove-0123456789-0123456789-01234" };
    static const char *const bad[] = { "",
                                       "cov",
                                       "other",
                                       "Cove",
                                       "cove/..",
                                       "cove/a",
                                       "../cove",
                                       "cove.slice",
                                       "cove_1",
                                       "cove 1",
                                       "cove\n",
                                       "cove\xc3\xa9",
                                       "cove-0123456789-0123456789-012345" };

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct err err = { 0 };

        if (sweep_check_parent(good[i], &err) < 0)
            fail_msg("%s: %s", good[i], err.msg);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = { 0 };

        if (sweep_check_parent(bad[i], &err) == 0)
            fail_msg("'%s' is accepted", bad[i]);
        assert_int_equal(err.id, ERR_INVALID);
        assert_non_null(strstr(err.msg, "COVE_CGROUP_PARENT"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_cgroup_parent_must_start_with_cove_and_be_one_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
