#include "client/ctl/ctl_internal.h"

#include "test.h"

#define NOW 1790000000000ull /* 2026-09-21T14:13:20Z */

TEST(a_timestamp_is_printed_as_a_distance_in_one_unit)
{
    static const struct {
        const char *moment, *says;
    } rows[] = {
        { "2026-09-21T14:13:20.000Z", "now" },
        { "2026-09-21T14:13:20.999Z", "now" },
        { "2026-09-21T14:13:18.500Z", "1s ago" },
        { "2026-09-21T14:11:50.000Z", "90s ago" },
        { "2026-09-21T14:10:20.000Z", "3m ago" },
        { "2026-09-21T12:43:20.000Z", "90m ago" },
        { "2026-09-21T14:18:19.990Z", "in 5m" }, /* a lifetime of 5 minutes just after the creation */
        { "2026-09-21T14:18:19.000Z", "in 5m" },
        { "2026-09-21T14:17:49.000Z", "in 4m" },
        { "2026-09-21T16:13:19.900Z", "in 2h" },
        { "2026-09-21T15:13:20.000Z", "in 60m" },
        { "2026-09-21T16:13:20.000Z", "in 2h" },
        { "2026-09-19T14:13:20.000Z", "2d ago" },
        { "2026-10-21T14:13:20.000Z", "in 30d" },
        { "2026-09-21T16:13:20+02:00", "now" },
        { "", "" },
        { "soon", "soon" },
    };
    char buf[CTL_AGE];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(ctl_age(rows[i].moment, NOW, buf), rows[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_timestamp_is_printed_as_a_distance_in_one_unit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
