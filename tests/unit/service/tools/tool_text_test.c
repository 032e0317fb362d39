#include "tests/unit/test.h"

#include "service/tools/tool_internal.h"

TEST(any_bytes_become_text_without_nul)
{
    auto_buf out = { 0 };

    tool_text_add(&out, "a\0b\xff\xe2\x82\xac\xe2\x82", 9);
    assert_string_equal(out.data, "a\xef\xbf\xbd"
                                  "b\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(cuts_fall_between_characters)
{
    static const char euro[] = "x\xe2\x82\xac\xf0\x9f\x98\x80";
    static const size_t whole[] = { 0, 1, 1, 1, 4, 4, 4, 4, 8 };

    for (size_t n = 0; n < ARRAY_LEN(whole); n++)
        if (tool_text_whole_length(euro, n) != whole[n])
            fail_msg("%zu of %zu bytes", tool_text_whole_length(euro, n), n);
    assert_int_equal(tool_text_broken_start("\x82\xac"
                                            "a",
                                            3),
                     2);
    assert_int_equal(tool_text_broken_start("a", 1), 0);
    assert_int_equal(tool_text_broken_start("\x82\x82\x82\x82", 4), 3);
}

TEST(parts_share_space_and_small_ones_leave_theirs)
{
    static const struct {
        uint64_t needs[3], space, shares[3];
    } rows[] = {
        { { 10, 20, 30 }, 100, { 10, 20, 30 } }, { { 10, 1000, 1000 }, 110, { 10, 50, 50 } },
        { { 1000, 0, 0 }, 90, { 90, 0, 0 } },    { { 40, 10, 1000 }, 90, { 40, 10, 40 } },
        { { 5, 5, 5 }, 0, { 0, 0, 0 } },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t shares[3];

        tool_text_share(rows[i].needs, shares, 3, rows[i].space);
        if (memcmp(shares, rows[i].shares, sizeof(shares)) != 0)
            fail_msg("row %zu: %" PRIu64 " %" PRIu64 " %" PRIu64, i, shares[0], shares[1], shares[2]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_become_text_without_nul),
        cmocka_unit_test(cuts_fall_between_characters),
        cmocka_unit_test(parts_share_space_and_small_ones_leave_theirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
