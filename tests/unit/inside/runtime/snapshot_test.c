#include "tests/unit/test.h"

#include "inside/runtime/snapshot.h"

#include <stdio.h>

static const struct snapshot_file file = { 'f', 1, 100, 10 }, dir = { 'd', 2, 100, 0 };

TEST(what_is_the_same_is_no_change)
{
    auto_(snapshot) m = snapshot_new();
    struct snapshot_file f;
    size_t at = 0;

    snapshot_add(m, "a", &file);
    snapshot_add(m, "d", &dir);
    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "a", &file), 0);
    assert_int_equal(snapshot_compare(m, "d", &(struct snapshot_file){ 'd', 2, 999, 0 }),
                     0); /* only its entries changed */
    assert_null(snapshot_next_deleted(m, &at, &f));
}

TEST(each_sign_of_another_content_counts)
{
    static const struct snapshot_file others[] = {
        { 'f', 9, 100, 10 }, { 'f', 1, 101, 10 }, { 'f', 1, 100, 11 }, { 'l', 1, 100, 10 }
    };

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        auto_(snapshot) m = snapshot_new();

        snapshot_add(m, "a", &file);
        snapshot_begin_compare(m);
        assert_int_equal(snapshot_compare(m, "a", &others[i]), RT_MODIFIED);
    }
}

TEST(new_and_missing_paths_are_told_by_name)
{
    auto_(snapshot) m = snapshot_new();
    struct snapshot_file f;
    size_t at = 0;

    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "first", &file), RT_ADDED); /* an empty mark knows nothing */
    snapshot_add(m, "a/b", &file);
    snapshot_add(m, "a", &dir);
    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "a", &dir), 0);
    assert_int_equal(snapshot_compare(m, "b", &file), RT_ADDED);
    assert_string_equal(snapshot_next_deleted(m, &at, &f), "a/b");
    assert_int_equal(f.size, 10);
    assert_null(snapshot_next_deleted(m, &at, &f));
    snapshot_begin_compare(m); /* a second comparison starts afresh */
    at = 0;
    assert_non_null(snapshot_next_deleted(m, &at, &f));
}

TEST(a_full_mark_claims_nothing_it_does_not_know)
{
    auto_(snapshot) m = snapshot_new();
    char path[32];
    uint32_t n = 0;

    do
        snprintf(path, sizeof(path), "file-%u", n);
    while (snapshot_add(m, path, &file) && ++n < 1000000);
    assert_int_equal(n, SNAPSHOT_ENTRIES_MAX);
    assert_int_equal(snapshot_count(m), n);
    assert_true(snapshot_truncated(m));
    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "file-7", &file), 0);
    assert_int_equal(snapshot_compare(m, "file-99999", &dir), RT_MODIFIED);
    assert_int_equal(snapshot_compare(m, "unknown", &file), 0);
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
