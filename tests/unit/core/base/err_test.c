#include "tests/unit/test.h"

#include "core/base/err_print.h"
#include "core/base/mem.h"

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

static char *printed(enum err_id id, const char *msg)
{
    struct err err = { 0 };
    struct buf out = { 0 };

    err_set(&err, id, "%s", msg);
    err_print(&out, &err);
    return out.data;
}

TEST(cause_and_fix_are_printed_only_if_they_are_specific)
{
    auto_free char *generic = printed(ERR_MISSING, "there is no key 'a'");
    auto_free char *specific = printed(ERR_ADDRESS_USED, "127.0.0.1:1\n");

    assert_string_equal(generic, "cove: there is no key 'a' [not_found]\n");
    assert_string_equal(specific, "cove: 127.0.0.1:1? [address_in_use]\n"
                                  "  cause: Another program already listens on the server's address.\n"
                                  "  fix:   Stop it, or choose another address with --listen.\n");
}

TEST(a_fix_of_the_caller_is_printed_instead_of_the_fix_of_the_row)
{
    auto_buf text = { 0 }, json = { 0 };
    struct jsonw w;

    err_print_hints(&text, ERR_POLICY_FEATURE, "Write 'network: none'.");
    assert_string_equal(text.data, "  fix:   Write 'network: none'.\n");
    jsonw_init(&w, &json, 0);
    jsonw_object(&w);
    err_put_hints(&w, ERR_SANDBOX_PAUSED, "");
    err_put_hints(&w, ERR_LAST_ADMIN, "Wait.");
    jsonw_end_object(&w);
    assert_string_equal(json.data,
                        "{\"cause\":\"This change would leave the tenant without an admin.\",\"fix\":\"Wait.\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(wrap_puts_the_context_in_front_and_keeps_the_id),
        RUN(a_message_longer_than_the_buffer_is_truncated),
        RUN(every_row_has_code_cause_and_fix_and_codes_are_unique),
        RUN(cause_and_fix_are_printed_only_if_they_are_specific),
        RUN(a_fix_of_the_caller_is_printed_instead_of_the_fix_of_the_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
