#include "tests/unit/test.h"

#include "server/auth/throttle.h"

#include <stdio.h>

static struct throttle *t;
static uint64_t wait_ns;

static int setup(void **state UNUSED)
{
    t = throttle_new();
    return 0;
}

static int teardown(void **state UNUSED)
{
    throttle_free(t);
    return 0;
}

static unsigned tries_until_refused(const char *peer, uint64_t now)
{
    unsigned n = 0;

    while (n < 1000 && throttle_may_try(t, peer, now, &wait_ns)) {
        throttle_record_failure(t, peer, now);
        n++;
    }
    return n;
}

TEST(an_address_with_ten_failures_waits_and_others_do_not)
{
    uint64_t now = 100 * NS_PER_S;

    assert_int_equal(tries_until_refused("192.0.2.1", now), 10);
    assert_true(wait_ns > 0 && wait_ns <= 6 * NS_PER_S);
    assert_true(throttle_may_try(t, "192.0.2.2", now, &wait_ns));
    assert_int_equal(wait_ns, 0);
    assert_int_equal(tries_until_refused("192.0.2.1", now + 6 * NS_PER_S), 1);
    assert_int_equal(tries_until_refused("192.0.2.1", now + 3600 * NS_PER_S), 10); /* the bucket refills with time */
}

TEST(addresses_of_one_ipv6_network_count_as_one_and_ipv4_in_ipv6_as_ipv4)
{
    uint64_t now = 100 * NS_PER_S;

    assert_int_equal(tries_until_refused("2001:db8:1:2::1", now), 10);
    assert_int_equal(tries_until_refused("2001:db8:1:2:ffff::9", now), 0);
    assert_int_equal(tries_until_refused("2001:db8:1:3::1", now), 10);
    assert_int_equal(tries_until_refused("198.51.100.7", now), 10);
    assert_int_equal(tries_until_refused("::ffff:198.51.100.7", now), 0);
}

TEST(local_peers_and_invalid_addresses_share_one_bucket)
{
    uint64_t now = 100 * NS_PER_S;

    assert_int_equal(tries_until_refused(NULL, now), 10);
    assert_int_equal(tries_until_refused("not an address", now), 0);
}

TEST(AU11_a_search_from_many_addresses_is_limited_in_total)
{
    uint64_t now = 100 * NS_PER_S, tried = 0;

    for (unsigned i = 0; i < 100000; i++) { /* one minute, each address within its own limit */
        char peer[32];
        uint64_t at = now + i * (60 * NS_PER_S / 100000);

        snprintf(peer, sizeof(peer), "10.%u.%u.%u", i >> 16 & 255, i >> 8 & 255, i & 255);
        if (throttle_may_try(t, peer, at, &wait_ns)) {
            throttle_record_failure(t, peer, at);
            tried++;
        }
    }
    assert_true(tried <= 500 + 60 * 500);
    /* The limit ends when the attempts end. */
    assert_true(throttle_may_try(t, "192.0.2.9", now + 62 * NS_PER_S, &wait_ns));
}

#define RUN_THROTTLE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

TEST(throttled_addresses_share_a_hundred_lookups_per_second)
{
    uint64_t now = 100 * NS_PER_S;
    unsigned n = 0;

    while (n < 1000 && throttle_may_look_up(t, now))
        n++;
    assert_int_equal(n, 100);
    assert_true(throttle_may_look_up(t, now + 10 * NS_PER_MS));
    assert_false(throttle_may_look_up(t, now + 10 * NS_PER_MS));
    assert_true(throttle_may_try(t, "192.0.2.1", now, &wait_ns)); /* other addresses are not delayed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_THROTTLE(an_address_with_ten_failures_waits_and_others_do_not),
        RUN_THROTTLE(addresses_of_one_ipv6_network_count_as_one_and_ipv4_in_ipv6_as_ipv4),
        RUN_THROTTLE(local_peers_and_invalid_addresses_share_one_bucket),
        RUN_THROTTLE(throttled_addresses_share_a_hundred_lookups_per_second),
        RUN_THROTTLE(AU11_a_search_from_many_addresses_is_limited_in_total),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
