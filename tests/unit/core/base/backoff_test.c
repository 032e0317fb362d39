#include "tests/unit/test.h"

#include "core/base/backoff.h"

TEST(each_wait_is_twice_the_one_before_up_to_the_longest)
{
    static const uint64_t waits[] = { 100, 200, 400, 800, 1000, 1000 };
    struct backoff b = { .min_ns = 100, .max_ns = 1000 };

    for (size_t i = 0; i < ARRAY_LEN(waits); i++)
        assert_int_equal(backoff_next(&b), waits[i]);
}

TEST(a_reset_begins_with_the_shortest_wait_again)
{
    struct backoff b = { .min_ns = 100, .max_ns = 1000 };

    backoff_next(&b);
    backoff_next(&b);
    backoff_reset(&b);
    assert_int_equal(b.wait_ns, 0);
    assert_int_equal(backoff_next(&b), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(each_wait_is_twice_the_one_before_up_to_the_longest),
        RUN(a_reset_begins_with_the_shortest_wait_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
