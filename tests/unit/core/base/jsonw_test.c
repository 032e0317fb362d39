#include "tests/unit/test.h"

#include "core/base/jsonw.h"

static void check(const char *in, size_t n, const char *want)
{
    auto_buf b = { 0 };
    struct jsonw w;

    jsonw_init(&w, &b, 0);
    jsonw_strn(&w, in, n);
    assert_string_equal(b.data, want);
}

TEST(strings_are_escaped_and_bad_utf8_is_replaced)
{
    check("a\"b\\c\n\x01", 7, "\"a\\\"b\\\\c\\n\\u0001\"");
    check("\0x", 2, "\"\\u0000x\"");
    check("\xc3\xa9", 2, "\"\xc3\xa9\"");
    check("\x7f", 1, "\"\\u007f\"");
    check("\xe2\x80\xa8\xe2\x80\xa9", 6, "\"\\u2028\\u2029\""); /* line separators for some readers */
    check("\xc2\x9b", 2, "\"\\u009b\"");                        /* a C1 control character */
    check("\xff", 1, "\"\xef\xbf\xbd\"");
    check("\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong NUL */
    check("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* surrogate */
    check("\xe2\x82", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* truncated */
    check("\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check("", 0, "\"\"");
    check("\n\r\t\b\f/", 6, "\"\\n\\r\\t\\b\\f/\"");
}

TEST(long_strings_are_complete_wherever_a_character_is_escaped)
{
    char in[1000];

    for (size_t at = 0; at < sizeof(in); at++) {
        auto_buf b = { 0 };
        struct jsonw w;

        memset(in, 'x', sizeof(in));
        in[at] = at % 3 == 0 ? '"' : at % 3 == 1 ? '\x01' : '\n';
        jsonw_init(&w, &b, 0);
        jsonw_strn(&w, in, sizeof(in));
        assert_int_equal(b.len, sizeof(in) + 2 + (at % 3 == 1 ? 5 : 1));
        assert_int_equal(strspn(b.data + 1, "x"), at);
        assert_int_equal(b.data[at + 1], '\\');
        size_t rest = min_u64(sizeof(in) - at - 1, 3);
        assert_string_equal(b.data + b.len - rest - 1, &"xxx\""[3 - rest]);
    }
}

TEST(numbers_at_both_ends_of_their_range_are_written_exactly)
{
    auto_buf b = { 0 };
    struct jsonw w;

    jsonw_init(&w, &b, 0);
    jsonw_array(&w);
    jsonw_u64(&w, 0);
    jsonw_u64(&w, 10);
    jsonw_u64(&w, UINT64_MAX);
    jsonw_i64(&w, INT64_MIN);
    jsonw_end_array(&w);
    assert_string_equal(b.data, "[0,10,18446744073709551615,-9223372036854775808]");
}

TEST(commas_and_nesting_are_written_correctly)
{
    auto_buf b = { 0 };
    struct jsonw w;

    jsonw_init(&w, &b, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "a", "x");
    jsonw_key(&w, "b");
    jsonw_array(&w);
    jsonw_u64(&w, 1);
    jsonw_i64(&w, -2);
    jsonw_null(&w);
    jsonw_object(&w);
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "c", true);
    jsonw_key(&w, "d");
    jsonw_raw(&w, "{\"e\":[]}");
    jsonw_ku64(&w, "f", 3);
    jsonw_end_object(&w);
    assert_string_equal(b.data, "{\"a\":\"x\",\"b\":[1,-2,null,{}],\"c\":true,\"d\":{\"e\":[]},\"f\":3}");
}

TEST(indent_writes_one_member_per_line)
{
    auto_buf b = { 0 };
    struct jsonw w;

    jsonw_init(&w, &b, 2);
    jsonw_object(&w);
    jsonw_ku64(&w, "n", 1);
    jsonw_key(&w, "e");
    jsonw_array(&w);
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    assert_string_equal(b.data, "{\n  \"n\": 1,\n  \"e\": []\n}");
}

TEST(members_with_their_keys)
{
    auto_buf b = { 0 };
    struct jsonw w;

    jsonw_init(&w, &b, 0);
    jsonw_object(&w);
    jsonw_kstr_if(&w, "absent", NULL);
    jsonw_kstr_if(&w, "empty", "");
    jsonw_kstr_if(&w, "a", "x");
    jsonw_ki64_or_null(&w, "b", true, -1);
    jsonw_ki64_or_null(&w, "c", false, 2);
    jsonw_kraw(&w, "d", "{}");
    jsonw_karray(&w, "e");
    jsonw_end_array(&w);
    jsonw_kobject(&w, "f");
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    assert_string_equal(b.data, "{\"a\":\"x\",\"b\":-1,\"c\":null,\"d\":{},\"e\":[],\"f\":{}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(strings_are_escaped_and_bad_utf8_is_replaced),
        RUN(long_strings_are_complete_wherever_a_character_is_escaped),
        RUN(numbers_at_both_ends_of_their_range_are_written_exactly),
        RUN(commas_and_nesting_are_written_correctly),
        RUN(indent_writes_one_member_per_line),
        RUN(members_with_their_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
