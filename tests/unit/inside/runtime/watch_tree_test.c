#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "inside/runtime/watch_tree.h"

static void note(void *arg, int wd)
{
    buf_addf(arg, "%d ", wd);
}

static const char *path_of(const struct watch_node *n, const char *name)
{
    static char out[64];

    return watch_tree_path(n, name, out, sizeof(out)) ? out : NULL;
}

TEST(a_moved_directory_keeps_everything_below_it)
{
    struct watch_tree t = { 0 };
    struct watch_node *root = watch_tree_add(&t, NULL, "", 1), *a = watch_tree_add(&t, root, "a", 2),
                      *b = watch_tree_add(&t, a, "b", 3);
    struct watch_node *c = watch_tree_add(&t, root, "c", 4);

    assert_string_equal(path_of(root, ""), "");
    assert_string_equal(path_of(root, "f"), "f");
    assert_string_equal(path_of(b, "f"), "a/b/f");
    assert_string_equal(path_of(b, ""), "a/b");
    assert_true(watch_tree_move(a, c, "new"));
    assert_string_equal(path_of(b, "f"), "c/new/b/f");
    assert_null(watch_tree_child(root, "a"));
    assert_ptr_equal(watch_tree_child(c, "new"), a);
    assert_ptr_equal(watch_tree_find(&t, 3), b);
    watch_tree_done(&t);
}

TEST(missed_and_unread_directories_are_queued_after_a_move)
{
    struct watch_tree t = { 0 };
    struct watch_node *root = watch_tree_add(&t, NULL, "", 1), *a = watch_tree_add(&t, root, "a", 2),
                      *b = watch_tree_add(&t, a, "b", 3);
    struct watch_node *c = watch_tree_add(&t, a, "c", 4), *other = watch_tree_add(&t, root, "other", 5);

    assert_true(watch_tree_add_missed(&t, b, "x", true));
    assert_true(watch_tree_add_missed(&t, b, "y", false));
    assert_true(watch_tree_add_missed(&t, other, "z", true));
    watch_tree_queue_read(&t, c, true);
    assert_ptr_equal(watch_tree_next(&t), c); /* assume that it could not be opened */
    assert_null(watch_tree_next(&t));
    watch_tree_requeue_below(&t, a);
    watch_tree_remove_missed(&t, b, "x");
    watch_tree_remove_missed(&t, b, "none");
    for (struct watch_node *n, *last = NULL; (n = watch_tree_next(&t)); last = n)
        assert_true((n == b || n == c) && n != last);
    assert_true(c->unread);
    assert_false(b->unread);
    struct watch_missed_dir *m = watch_tree_take_missed(&t, b);
    assert_string_equal(m->name, "y");
    assert_false(m->report_entries);
    free(m);
    assert_null(watch_tree_take_missed(&t, b));
    assert_int_equal(t.missed, 1);
    watch_tree_done(&t);
    assert_int_equal(t.missed, 0);
}

TEST(a_directory_cannot_move_below_itself)
{
    struct watch_tree t = { 0 };
    struct watch_node *root = watch_tree_add(&t, NULL, "", 1), *a = watch_tree_add(&t, root, "a", 2),
                      *b = watch_tree_add(&t, a, "b", 3);

    assert_false(watch_tree_move(a, b, "a"));
    assert_false(watch_tree_move(a, a, "a"));
    assert_string_equal(path_of(b, ""), "a/b");
    watch_tree_done(&t);
}

TEST(dropping_reports_each_descriptor_once_and_keeps_the_queue_intact)
{
    struct watch_tree t = { 0 };
    struct watch_node *root = watch_tree_add(&t, NULL, "", 1), *a = watch_tree_add(&t, root, "a", 2),
                      *b = watch_tree_add(&t, root, "b", 3);
    struct watch_node *c = watch_tree_add(&t, a, "c", 1026); /* same bucket as a */
    auto_buf told = { 0 };

    watch_tree_queue_read(&t, a, true);
    watch_tree_queue_read(&t, b, false);
    watch_tree_queue_read(&t, c, true);
    watch_tree_queue_read(&t, b, true); /* again: keeps its position */
    watch_tree_drop(&t, a, note, &told);
    assert_string_equal(told.data, "1026 2 ");
    assert_null(watch_tree_find(&t, 2));
    assert_null(watch_tree_find(&t, 1026));
    assert_int_equal(t.count, 2);
    assert_ptr_equal(watch_tree_next(&t), b);
    assert_true(b->report_entries);
    assert_null(watch_tree_next(&t));
    watch_tree_done(&t);
    assert_int_equal(t.count, 0);
}

TEST(directories_not_seen_in_a_scan_are_dropped)
{
    struct watch_tree t = { 0 };
    struct watch_node *root = watch_tree_add(&t, NULL, "", 1), *a = watch_tree_add(&t, root, "a", 2);
    auto_buf told = { 0 };

    watch_tree_add(&t, a, "c", 1026);
    watch_tree_add(&t, root, "d", 5)->scan_round = 7;
    root->scan_round = 7;
    watch_tree_drop_stale(&t, 7, note, &told);
    assert_int_equal(t.count, 2);
    assert_null(watch_tree_find(&t, 2));
    assert_null(watch_tree_find(&t, 1026));
    assert_non_null(watch_tree_find(&t, 5));
    watch_tree_done(&t);
}

TEST(trees_and_paths_are_bounded)
{
    struct watch_tree t = { 0 };
    struct watch_node *n = watch_tree_add(&t, NULL, "", 0);

    for (unsigned i = 1; i < WATCH_TREE_MAX; i++) {
        n = watch_tree_add(&t, n, "ab", (int)i);
        assert_non_null(n);
    }
    assert_null(watch_tree_add(&t, n, "more", WATCH_TREE_MAX));
    assert_null(path_of(n, "f"));
    n = watch_tree_find(&t, 20);
    assert_int_equal(strlen(path_of(n, "abc")), 63); /* 20 times "ab/", and the name */
    assert_null(path_of(n, "abcd"));
    watch_tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_moved_directory_keeps_everything_below_it),
        RUN(missed_and_unread_directories_are_queued_after_a_move),
        RUN(a_directory_cannot_move_below_itself),
        RUN(dropping_reports_each_descriptor_once_and_keeps_the_queue_intact),
        RUN(directories_not_seen_in_a_scan_are_dropped),
        RUN(trees_and_paths_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
