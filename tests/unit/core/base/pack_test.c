#include "tests/unit/test.h"

#include "core/base/pack.h"

TEST(packed_values_unpack_unchanged)
{
    uint8_t mem[128];
    struct pack p;
    struct unpack u;
    char s[8];
    size_t n;

    pack_init(&p, mem, sizeof(mem));
    pack_u8(&p, 0xab);
    pack_u16(&p, 0x1234);
    pack_u32(&p, 0xdeadbeef);
    pack_u64(&p, UINT64_MAX - 1);
    pack_str(&p, "hello");
    pack_bytes(&p, "\0\1", 2);
    assert_false(p.bad);
    assert_int_equal(mem[1], 0x34); /* little-endian on every host */

    unpack_init(&u, mem, p.len);
    assert_int_equal(unpack_u8(&u), 0xab);
    assert_int_equal(unpack_u16(&u), 0x1234);
    assert_int_equal(unpack_u32(&u), 0xdeadbeef);
    assert_true(unpack_u64(&u) == UINT64_MAX - 1);
    unpack_str(&u, s, sizeof(s));
    assert_string_equal(s, "hello");
    assert_memory_equal(unpack_bytes(&u, 2, &n), "\0\1", 2);
    assert_true(unpack_end(&u));
}

TEST(errors_are_sticky_and_later_reads_return_zero)
{
    struct unpack u;

    unpack_init(&u, "\1\2\3", 3);
    assert_int_equal(unpack_u32(&u), 0);
    assert_int_equal(unpack_u8(&u), 0);
    assert_false(unpack_end(&u));
}

TEST(a_length_beyond_the_input_or_the_maximum_is_refused)
{
    struct unpack u;
    size_t n;
    char s[4];

    unpack_init(&u, "\xff\xff\xff\xff", 4);
    assert_null(unpack_bytes(&u, UINT32_MAX, &n));
    assert_true(u.bad);
    unpack_init(&u, "\4\0\0\0abcd", 8);
    unpack_str(&u, s, sizeof(s)); /* four letters and a NUL do not fit into four bytes */
    assert_true(u.bad);
    unpack_init(&u, "\2\0\0\0a\0", 6);
    unpack_str(&u, s, sizeof(s)); /* a NUL inside would silently shorten the string */
    assert_true(u.bad);
}

TEST(packing_past_the_end_writes_nothing)
{
    uint8_t mem[4] = { 9, 9, 9, 9 };
    struct pack p;

    pack_init(&p, mem, 3);
    pack_u16(&p, 1);
    pack_u16(&p, 2);
    pack_u8(&p, 3);
    assert_true(p.bad);
    assert_int_equal(p.len, 2);
    assert_int_equal(mem[2], 9);
}

TEST(unpack_end_fails_if_bytes_are_left)
{
    struct unpack u;

    unpack_init(&u, "\1\2", 2);
    unpack_u8(&u);
    assert_false(unpack_end(&u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(packed_values_unpack_unchanged),
        RUN(errors_are_sticky_and_later_reads_return_zero),
        RUN(a_length_beyond_the_input_or_the_maximum_is_refused),
        RUN(packing_past_the_end_writes_nothing),
        RUN(unpack_end_fails_if_bytes_are_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
