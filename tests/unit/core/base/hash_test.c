#include "tests/unit/test.h"

#include "core/base/hash.h"

/* Values of the FNV-1a reference, 64 bits. */
TEST(strings_hash_to_the_values_of_fnv_1a)
{
    assert_true(hash_str(HASH_INIT, "") == 0xcbf29ce484222325ull);
    assert_true(hash_str(HASH_INIT, "a") == 0xaf63dc4c8601ec8cull);
    assert_true(hash_str(HASH_INIT, "foobar") == 0x85944171f73967e8ull);
}

TEST(a_hash_can_be_continued)
{
    assert_true(hash_str(hash_str(HASH_INIT, "foo"), "bar") == hash_bytes(HASH_INIT, "foobar", 6));
}

TEST(folding_brings_high_bits_into_the_index)
{
    assert_int_not_equal(hash_fold(1ull << 40) & 0xfff, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(strings_hash_to_the_values_of_fnv_1a),
        RUN(a_hash_can_be_continued),
        RUN(folding_brings_high_bits_into_the_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
