/* The checks that a used sandbox must pass, one after the other. */
#include "tests/unit/test.h"

#include "sandbox/pool/recycle.h"

/* Facts of a sandbox that may be recycled, before the reset and after it. */
static struct recycle_facts good(void)
{
    return (struct recycle_facts){ .pool_matches = true,
                                   .enabled = true,
                                   .pool_size = 1,
                                   .pool_max = 2,
                                   .age_ms = 1000,
                                   .max_age_ms = 1000,
                                   .ended_by_itself = true,
                                   .memory_peak = 799 * MIB,
                                   .memory_limit = 1000 * MIB,
                                   .uses = 1,
                                   .was_reset = true,
                                   .pids = 1,
                                   .memory = MIB };
}

struct spoilt {
    enum recycle_verdict why;
    void (*spoil)(struct recycle_facts *f);
};

#define SPOIL(name, what)                     \
    static void name(struct recycle_facts *f) \
    {                                         \
        f->what;                              \
    }
SPOIL(no_pool, pool_matches = false)
SPOIL(disabled, enabled = false)
SPOIL(full, pool_size = f->pool_max)
SPOIL(old, age_ms = 1001)
SPOIL(stopped, ended_by_itself = false)
SPOIL(refused, has_denials = true)
SPOIL(at_limit, at_limit = true)
SPOIL(no_peak, memory_peak = UINT64_MAX)
SPOIL(peak, memory_peak = 801 * MIB)
SPOIL(uses, uses = RECYCLE_USES_MAX)
SPOIL(failed, reset_failed = true)
SPOIL(no_pids, pids = UINT64_MAX)
SPOIL(no_memory, memory = UINT64_MAX)
SPOIL(left, processes_left = 1)
SPOIL(liar, pids = 2)
SPOIL(nobody, pids = 0)
SPOIL(sockets, sockets = 1)
SPOIL(altered, init_altered = true)
SPOIL(memory, memory = RECYCLE_MEMORY_MAX + 1)

static const struct spoilt before[] = {
    { RECYCLE_NO_POOL, no_pool }, { RECYCLE_DISABLED, disabled }, { RECYCLE_FULL, full },
    { RECYCLE_AGE, old },         { RECYCLE_STOPPED, stopped },   { RECYCLE_REFUSED, refused },
    { RECYCLE_LIMIT, at_limit },  { RECYCLE_UNCOUNTED, no_peak }, { RECYCLE_PEAK, peak },
    { RECYCLE_USES, uses },
};
static const struct spoilt after[] = {
    { RECYCLE_RESET, failed },    { RECYCLE_UNCOUNTED, no_pids }, { RECYCLE_UNCOUNTED, no_memory },
    { RECYCLE_PROCESSES, left },  { RECYCLE_PROCESSES, liar },    { RECYCLE_PROCESSES, nobody },
    { RECYCLE_SOCKETS, sockets }, { RECYCLE_ALTERED, altered },   { RECYCLE_MEMORY, memory },
};

TEST(a_sandbox_that_passes_every_check_is_recycled)
{
    struct recycle_facts f = good();

    assert_int_equal(recycle_decide(&f), RECYCLE_YES);
    f.was_reset = false;
    assert_int_equal(recycle_decide(&f), RECYCLE_YES);
    f.max_age_ms = 0; /* any age is allowed */
    f.age_ms = UINT64_MAX;
    assert_int_equal(recycle_decide(&f), RECYCLE_YES);
}

TEST(each_failed_check_has_its_own_verdict)
{
    for (size_t i = 0; i < ARRAY_LEN(before); i++)
        for (int reset = 0; reset < 2; reset++) {
            struct recycle_facts f = good();

            f.was_reset = reset;
            before[i].spoil(&f);
            if (recycle_decide(&f) != before[i].why)
                fail_msg("%s: %s", recycle_verdict_names[before[i].why], recycle_verdict_names[recycle_decide(&f)]);
        }
    for (size_t i = 0; i < ARRAY_LEN(after); i++) {
        struct recycle_facts f = good();

        after[i].spoil(&f);
        if (recycle_decide(&f) != after[i].why)
            fail_msg("%s: %s", recycle_verdict_names[after[i].why], recycle_verdict_names[recycle_decide(&f)]);
    }
}

TEST(the_first_of_several_failed_checks_counts)
{
    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        struct recycle_facts f = good();

        for (size_t j = i; j < ARRAY_LEN(before); j++)
            if (before[j].spoil != peak || before[i].spoil == peak)
                before[j].spoil(&f);
        for (size_t j = 0; j < ARRAY_LEN(after); j++)
            after[j].spoil(&f);
        if (recycle_decide(&f) != before[i].why)
            fail_msg("%s: %s", recycle_verdict_names[before[i].why], recycle_verdict_names[recycle_decide(&f)]);
    }
}

TEST(without_a_memory_limit_the_peak_is_not_checked)
{
    struct recycle_facts f = good();

    f.memory_limit = 0;
    assert_int_equal(recycle_decide(&f), RECYCLE_YES);
}

TEST(every_verdict_has_a_name)
{
    for (size_t i = 0; i < RECYCLE_COUNT; i++)
        assert_non_null(recycle_verdict_names[i]);
    assert_null(recycle_verdict_names[RECYCLE_COUNT]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_sandbox_that_passes_every_check_is_recycled),
        RUN(each_failed_check_has_its_own_verdict),
        RUN(the_first_of_several_failed_checks_counts),
        RUN(without_a_memory_limit_the_peak_is_not_checked),
        RUN(every_verdict_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
