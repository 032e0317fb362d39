#include "tests/unit/test.h"

#include "core/base/text.h"

TEST(only_well_formed_utf8_is_accepted)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool valid;
    } cases[] = {
        { "", 0, true },
        { "plain\n", 6, true },
        { "\0", 1, true },
        { "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, true },
        { "\xf4\x8f\xbf\xbf", 4, true },
        { "\xff", 1, false },
        { "\x80", 1, false }, /* starts in the middle */
        { "\xc3", 1, false }, /* ends in the middle */
        { "\xe2\x82", 2, false },
        { "\xc0\xaf", 2, false }, /* overlong */
        { "\xe0\x80\x80", 3, false },
        { "\xf0\x80\x80\x80", 4, false },
        { "\xed\xa0\x80", 3, false },     /* surrogate */
        { "\xf4\x90\x80\x80", 4, false }, /* past U+10FFFF */
        { "\xe2\x28\xa1", 3, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (text_is_utf8(cases[i].bytes, cases[i].len) != cases[i].valid)
            fail_msg("case %zu", i);
}

TEST(base64_is_padded_to_four_characters)
{
    static const struct {
        const char *bytes, *coded;
    } cases[] = {
        { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "\xff\xfe\xfd\xfc", "//79/A==" }
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf out = { 0 };

        text_base64(&out, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(out.data, cases[i].coded);
    }
}

TEST(wrap_breaks_between_words_and_keeps_the_indent)
{
    auto_buf out = { 0 };

    text_wrap(&out, "one two  three four", 0, 2, 9);
    assert_string_equal(out.data, "one two\n  three\n  four\n");
}

TEST(base64url_has_exactly_one_encoding_per_byte_string)
{
    static const char *const wrong[] = { "A",    "AA=",  "AA==", "AB",    "AAB",     "A+AA",
                                         "A/AA", "AA A", "AA\n", "AAAAA", "\xc3\xa4" };
    uint8_t bytes[64], back[64];
    size_t n;

    for (size_t len = 0; len < 32; len++) {
        auto_buf text = { 0 };

        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)(251 * i + 199 * len);
        text_base64url(&text, bytes, len);
        assert_int_equal(text.len, (len * 4 + 2) / 3);
        assert_true(text_from_base64url(text.data, text.len, back, &n));
        assert_int_equal(n, len);
        assert_memory_equal(bytes, back, len);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        if (text_from_base64url(wrong[i], strlen(wrong[i]), back, &n))
            fail_msg("'%s' was accepted", wrong[i]);
    assert_false(text_from_base64url("AA\0A", 4, back, &n));
}

TEST(base64_is_decoded_and_other_text_is_refused)
{
    static const char *const bad[] = { "A",
                                       "AA",
                                       "AAA",
                                       "A===",
                                       "====",
                                       "AA=A",
                                       "AB==",
                                       "AAB=",
                                       "AA A",
                                       "AAAA=",
                                       "AA==AAAA",
                                       "AA-_",
                                       "\xff\xff\xff\xff" };
    char bytes[64];

    for (size_t n = 0; n < sizeof(bytes); n++) {
        auto_buf coded = { 0 }, back = { 0 };

        bytes[n] = (char)(n * 37 + 200);
        text_base64(&coded, bytes, n);
        assert_true(text_from_base64(&back, coded.data, coded.len));
        assert_int_equal(back.len, n);
        if (n)
            assert_memory_equal(back.data, bytes, n);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_buf out = { 0 };

        if (text_from_base64(&out, bad[i], strlen(bad[i])) || out.len)
            fail_msg("'%s' was accepted", bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(base64_is_decoded_and_other_text_is_refused),
        RUN(wrap_breaks_between_words_and_keeps_the_indent),
        RUN(only_well_formed_utf8_is_accepted),
        RUN(base64_is_padded_to_four_characters),
        RUN(base64url_has_exactly_one_encoding_per_byte_string),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
