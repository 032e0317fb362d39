#include "tests/unit/test.h"

#include "server/audit/refusal_aggregator.h"

#include <stdio.h>

#define T0 (1000 * NS_PER_S)

static struct refusal_aggregator *f;

static int setup(void **state UNUSED)
{
    f = refusal_aggregator_new();
    return 0;
}

static int teardown(void **state UNUSED)
{
    refusal_aggregator_free(f);
    return 0;
}

static struct refusal_key kind(const char *address, const char *action)
{
    struct refusal_key k = { .kind = "anonymous", .error = "unauthorized", .status = 401 };

    snprintf(k.address, sizeof(k.address), "%s", address);
    snprintf(k.action, sizeof(k.action), "%s", action);
    return k;
}

static unsigned take(const struct refusal_key *k, unsigned n, uint64_t now)
{
    unsigned single = 0;

    for (unsigned i = 0; i < n; i++)
        single += refusal_aggregator_admit(f, k, now, now / NS_PER_MS);
    return single;
}

TEST(the_first_refusals_of_a_key_are_recorded_and_the_rest_counted)
{
    struct refusal_key k = kind("192.0.2.1", "sandbox.create");
    struct refusal_summary s;

    assert_int_equal(take(&k, 1000, T0), REFUSAL_RECORDED_MAX);
    assert_int_equal(refusal_aggregator_due_ns(f), T0 + REFUSAL_WINDOW_NS);
    assert_false(refusal_aggregator_next(f, T0 + REFUSAL_WINDOW_NS - 1, false, &s));
    assert_true(refusal_aggregator_next(f, T0 + REFUSAL_WINDOW_NS, false, &s));
    assert_int_equal(s.count, 1000 - REFUSAL_RECORDED_MAX);
    assert_int_equal(s.since_ms, T0 / NS_PER_MS);
    assert_string_equal(s.key.address, "192.0.2.1");
    assert_false(refusal_aggregator_next(f, T0 + REFUSAL_WINDOW_NS, false, &s));
    assert_int_equal(refusal_aggregator_due_ns(f), 0);
}

TEST(users_without_a_key_at_one_address_are_counted_separately)
{
    struct refusal_key ada = kind("192.0.2.1", "sandbox.create"), bob = ada;
    struct refusal_summary s;

    snprintf(ada.user, sizeof(ada.user), "usaaaaaaaaaaaaaaaaaaaa");
    snprintf(bob.user, sizeof(bob.user), "usbbbbbbbbbbbbbbbbbbbb");
    assert_int_equal(take(&ada, 100, T0), REFUSAL_RECORDED_MAX);
    assert_int_equal(take(&bob, 1, T0), 1); /* bob's refusal is not added to ada's */
    assert_true(refusal_aggregator_next(f, T0 + REFUSAL_WINDOW_NS, false, &s));
    assert_string_equal(s.key.user, ada.user);
    assert_int_equal(s.count, 100 - REFUSAL_RECORDED_MAX);
    assert_false(refusal_aggregator_next(f, T0 + REFUSAL_WINDOW_NS, false, &s));
}

TEST(a_client_gets_new_records_only_after_it_stopped)
{
    struct refusal_key k = kind("192.0.2.1", "sandbox.create");
    struct refusal_summary s;
    uint64_t now = T0 + REFUSAL_WINDOW_NS;

    take(&k, 100, T0);
    assert_true(refusal_aggregator_next(f, now, false, &s));
    assert_int_equal(take(&k, 50, now + 1), 0);
    assert_true(refusal_aggregator_next(f, now + 2 + REFUSAL_WINDOW_NS, false, &s));
    assert_int_equal(s.count, 50);
    assert_int_equal(take(&k, 3, now + 100 * NS_PER_S), 3);
}

TEST(different_keys_have_separate_limits)
{
    struct refusal_key a = kind("192.0.2.1", "sandbox.create"), b = kind("192.0.2.2", "sandbox.create"),
                       c = kind("192.0.2.1", "sandbox.delete");

    assert_int_equal(take(&a, 100, T0), REFUSAL_RECORDED_MAX);
    assert_int_equal(take(&b, 100, T0), REFUSAL_RECORDED_MAX);
    assert_int_equal(take(&c, 100, T0), REFUSAL_RECORDED_MAX);
}

/* With any number of addresses, the records of the first moment and per hour are bounded. */
TEST(many_addresses_together_cannot_fill_the_disk)
{
    unsigned records = 0;
    uint64_t counted = 0, asked = 0;
    struct refusal_summary s;

    for (unsigned t = 0; t < 3600; t++) {
        uint64_t now = T0 + t * NS_PER_S;

        for (unsigned i = 0; i < 200; i++, asked++) {
            char address[32];

            snprintf(address, sizeof(address), "10.%u.%u.%u", t & 255, t >> 8, i);
            struct refusal_key k = kind(address, "sandbox.create");
            records += refusal_aggregator_admit(f, &k, now, now / NS_PER_MS);
        }
        while (refusal_aggregator_next(f, now, false, &s)) {
            records++;
            counted += s.count;
        }
    }
    unsigned sums = 0;
    while (refusal_aggregator_next(f, T0, true, &s)) {
        sums++;
        counted += s.count;
    }
    assert_true(sums <= REFUSAL_KEYS_MAX + 1);
    assert_true(counted > 0);
    assert_true(records < REFUSAL_BURST + 3600 * REFUSAL_RATE + 361 * (REFUSAL_KEYS_MAX + 1));
    assert_true(records + counted >= asked); /* every refusal has a record or is in a sum */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(the_first_refusals_of_a_key_are_recorded_and_the_rest_counted),
        EACH(users_without_a_key_at_one_address_are_counted_separately),
        EACH(a_client_gets_new_records_only_after_it_stopped),
        EACH(different_keys_have_separate_limits),
        EACH(many_addresses_together_cannot_fill_the_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
