#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "inside/runtime/unacked_data.h"

/* Formats all kept bytes as "channel:bytes|..." in pieces of at most max bytes. */
static void show(struct unacked_data *k, size_t max, struct buf *out)
{
    uint8_t piece[256], channel = 9;
    size_t pos = 0;

    buf_clear(out);
    for (size_t n; (n = unacked_data_read(k, pos, &channel, piece, max)) > 0; pos += n)
        buf_addf(out, "%u:%.*s|", channel, (int)n, (char *)piece);
}

TEST(order_across_channels_is_kept_and_adjacent_bytes_are_joined)
{
    struct unacked_data k = { 0 };
    auto_buf out = { 0 };

    unacked_data_add(&k, 1, "ab", 2, true);
    unacked_data_add(&k, 1, "c", 1, true);
    unacked_data_add(&k, 2, "X", 1, true);
    unacked_data_add(&k, 1, "d", 1, true);
    show(&k, 256, &out);
    assert_string_equal(out.data, "1:abc|2:X|1:d|");
    show(&k, 2, &out);
    assert_string_equal(out.data, "1:ab|1:c|2:X|1:d|");
    unacked_data_done(&k);
}

TEST(units_are_not_joined)
{
    struct unacked_data k = { 0 };
    auto_buf out = { 0 };

    unacked_data_add(&k, 0, "one", 3, false);
    unacked_data_add(&k, 0, "two", 3, false);
    show(&k, 256, &out);
    assert_string_equal(out.data, "0:one|0:two|");
    unacked_data_done(&k);
}

TEST(a_credit_may_end_inside_a_run_but_not_exceed_the_data)
{
    struct unacked_data k = { 0 };
    auto_buf out = { 0 };

    unacked_data_add(&k, 1, "abc", 3, true);
    unacked_data_add(&k, 2, "de", 2, true);
    assert_false(unacked_data_drop(&k, 6));
    assert_true(unacked_data_drop(&k, 2));
    show(&k, 256, &out);
    assert_string_equal(out.data, "1:c|2:de|");
    assert_true(unacked_data_drop(&k, 2));
    show(&k, 256, &out);
    assert_string_equal(out.data, "2:e|");
    assert_true(unacked_data_drop(&k, 1));
    assert_int_equal(k.len, 0);
    assert_true(unacked_data_drop(&k, 0));
    unacked_data_done(&k);
}

TEST(bytes_survive_any_number_of_wraps_of_the_ring)
{
    struct unacked_data k = { 0 };
    uint8_t in = 0, out = 0, piece[700], channel;
    uint32_t seed = 1;

    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525u + 1013904223u;
        size_t n = seed >> 20 & 511;
        if (seed & 1 && k.len < 9000) {
            for (size_t i = 0; i < n; i++)
                piece[i] = in++;
            unacked_data_add(&k, (uint8_t)(1 + (seed >> 8 & 1)), piece, n, true);
        } else {
            n = min_size(n, k.len);
            for (size_t done = 0, got; done < n; done += got) {
                got = unacked_data_read(&k, done, &channel, piece, n - done);
                assert_true(got > 0);
                for (size_t i = 0; i < got; i++)
                    if (piece[i] != out++)
                        fail_msg("round %d", round);
            }
            assert_true(unacked_data_drop(&k, n));
        }
    }
    unacked_data_done(&k);
}

TEST(a_window_of_one_byte_runs_is_read_in_one_pass)
{
    struct unacked_data k = { 0 };
    uint8_t byte, channel;

    for (size_t i = 0; i < 262144; i++)
        unacked_data_add(&k, (uint8_t)(1 + i % 2), i % 2 ? "b" : "a", 1, true);
    for (size_t i = 0; i < 262144; i++) { /* a search from the start for each byte would take minutes */
        assert_int_equal(unacked_data_read(&k, i, &channel, &byte, 1), 1);
        if (channel != 1 + i % 2 || byte != (i % 2 ? 'b' : 'a'))
            fail_msg("byte %zu", i);
    }
    assert_int_equal(unacked_data_read(&k, 262144, &channel, &byte, 1), 0);
    assert_int_equal(unacked_data_read(&k, 5, &channel, &byte, 1), 1); /* and backwards */
    assert_int_equal(channel, 2);
    unacked_data_done(&k);
}

TEST(an_empty_large_ring_is_freed)
{
    struct unacked_data k = { 0 };
    static uint8_t big[200000];

    unacked_data_add(&k, 1, big, sizeof(big), true);
    assert_true(unacked_data_drop(&k, sizeof(big)));
    assert_null(k.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(order_across_channels_is_kept_and_adjacent_bytes_are_joined),
        RUN(units_are_not_joined),
        RUN(a_credit_may_end_inside_a_run_but_not_exceed_the_data),
        RUN(bytes_survive_any_number_of_wraps_of_the_ring),
        RUN(a_window_of_one_byte_runs_is_read_in_one_pass),
        RUN(an_empty_large_ring_is_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
