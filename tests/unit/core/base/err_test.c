#include "tests/unit/test.h"

#include "core/base/err.h"

#include <errno.h>

TEST(wrap_puts_the_context_in_front_and_keeps_the_id)
{
    struct err err = { 0 };

    errno = EACCES;
    assert_int_equal(err_sys(&err, ERR_SYS, "memory.max"), -1);
    assert_int_equal(err_wrap(&err, "sandbox %s", "b7"), -1);
    assert_string_equal(err.msg, "sandbox b7: memory.max: Permission denied");
    assert_int_equal(err.id, ERR_SYS);
    assert_int_equal(err.sys, EACCES);
}

TEST(a_message_longer_than_the_buffer_is_truncated)
{
    struct err err = { 0 };
    char big[400];

    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    err_set(&err, ERR_INVALID, "%s", big);
    err_wrap(&err, "front");
    assert_int_equal(strncmp(err.msg, "front: xxx", 10), 0);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

TEST(every_row_has_code_cause_and_fix_and_codes_are_unique)
{
    for (int i = 1; i < ERR_COUNT; i++) {
        const struct err_info *a = err_info((enum err_id)i);

        assert_true(a->code[0] && a->cause[0] && a->fix[0]);
        assert_true(a->http >= 400 && a->exit > 0);
        for (int j = 1; j < i; j++)
            assert_string_not_equal(a->code, err_info((enum err_id)j)->code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(wrap_puts_the_context_in_front_and_keeps_the_id),
        RUN(a_message_longer_than_the_buffer_is_truncated),
        RUN(every_row_has_code_cause_and_fix_and_codes_are_unique),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
