#include "tests/unit/test.h"

#include "inside/runtime/snapshot.h"

#include <stdio.h>

static const struct snapshot_file file = { 'f', 1, 100, 10 }, dir = { 'd', 2, 100, 0 };

TEST(an_unchanged_entry_is_not_reported)
{
    auto_(snapshot) m = snapshot_new();
    struct snapshot_file f;
    size_t at = 0;

    snapshot_add(m, "a", &file);
    snapshot_add(m, "d", &dir);
    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "a", &file), 0);
    /* Only its entries changed. */
    assert_int_equal(snapshot_compare(m, "d", &(struct snapshot_file){ 'd', 2, 999, 0 }), 0);
    assert_null(snapshot_next_deleted(m, &at, &f));
}

TEST(any_changed_property_counts_as_modified)
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

TEST(added_and_deleted_paths_are_reported)
{
    auto_(snapshot) m = snapshot_new();
    struct snapshot_file f;
    size_t at = 0;

    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "first", &file), RT_ADDED); /* an empty snapshot contains no paths */
    snapshot_add(m, "a/b", &file);
    snapshot_add(m, "a", &dir);
    snapshot_begin_compare(m);
    assert_int_equal(snapshot_compare(m, "a", &dir), 0);
    assert_int_equal(snapshot_compare(m, "b", &file), RT_ADDED);
    assert_string_equal(snapshot_next_deleted(m, &at, &f), "a/b");
    assert_int_equal(f.size, 10);
    assert_null(snapshot_next_deleted(m, &at, &f));
    snapshot_begin_compare(m); /* a second comparison starts from the beginning */
    at = 0;
    assert_non_null(snapshot_next_deleted(m, &at, &f));
}

TEST(a_truncated_snapshot_reports_no_unknown_path_as_added)
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
        RUN(an_unchanged_entry_is_not_reported),
        RUN(any_changed_property_counts_as_modified),
        RUN(added_and_deleted_paths_are_reported),
        RUN(a_truncated_snapshot_reports_no_unknown_path_as_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
