/* Untrusted bodies. The ids are those of the catalogue of attacks on a server's JSON. */
#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/doc/json_input.h"

#include <stdio.h>

static struct err last;

static bool accepts(const char *text, size_t len)
{
    json_t *j = NULL;

    last = (struct err){ 0 };
    if (json_input_parse(text, len, &j, &last) < 0) {
        assert_null(j);
        assert_int_equal(last.id, ERR_INVALID);
        return false;
    }
    json_decref(j);
    return true;
}
#define ACCEPTS(text) accepts(text, strlen(text))
#define REFUSES_BYTES(text) assert_false(accepts(text, sizeof(text) - 1))

TEST(js01_nesting_is_limited_and_uses_no_stack)
{
    size_t n = 100000;
    auto_free char *deep = mem_alloc(n + 1);

    memset(deep, '[', n);
    assert_false(accepts(deep, n));
    assert_non_null(strstr(last.msg, "deeper"));
    memset(deep, '{', n);
    assert_false(accepts(deep, n));
    assert_true(ACCEPTS("{\"a\":[[[[[[[[[[[[[[1]]]]]]]]]]]]]]}"));
    assert_false(ACCEPTS("{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}"));
    /* Brackets in a string are not nesting. */
    assert_true(ACCEPTS("{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[[\"}"));
}

static bool accepts_many(const char *text, size_t n)
{
    auto_buf b = { 0 };

    buf_adds(&b, "{\"a\":[1");
    for (size_t i = 0; i < n; i++)
        buf_addf(&b, ",%s", text);
    buf_adds(&b, "]}");
    return accepts(b.data, b.len);
}

TEST(values_that_cost_more_memory_than_text_are_limited)
{
    assert_true(accepts_many("1", 100000));
    assert_true(accepts_many("{}", 10000));
    assert_true(accepts_many("\",{[,{[,{[\"", 100000)); /* inside a string they do not count */
    assert_false(accepts_many("{}", 20000));
    assert_non_null(strstr(last.msg, "more than"));
    assert_false(accepts_many("1", 200000));
}

TEST(js02_a_duplicate_key_is_refused_in_any_spelling)
{
    assert_false(ACCEPTS("{\"owner\":1,\"owner\":2}"));
    assert_false(ACCEPTS("{\"owner\":1,\"\\u006fwner\":2}"));
    assert_false(ACCEPTS("{\"a\":{\"b\":1,\"b\":1}}"));
    /* Two different names; the second is later refused as unknown. */
    assert_true(ACCEPTS("{\"owner\":1,\"Owner\":2}"));
}

TEST(js03_invalid_text_is_refused)
{
    REFUSES_BYTES("{\"a\":\"\xff\"}");
    REFUSES_BYTES("{\"a\":\"\xc0\xaf\"}");     /* overlong */
    REFUSES_BYTES("{\"a\":\"\xed\xa0\x80\"}"); /* an unpaired surrogate */
    assert_false(ACCEPTS("{\"a\":\"\\ud800\"}"));
    assert_false(ACCEPTS("{\"a\":\"\\u0000\"}"));
    assert_false(ACCEPTS("{\"a\\u0000b\":1}"));
    REFUSES_BYTES("{\"a\":\"x\0y\"}");
    REFUSES_BYTES("\xef\xbb\xbf{}");
}

static int read_number(const char *text, uint64_t *ret)
{
    json_t *j = NULL;

    last = (struct err){ 0 };
    if (json_input_parse(text, strlen(text), &j, &last) < 0)
        return -1;
    int rc = json_input_u64(j, "", "n", 16, 1000, ret, NULL, &last);
    json_decref(j);
    return rc;
}

TEST(js04_js05_numbers_are_exact_or_refused_and_never_unlimited)
{
    static const char *const bad[] = { "1e400",
                                       "-0",
                                       "0",
                                       "15",
                                       "1001",
                                       "-20",
                                       "20.5",
                                       "1e3000",
                                       "\"20\"",
                                       "null",
                                       "true",
                                       "[20]",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "18446744073709551636",
                                       "NaN",
                                       "Infinity" };
    uint64_t n = 77;
    char text[64];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(text, sizeof(text), "{\"n\":%s}", bad[i]);
        if (read_number(text, &n) == 0)
            fail_msg("%s was read", bad[i]);
        assert_int_equal(last.id, ERR_INVALID);
        assert_int_equal(n, 77);
    }
    assert_int_equal(read_number("{}", &n), 0);
    assert_int_equal(n, 77); /* absent: the default */
    assert_int_equal(read_number("{\"n\":16}", &n), 0);
    assert_int_equal(n, 16);
    assert_int_equal(read_number("{\"n\":1000}", &n), 0);
    assert_int_equal(read_number("{\"n\":20.0}", &n), 0); /* JSON has one kind of number: this one is whole */
    assert_int_equal(n, 20);
    assert_int_equal(read_number("{\"n\":3e1}", &n), 0);
    assert_int_equal(n, 30);
    auto_free char *digits = mem_alloc(1024 * 1024 + 16);
    memset(digits, '9', 1024 * 1024);
    memcpy(digits, "{\"n\":", 5);
    digits[1024 * 1024] = '}';
    assert_int_equal(read_number(digits, &n), -1);
}

