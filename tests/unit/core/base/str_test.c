#include "tests/unit/test.h"

#include "core/base/str.h"

TEST(bytes_are_parsed_exactly_or_refused)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t bytes;
    } rows[] = {
        { "0", true, 0 },
        { "4096", true, 4096 },
        { "1K", true, 1024 },
        { "1k", true, 1024 },
        { "64m", true, 64 * MIB },
        { "1g", true, 1 * GIB },
        { "64mb", true, 64 * MIB },
        { "64mi", false, 0 },
        { "256M", true, 256 * MIB },
        { "1.5G", true, 1536 * MIB },
        { "2GiB", true, 2 * GIB },
        { "3MB", true, 3 * MIB },
        { "0.5K", true, 512 },
        { "16777216T", false, 0 },
        { "18446744073709551615", false, 0 },
        { "", false, 0 },
        { "-1", false, 0 },
        { "+1", false, 0 },
        { " 1", false, 0 },
        { "1 M", false, 0 },
        { "1.5", false, 0 },
        { "1.M", false, 0 },
        { "0x10", false, 0 },
        { "1e3", false, 0 },
        { "1Mx", false, 0 },
        { "1.2345G", false, 0 },
        { "99999999999999999999", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 7;

        if (str_to_bytes(rows[i].text, &v) != rows[i].ok || v != (rows[i].ok ? rows[i].bytes : 7))
            fail_msg("'%s' gave %" PRIu64, rows[i].text, v);
    }
}

TEST(times_need_a_unit_and_whole_milliseconds)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t ms;
    } rows[] = {
        { "30s", true, 30000 },  { "1500ms", true, 1500 },  { "0.5s", true, 500 }, { "5m", true, 300000 },
        { "1h", true, 3600000 }, { "2d", true, 172800000 }, { "1.5ms", false, 0 }, { "30", false, 0 },
        { "s", false, 0 },       { "30 s", false, 0 },      { "1h30m", false, 0 }, { "18446744073709551d", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 7;

        if (str_to_ms(rows[i].text, &v) != rows[i].ok || v != (rows[i].ok ? rows[i].ms : 7))
            fail_msg("'%s' gave %" PRIu64, rows[i].text, v);
    }
}

TEST(cpus_are_parsed_in_thousandths)
{
    uint64_t v = 0;

    assert_true(str_to_millis("0.5", &v) && v == 500);
    assert_true(str_to_millis("2", &v) && v == 2000);
    assert_true(str_to_millis("0.125", &v) && v == 125);
    assert_false(str_to_millis("0.1255", &v));
    assert_false(str_to_millis(".5", &v));
    assert_false(str_to_millis("1.", &v));
}

TEST(sizes_and_times_print_as_a_user_would_write_them)
{
    char b[32];

    assert_string_equal(str_bytes(0, b), "0");
    assert_string_equal(str_bytes(1023, b), "1023");
    assert_string_equal(str_bytes(256 * MIB, b), "256M");
    assert_string_equal(str_bytes(1536 * MIB, b), "1.5G");
    assert_string_equal(str_bytes(UINT64_MAX, b), "15.9E");
    assert_string_equal(str_size(0, b), "0 bytes");
    assert_string_equal(str_size(1, b), "1 byte");
    assert_string_equal(str_size(1023, b), "1023 bytes");
    assert_string_equal(str_size(1536, b), "1.5K");
    assert_string_equal(str_ms(5, b), "5ms");
    assert_string_equal(str_ms(1500, b), "1.500s");
    assert_string_equal(str_ms(30000, b), "30s");
    assert_string_equal(str_ms(150000, b), "2m30s");
    assert_string_equal(str_ms(300000, b), "5m");
    assert_string_equal(str_ms(5400000, b), "1h30m");
    assert_string_equal(str_ms(7200000, b), "2h");
}

TEST(str_eat_consumes_only_on_success)
{
    const char *p = "12/s rest";
    uint32_t v = 0;

    assert_false(str_eat_u32(&p, 11, &v));
    assert_true(*p == '1');
    assert_true(str_eat_u32(&p, 12, &v) && v == 12);
    assert_false(str_eat(&p, "/m"));
    assert_true(str_eat(&p, "/s"));
    assert_string_equal(p, " rest");
}

TEST(copying_into_a_small_buffer_fails_and_leaves_it_empty)
{
    char b[4] = "old";

    assert_true(str_copy(b, sizeof(b), "abc"));
    assert_false(str_copy(b, sizeof(b), "abcd"));
    assert_string_equal(b, "");
}

TEST(untrusted_text_cannot_control_a_terminal)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "plain \xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x99\x82", "plain \xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x99\x82" },
        { "a\nb\x1b[31m\x7f", "a?b?[31m?" },
        { "\xc2\x9b"
          "31m",
          "??31m" }, /* CSI as one C1 character */
        { "\x9b"
          "31m\xff",
          "?31m?" }, /* invalid UTF-8, but some terminals obey it */
        { "exe.\xe2\x80\xaetxt", "exe.???txt" },
        { "\xe2\x80\xa8\xd8\x9c\xe2\x81\xa6", "????????" },
        { "\xc0\x9b\xed\xa0\x80\xf5\x80\x80\x80", "?????????" },
        { "cut \xe4\xbd", "cut ??" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *s = str_dup(cases[i].text);

        str_strip_control_chars(s);
        assert_string_equal(s, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(bytes_are_parsed_exactly_or_refused),      RUN(times_need_a_unit_and_whole_milliseconds),
        RUN(cpus_are_parsed_in_thousandths),           RUN(sizes_and_times_print_as_a_user_would_write_them),
        RUN(str_eat_consumes_only_on_success),         RUN(copying_into_a_small_buffer_fails_and_leaves_it_empty),
        RUN(untrusted_text_cannot_control_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
