#include "tests/unit/test.h"

#include "host/egress/destinations.h"

#include <stdio.h>

TEST(rows_are_in_the_order_of_first_use_and_sums_hold_everything)
{
    struct destinations t = { 0 };
    static struct egress_reported r;

    struct destination *a = destinations_find(&t, "a.test", 443), *b = destinations_find(&t, "a.test", 80);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(destinations_find(&t, "a.test", 443), a);
    destinations_count_connection(&t, a);
    destinations_count_bytes(&t, a, 100, 7);
    destinations_count_refusal(&t, b, "no rule");
    destinations_count_failure(&t, b, NULL);
    destinations_report(&t, &r);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.destinations[0].port, 443);
    assert_int_equal(r.destinations[0].received, 100);
    assert_int_equal(r.destinations[0].sent, 7);
    assert_string_equal(r.destinations[1].reason, "no rule");
    assert_int_equal(r.connections + r.refused + r.failed, 3);
    assert_int_equal(r.received, 100);
    assert_int_equal(r.other_destinations, 0);
    destinations_done(&t);
}

TEST(what_does_not_fit_is_counted_in_the_sums_and_once_for_each_destination)
{
    struct destinations t = { 0 };
    static struct egress_reported r;
    char host[32];

    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < EGRESS_DESTINATIONS_MAX + 20; i++) {
            snprintf(host, sizeof(host), "h%u.test", i);
            destinations_count_refusal(&t, destinations_find(&t, host, 443), "no rule");
        }
    destinations_report(&t, &r);
    assert_int_equal(r.n, EGRESS_DESTINATIONS_MAX);
    assert_int_equal(r.refused, 2 * (EGRESS_DESTINATIONS_MAX + 20));
    assert_in_range(r.other_destinations, 19, 20);
    destinations_done(&t);
}

TEST(a_long_reason_is_cut)
{
    struct destinations t = { 0 };
    char reason[2 * EGRESS_REASON_MAX];

    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = '\0';
    struct destination *d = destinations_find(&t, "a.test", 443);
    destinations_count_refusal(&t, d, reason);
    assert_int_equal(strlen(d->count.reason), EGRESS_REASON_MAX - 1);
    destinations_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(rows_are_in_the_order_of_first_use_and_sums_hold_everything),
        RUN(what_does_not_fit_is_counted_in_the_sums_and_once_for_each_destination),
        RUN(a_long_reason_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
