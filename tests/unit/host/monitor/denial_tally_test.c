#include "tests/unit/test.h"

#include "host/monitor/denial_tally.h"

static void add(struct denial_tally *t, uint32_t nr, uint32_t a, uint32_t b)
{
    denial_tally_add(t, nr, (uint32_t[JAIL_DENIAL_ARGS]){ a, b });
}

TEST(equal_calls_share_an_entry_and_other_arguments_do_not)
{
    struct denial_tally t = { 0 };

    add(&t, 165, 0, 0);
    add(&t, 16, 0, 0x5412);
    add(&t, 165, 0, 0);
    add(&t, 16, 0, 0x541c);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.entries[0].count, 2);
    assert_int_equal(t.entries[1].args[1], 0x5412);
    assert_int_equal(t.entries[2].args[1], 0x541c);
    assert_int_equal(t.entries[2].count, 1);
}

/* A sandbox that tries a new call each time uses no more memory, and its first calls are not
 * evicted. */
TEST(a_full_tally_keeps_its_entries_and_counts_the_overflow)
{
    struct denial_tally t = { 0 };

    for (uint32_t i = 0; i < JAIL_DENIALS_MAX + 1000; i++)
        add(&t, 16, i, 0);
    add(&t, 16, 3, 0); /* known: still counted in its entry */
    assert_int_equal(t.n, JAIL_DENIALS_MAX);
    assert_int_equal(t.overflow_count, 1000);
    assert_int_equal(t.entries[3].count, 2);
    assert_int_equal(t.entries[JAIL_DENIALS_MAX - 1].args[0], JAIL_DENIALS_MAX - 1);
}

TEST(a_burst_is_answered_at_once_and_a_flood_is_limited)
{
    struct denial_pace p = { 0 };
    uint64_t now = 1000 * NS_PER_S + 3, again = 0;
    uint64_t answered = 0;

    for (unsigned i = 0; i < PACE_ANSWERS; i++)
        assert_true(denial_pace_take(&p, now, &again));
    assert_false(denial_pace_take(&p, now, &again));
    assert_true(again > now && again <= now + PACE_TICK_NS);
    assert_false(denial_pace_take(&p, again - 1, &again));
    assert_true(denial_pace_take(&p, again, &again));

    p = (struct denial_pace){ 0 };
    for (uint64_t t = now; t < now + 10 * NS_PER_S; t += 100 * NS_PER_US) /* a constant flood */
        for (unsigned i = 0; i < 5; i++)
            answered += denial_pace_take(&p, t, &again);
    assert_in_range(answered, 10 * NS_PER_S / PACE_TICK_NS * PACE_ANSWERS,
                    (10 * NS_PER_S / PACE_TICK_NS + 1) * PACE_ANSWERS);
}

TEST(unused_ticks_do_not_accumulate)
{
    struct denial_pace p = { 0 };
    uint64_t again, now = 5 * NS_PER_S;

    assert_true(denial_pace_take(&p, now, &again));
    now += 3600 * NS_PER_S;
    for (unsigned i = 0; i < PACE_ANSWERS; i++)
        assert_true(denial_pace_take(&p, now, &again));
    assert_false(denial_pace_take(&p, now, &again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(equal_calls_share_an_entry_and_other_arguments_do_not),
        RUN(a_full_tally_keeps_its_entries_and_counts_the_overflow),
        RUN(a_burst_is_answered_at_once_and_a_flood_is_limited),
        RUN(unused_ticks_do_not_accumulate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
