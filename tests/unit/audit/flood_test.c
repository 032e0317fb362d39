#include "../test.h"

#include "audit/flood.h"

#include <stdio.h>

#define T0 (1000 * NS_PER_S)

static struct flood *f;

static int setup(void **state UNUSED)
{
    f = flood_new();
    return 0;
}

static int teardown(void **state UNUSED)
{
    flood_free(f);
    return 0;
}

static struct flood_kind kind(const char *address, const char *action)
{
    struct flood_kind k = { .kind = "anonymous", .error = "unauthorized", .status = 401 };

    snprintf(k.address, sizeof(k.address), "%s", address);
    snprintf(k.action, sizeof(k.action), "%s", action);
    return k;
}

static unsigned take(const struct flood_kind *k, unsigned n, uint64_t now)
{
    unsigned single = 0;

    for (unsigned i = 0; i < n; i++)
        single += flood_take(f, k, now, now / NS_PER_MS);
    return single;
}

TEST(a_few_of_a_kind_are_told_and_the_rest_becomes_a_number)
{
    struct flood_kind k = kind("192.0.2.1", "sandbox.create");
    struct flood_sum s;

    assert_int_equal(take(&k, 1000, T0), FLOOD_SINGLE);
    assert_int_equal(flood_due(f), T0 + FLOOD_WINDOW_NS);
    assert_false(flood_next(f, T0 + FLOOD_WINDOW_NS - 1, false, &s));
    assert_true(flood_next(f, T0 + FLOOD_WINDOW_NS, false, &s));
    assert_int_equal(s.count, 1000 - FLOOD_SINGLE);
    assert_int_equal(s.since_ms, T0 / NS_PER_MS);
    assert_string_equal(s.what.address, "192.0.2.1");
    assert_false(flood_next(f, T0 + FLOOD_WINDOW_NS, false, &s));
    assert_int_equal(flood_due(f), 0);
}

TEST(users_without_a_key_behind_one_address_are_told_apart)
{
    struct flood_kind ada = kind("192.0.2.1", "sandbox.create"), bob = ada;
    struct flood_sum s;

    snprintf(ada.user, sizeof(ada.user), "usaaaaaaaaaaaaaaaaaaaa");
    snprintf(bob.user, sizeof(bob.user), "usbbbbbbbbbbbbbbbbbbbb");
    assert_int_equal(take(&ada, 100, T0), FLOOD_SINGLE);
    assert_int_equal(take(&bob, 1, T0), 1); /* and is not one more of hers */
    assert_true(flood_next(f, T0 + FLOOD_WINDOW_NS, false, &s));
    assert_string_equal(s.what.user, ada.user);
    assert_int_equal(s.count, 100 - FLOOD_SINGLE);
    assert_false(flood_next(f, T0 + FLOOD_WINDOW_NS, false, &s));
}

TEST(who_goes_on_is_counted_on_and_who_stops_is_told_again)
{
    struct flood_kind k = kind("192.0.2.1", "sandbox.create");
    struct flood_sum s;
    uint64_t now = T0 + FLOOD_WINDOW_NS;

    take(&k, 100, T0);
    assert_true(flood_next(f, now, false, &s));
    assert_int_equal(take(&k, 50, now + 1), 0);
    assert_true(flood_next(f, now + 2 + FLOOD_WINDOW_NS, false, &s));
    assert_int_equal(s.count, 50);
    assert_int_equal(take(&k, 3, now + 100 * NS_PER_S), 3);
}

TEST(kinds_are_apart)
{
    struct flood_kind a = kind("192.0.2.1", "sandbox.create"), b = kind("192.0.2.2", "sandbox.create"),
                      c = kind("192.0.2.1", "sandbox.delete");

    assert_int_equal(take(&a, 100, T0), FLOOD_SINGLE);
    assert_int_equal(take(&b, 100, T0), FLOOD_SINGLE);
    assert_int_equal(take(&c, 100, T0), FLOOD_SINGLE);
}

/* However many addresses there are: so many records in the first moment, and so many an hour. */
TEST(many_addresses_together_cannot_fill_a_disk)
{
    unsigned records = 0;
    uint64_t counted = 0, asked = 0;
    struct flood_sum s;

    for (unsigned t = 0; t < 3600; t++) {
        uint64_t now = T0 + t * NS_PER_S;

        for (unsigned i = 0; i < 200; i++, asked++) {
            char address[32];

            snprintf(address, sizeof(address), "10.%u.%u.%u", t & 255, t >> 8, i);
            struct flood_kind k = kind(address, "sandbox.create");
            records += flood_take(f, &k, now, now / NS_PER_MS);
        }
        while (flood_next(f, now, false, &s)) {
            records++;
            counted += s.count;
        }
    }
    unsigned sums = 0;
    while (flood_next(f, T0, true, &s)) {
        sums++;
        counted += s.count;
    }
    assert_true(sums <= FLOOD_KINDS + 1);
    assert_true(counted > 0);
    assert_true(records < FLOOD_BURST + 3600 * FLOOD_RATE + 361 * (FLOOD_KINDS + 1));
    assert_true(records + counted >= asked); /* nothing is forgotten: a record is one, or says how many */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(a_few_of_a_kind_are_told_and_the_rest_becomes_a_number),
        EACH(users_without_a_key_behind_one_address_are_told_apart),
        EACH(who_goes_on_is_counted_on_and_who_stops_is_told_again),
        EACH(kinds_are_apart),
        EACH(many_addresses_together_cannot_fill_a_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