TEST(js06_unknown_fields_are_refused_with_the_nearest_known)
{
    static const char *const names[] = { "memoryBytes", "pids", NULL };
    json_t *j = json_pack("{s:i}", "memoryByte", 1);

    assert_int_equal(json_input_require_known_fields(j, "resources.", names, &last), -1);
    assert_string_equal(last.msg, "resources.memoryByte: unknown field; did you mean memoryBytes?");
    json_decref(j);
    j = json_pack("{s:i, s:i}", "pids", 1, "owner\033[2J", 1);
    assert_int_equal(json_input_require_known_fields(j, "", names, &last), -1);
    assert_null(strchr(last.msg, '\033'));
    assert_non_null(strstr(last.msg, "known fields are memoryBytes and pids")); /* no near one, so all are listed */
    json_decref(j);
    j = json_pack("{s:i}", "pids", 1);
    assert_int_equal(json_input_require_known_fields(j, "", names, &last), 0);
    json_decref(j);
}

TEST(js07_strings_and_lists_are_limited)
{
    json_t *j = json_pack("{s:s, s:[i,i,i]}", "t", "12345", "l", 1, 2, 3);
    const char *t = NULL;
    json_t *l = NULL;

    assert_int_equal(json_input_text(j, "", "t", 1, 4, &t, &last), -1);
    assert_int_equal(json_input_text(j, "", "t", 6, 9, &t, &last), -1);
    assert_null(t);
    assert_int_equal(json_input_text(j, "", "t", 1, 5, &t, &last), 0);
    assert_string_equal(t, "12345");
    assert_int_equal(json_input_array(j, "", "l", 2, &l, &last), -1);
    assert_int_equal(json_input_array(j, "", "l", 3, &l, &last), 0);
    assert_int_equal(json_input_array(j, "", "t", 3, &l, &last), -1);
    assert_int_equal(json_input_object(j, "", "l", &l, &last), -1);
    json_decref(j);
}

TEST(js08_empty_bodies_and_bytes_after_a_body_are_refused)
{
    assert_false(ACCEPTS(""));
    assert_false(ACCEPTS("   "));
    assert_false(ACCEPTS("{} x"));
    assert_false(ACCEPTS("{}{}"));
    assert_false(ACCEPTS("[]"));
    assert_false(ACCEPTS("null"));
    assert_false(ACCEPTS("{'a':1}"));
    assert_false(ACCEPTS("{\"a\":1,}"));
    assert_true(ACCEPTS(" {} \n"));
}

TEST(js09_many_keys_are_read_in_bounded_time)
{
    struct buf b = { 0 };

    buf_adds(&b, "{");
    for (int i = 0; i < 100000; i++)
        buf_addf(&b, "%s\"k%d\":1", i ? "," : "", i);
    buf_adds(&b, "}");
    assert_true(accepts(b.data, b.len));
    buf_done(&b);
}

TEST(the_error_argument_may_be_null)
{
    static const char *const names[] = { "a", NULL }, *const words[] = { "x", NULL };
    auto_json *root = NULL;
    json_t *none = NULL;
    unsigned word = 0;

    assert_int_equal(json_input_parse("{\"spec\": [", 10, &none, NULL), -1);
    assert_int_equal(json_input_parse("[]", 2, &none, NULL), -1);
    assert_int_equal(json_input_parse("{\"b\": \"y\"}", 10, &root, NULL), 0);
    assert_int_equal(json_input_require_known_fields(root, "", names, NULL), -1);
    assert_int_equal(json_input_enum(root, "", "b", words, &word, NULL), -1);
}

TEST(an_enum_accepts_only_its_listed_values)
{
    static const char *const words[] = { "end", "pause", NULL };
    json_t *j = json_pack("{s:s, s:s}", "a", "pause", "b", "puase");
    unsigned n = 9;

    assert_int_equal(json_input_enum(j, "", "a", words, &n, &last), 0);
    assert_int_equal(n, 1);
    assert_int_equal(json_input_enum(j, "", "b", words, &n, &last), -1);
    assert_non_null(strstr(last.msg, "did you mean pause?"));
    assert_int_equal(json_input_enum(j, "", "c", words, &n, &last), 0);
    assert_int_equal(n, 1);
    json_object_set_new(j, "b", json_string("xyzzy"));
    assert_int_equal(json_input_enum(j, "", "b", words, &n, &last), -1);
    assert_string_equal(last.msg, "b: 'xyzzy' is not a valid value; use end or pause");
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(js01_nesting_is_limited_and_uses_no_stack),
        RUN(values_that_cost_more_memory_than_text_are_limited),
        RUN(js02_a_duplicate_key_is_refused_in_any_spelling),
        RUN(js03_invalid_text_is_refused),
        RUN(js04_js05_numbers_are_exact_or_refused_and_never_unlimited),
        RUN(js06_unknown_fields_are_refused_with_the_nearest_known),
        RUN(js07_strings_and_lists_are_limited),
        RUN(js08_empty_bodies_and_bytes_after_a_body_are_refused),
        RUN(js09_many_keys_are_read_in_bounded_time),
        RUN(the_error_argument_may_be_null),
        RUN(an_enum_accepts_only_its_listed_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
