#include "../test.h"

#include "runtime/mark.h"

#include <stdio.h>

static const struct mark_file file = { 'f', 1, 100, 10 }, dir = { 'd', 2, 100, 0 };

TEST(what_is_the_same_is_no_change)
{
    auto_(mark) m = mark_new();
    struct mark_file f;
    size_t at = 0;

    mark_add(m, "a", &file);
    mark_add(m, "d", &dir);
    mark_begin(m);
    assert_int_equal(mark_compare(m, "a", &file), 0);
    assert_int_equal(mark_compare(m, "d", &(struct mark_file){ 'd', 2, 999, 0 }), 0); /* only its entries changed */
    assert_null(mark_deleted(m, &at, &f));
}

TEST(each_sign_of_another_content_counts)
{
    static const struct mark_file others[] = {
        { 'f', 9, 100, 10 }, { 'f', 1, 101, 10 }, { 'f', 1, 100, 11 }, { 'l', 1, 100, 10 }
    };

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        auto_(mark) m = mark_new();

        mark_add(m, "a", &file);
        mark_begin(m);
        assert_int_equal(mark_compare(m, "a", &others[i]), RT_MODIFIED);
    }
}

TEST(new_and_missing_paths_are_told_by_name)
{
    auto_(mark) m = mark_new();
    struct mark_file f;
    size_t at = 0;

    mark_begin(m);
    assert_int_equal(mark_compare(m, "first", &file), RT_ADDED); /* an empty mark knows nothing */
    mark_add(m, "a/b", &file);
    mark_add(m, "a", &dir);
    mark_begin(m);
    assert_int_equal(mark_compare(m, "a", &dir), 0);
    assert_int_equal(mark_compare(m, "b", &file), RT_ADDED);
    assert_string_equal(mark_deleted(m, &at, &f), "a/b");
    assert_int_equal(f.size, 10);
    assert_null(mark_deleted(m, &at, &f));
    mark_begin(m); /* a second comparison starts afresh */
    at = 0;
    assert_non_null(mark_deleted(m, &at, &f));
}

TEST(a_full_mark_claims_nothing_it_does_not_know)
{
    auto_(mark) m = mark_new();
    char path[32];
    uint32_t n = 0;

    do
        snprintf(path, sizeof(path), "file-%u", n);
    while (mark_add(m, path, &file) && ++n < 1000000);
    assert_int_equal(n, MARK_ENTRIES_MAX);
    assert_int_equal(mark_count(m), n);
    assert_true(mark_truncated(m));
    mark_begin(m);
    assert_int_equal(mark_compare(m, "file-7", &file), 0);
    assert_int_equal(mark_compare(m, "file-99999", &dir), RT_MODIFIED);
    assert_int_equal(mark_compare(m, "unknown", &file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(what_is_the_same_is_no_change),
        RUN(each_sign_of_another_content_counts),
        RUN(new_and_missing_paths_are_told_by_name),
        RUN(a_full_mark_claims_nothing_it_does_not_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
