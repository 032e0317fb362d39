#include "tests/unit/test.h"

#include "server/auth/auth.h"
#include "core/base/str.h"

TEST(every_set_of_scopes_is_read_back_as_it_was_written)
{
    struct err err = { 0 };

    for (uint32_t set = 0; set < SCOPE_ALL; set++) {
        auto_buf text = { 0 };
        uint32_t again = 0;

        if (scope_expand(set) != set)
            continue; /* a parsed list always includes its implied scopes */
        scope_write_list(set, &text);
        assert_int_equal(scope_parse_list(text.data ? text.data : "", &again, &err), 0);
        assert_int_equal(again, set);
    }
}

TEST(admin_implies_every_scope_and_is_written_as_one_word)
{
    struct err err = { 0 };
    auto_buf text = { 0 };
    uint32_t set = 0;

    assert_int_equal(scope_parse_list("admin", &set, &err), 0);
    assert_int_equal(set, SCOPE_ALL);
    scope_write_list(set, &text);
    assert_string_equal(text.data, "admin");
}

TEST(an_unknown_scope_is_refused_with_the_nearest_name)
{
    struct err err = { 0 };
    uint32_t set = 7;

    assert_int_equal(scope_parse_list("files sandbox:read", &set, &err), -1);
    assert_non_null(strstr(err.msg, "sandboxes:read"));
    assert_int_equal(set, 7);
    assert_int_equal(scope_parse_list("files ", &set, &err), -1);
    assert_int_equal(scope_parse_list("files  keys", &set, &err), -1);
    assert_int_equal(scope_parse_list(" files", &set, &err), -1);
    assert_int_equal(scope_parse_list("Files", &set, &err), -1);
    assert_int_equal(scope_parse_list("*", &set, &err), -1);
    assert_int_equal(scope_parse_list("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &set, &err),
                     -1);
}

TEST(the_error_names_the_missing_scope)
{
    struct principal p = { .scopes = SCOPE_BIT(FILES) };
    struct err err = { 0 };

    assert_int_equal(principal_require(&p, SCOPE_BIT(FILES), &err), 0);
    assert_int_equal(principal_require(&p, SCOPE_BIT(FILES) | SCOPE_BIT(EXECUTIONS), &err), -1);
    assert_int_equal(err.id, ERR_DENIED);
    assert_non_null(strstr(err.msg, "executions"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_set_of_scopes_is_read_back_as_it_was_written),
        RUN(admin_implies_every_scope_and_is_written_as_one_word),
        RUN(an_unknown_scope_is_refused_with_the_nearest_name),
        RUN(the_error_names_the_missing_scope),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
