#include "tests/unit/test.h"

#include "core/base/clock.h"

TEST(rfc_3339_times_are_parsed_exactly_or_refused)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t ms;
    } rows[] = {
        { "1970-01-01T00:00:00Z", true, 0 },
        { "2001-09-09T01:46:40Z", true, 1000000000000 },
        { "2001-09-09T01:46:40.5Z", true, 1000000000500 },
        { "2001-09-09t01:46:40.0019z", true, 1000000000001 },
        { "2001-09-09T03:46:40+02:00", true, 1000000000000 },
        { "2001-09-08T20:16:40-05:30", true, 1000000000000 },
        { "2000-02-29T00:00:00Z", true, 951782400000 },
        { "2016-12-31T23:59:60Z", true, 1483228800000 },
        { "9999-12-31T23:59:59Z", true, 253402300799000 },
        { "1969-12-31T23:59:59Z", false, 0 },
        { "1970-01-01T00:00:00+00:01", false, 0 },
        { "2001-02-29T00:00:00Z", false, 0 },
        { "2001-13-01T00:00:00Z", false, 0 },
        { "2001-00-01T00:00:00Z", false, 0 },
        { "2001-01-00T00:00:00Z", false, 0 },
        { "2001-01-01T24:00:00Z", false, 0 },
        { "2001-01-01T00:60:00Z", false, 0 },
        { "2001-01-01T00:00:61Z", false, 0 },
        { "2001-1-01T00:00:00Z", false, 0 },
        { " 2001-01-01T00:00:00Z", false, 0 },
        { "2001-01-01 00:00:00Z", false, 0 },
        { "2001-01-01T00:00:00", false, 0 },
        { "2001-01-01T00:00:00.Z", false, 0 },
        { "2001-01-01T00:00:00+24:00", false, 0 },
        { "2001-01-01T00:00:00+0100", false, 0 },
        { "2001-01-01T00:00:00Zz", false, 0 },
        { "+001-01-01T00:00:00Z", false, 0 },
        { "tomorrow", false, 0 },
        { "", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t ms = 0;

        if (clock_from_rfc3339(rows[i].text, &ms) != rows[i].ok || ms != rows[i].ms)
            fail_msg("%s: %" PRIu64, rows[i].text, ms);
    }
}

TEST(formatted_times_parse_to_the_same_value)
{
    char text[32];
    uint64_t ms;

    assert_true(clock_from_rfc3339(clock_rfc3339(1793757001234 * NS_PER_MS, text), &ms));
    assert_int_equal(ms, 1793757001234);
}

TEST(times_far_in_the_future_are_formatted_correctly)
{
    static const char *const far[] = { "2554-07-22T00:00:00.000Z", "2600-01-01T00:00:00.000Z",
                                       "9999-12-31T23:59:59.999Z" };
    char text[32];
    uint64_t ms;

    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        assert_true(clock_from_rfc3339(far[i], &ms));
        assert_string_equal(clock_rfc3339_ms(ms, text), far[i]);
    }
    assert_string_equal(clock_rfc3339_ms(UINT64_MAX, text), far[2]);
    assert_string_equal(clock_rfc3339_ms(0, text), "1970-01-01T00:00:00.000Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(rfc_3339_times_are_parsed_exactly_or_refused),
        RUN(formatted_times_parse_to_the_same_value),
        RUN(times_far_in_the_future_are_formatted_correctly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
