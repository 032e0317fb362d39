#include "tests/unit/test.h"

#include "core/base/histogram.h"

TEST(a_duration_counts_in_the_first_bucket_whose_bound_is_above_it)
{
    static const struct {
        uint64_t ns;
        unsigned bucket;
    } durations[] = {
        { 0, 0 },
        { NS_PER_MS - 1, 0 },
        { NS_PER_MS, 1 },
        { 2 * NS_PER_MS - 1, 1 },
        { 2 * NS_PER_MS, 2 },
        { 4096 * NS_PER_MS - 1, 12 },
        { 4096 * NS_PER_MS, 13 },
        { UINT64_MAX / 2, 13 },
    };

    for (size_t i = 0; i < ARRAY_LEN(durations); i++) {
        struct histogram h = { 0 };

        histogram_add(&h, durations[i].ns);
        for (unsigned b = 0; b < HISTOGRAM_BUCKETS; b++)
            if (h.counts[b] != (b == durations[i].bucket))
                fail_msg("%" PRIu64 " ns: bucket %u holds %" PRIu64, durations[i].ns, b, h.counts[b]);
        assert_int_equal(h.sum_ns, durations[i].ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_duration_counts_in_the_first_bucket_whose_bound_is_above_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
