/* Sums over proxies, and the part that a receipt reports. */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "sandbox/network_usage.h"

#include <stdio.h>

static void report_add(struct egress_reported *r, const char *host, uint16_t port, uint64_t connections,
                       uint64_t refused, uint64_t received, const char *reason)
{
    struct egress_destination *d = &r->destinations[r->n++];

    *d = (struct egress_destination){
        .port = port, .connections = connections, .refused = refused, .received = received
    };
    str_copy(d->host, sizeof(d->host), host);
    str_copy(d->reason, sizeof(d->reason), reason);
    r->connections += connections;
    r->refused += refused;
    r->received += received;
}

static struct egress_reported first_report, second_report;
static const struct network_usage nothing;

static void set_up_reports(void)
{
    first_report = second_report = (struct egress_reported){ 0 };
    report_add(&first_report, "pypi.org", 443, 1, 0, 100, "");
    report_add(&first_report, "example.org", 443, 0, 2, 0, "no rule");
    report_add(&second_report, "pypi.org", 443, 3, 0, 700, "");
    report_add(&second_report, "example.org", 443, 0, 2, 0, "no rule");
    report_add(&second_report, "example.org", 80, 0, 1, 0, "no rule for port 80");
}

TEST(a_difference_has_only_the_destinations_that_changed)
{
    struct network_usage before = { 0 }, now = { 0 }, d;

    set_up_reports();
    network_usage_set(&before, &nothing, &first_report);
    network_usage_set(&now, &nothing, &second_report);
    network_usage_difference(&now, &before, &d);
    assert_int_equal(d.connections, 2);
    assert_int_equal(d.refused, 1);
    assert_int_equal(d.received, 600);
    assert_int_equal(d.n, 2);
    assert_string_equal(d.destinations[0].host, "pypi.org");
    assert_int_equal(d.destinations[0].received, 600);
    assert_int_equal(d.destinations[1].port, 80);
    assert_string_equal(d.destinations[1].reason, "no rule for port 80");
    network_usage_done(&d);
    network_usage_done(&before);
    network_usage_done(&now);
}

TEST(an_old_reason_is_not_the_reason_of_a_new_connection)
{
    struct egress_reported a = { 0 }, b = { 0 };
    struct network_usage before = { 0 }, now = { 0 }, d;

    report_add(&a, "pypi.org", 443, 0, 1, 0, "no rule");
    report_add(&b, "pypi.org", 443, 1, 1, 9, "no rule");
    network_usage_set(&before, &nothing, &a);
    network_usage_set(&now, &nothing, &b);
    network_usage_difference(&now, &before, &d);
    assert_int_equal(d.n, 1);
    assert_string_equal(d.destinations[0].reason, "");
    network_usage_done(&d);
    network_usage_done(&before);
    network_usage_done(&now);
}

TEST(totals_continue_over_a_proxy_that_was_restarted)
{
    struct network_usage before = { 0 }, now = { 0 };
    static struct egress_reported out;

    set_up_reports();
    network_usage_set(&before, &nothing, &first_report);
    network_usage_set(&now, &before, &second_report);
    network_usage_report(&now, EGRESS_CARRIER_TPROXY, &out);
    assert_int_equal(out.carrier, EGRESS_CARRIER_TPROXY);
    assert_int_equal(out.connections, 4);
    assert_int_equal(out.n, 3);
    assert_int_equal(out.destinations[0].connections, 4);
    assert_int_equal(out.destinations[1].refused, 4);
    assert_int_equal(out.destinations[2].port, 80);
    network_usage_set(&now, &now, &first_report); /* the sum may replace a summand */
    assert_int_equal(now.connections, 5);
    network_usage_done(&before);
    network_usage_done(&now);
}

/* A compromised proxy may report anything. */
TEST(counters_that_shrink_do_not_underflow)
{
    struct network_usage before = { 0 }, now = { 0 }, d;

    set_up_reports();
    network_usage_set(&before, &nothing, &second_report);
    network_usage_set(&now, &nothing, &first_report);
    network_usage_difference(&now, &before, &d);
    assert_int_equal(d.connections + d.refused + d.failed + d.received + d.sent + d.n, 0);
    network_usage_done(&d);
    network_usage_done(&before);
    network_usage_done(&now);
}

TEST(destinations_beyond_the_list_are_counted)
{
    static struct egress_reported a, b;
    struct network_usage before = { 0 }, now = { 0 };
    char host[32];

    for (int i = 0; i < EGRESS_DESTINATIONS_MAX; i++) {
        snprintf(host, sizeof(host), "a%d.example", i);
        report_add(&a, host, 443, 1, 0, 1, "");
        snprintf(host, sizeof(host), "b%d.example", i);
        report_add(&b, host, 443, 1, 0, 1, "");
    }
    network_usage_set(&before, &nothing, &a);
    network_usage_set(&now, &before, &b);
    assert_int_equal(now.n, EGRESS_DESTINATIONS_MAX);
    assert_int_equal(now.other_destinations, EGRESS_DESTINATIONS_MAX);
    assert_int_equal(now.connections, 2 * EGRESS_DESTINATIONS_MAX);
    network_usage_done(&before);
    network_usage_done(&now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_difference_has_only_the_destinations_that_changed),
        RUN(an_old_reason_is_not_the_reason_of_a_new_connection),
        RUN(totals_continue_over_a_proxy_that_was_restarted),
        RUN(counters_that_shrink_do_not_underflow),
        RUN(destinations_beyond_the_list_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
