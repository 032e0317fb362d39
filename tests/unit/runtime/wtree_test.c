#include "../test.h"

#include "base/buf.h"
#include "runtime/wtree.h"

static void note(void *arg, int wd)
{
    buf_addf(arg, "%d ", wd);
}

static const char *path_of(const struct wnode *n, const char *name)
{
    static char out[64];

    return wtree_path(n, name, out, sizeof(out)) ? out : NULL;
}

TEST(a_directory_that_moves_takes_what_is_below_it_along)
{
    struct wtree t = { 0 };
    struct wnode *root = wtree_add(&t, NULL, "", 1), *a = wtree_add(&t, root, "a", 2), *b = wtree_add(&t, a, "b", 3);
    struct wnode *c = wtree_add(&t, root, "c", 4);

    assert_string_equal(path_of(root, ""), "");
    assert_string_equal(path_of(root, "f"), "f");
    assert_string_equal(path_of(b, "f"), "a/b/f");
    assert_string_equal(path_of(b, ""), "a/b");
    assert_true(wtree_move(a, c, "new"));
    assert_string_equal(path_of(b, "f"), "c/new/b/f");
    assert_null(wtree_child(root, "a"));
    assert_ptr_equal(wtree_child(c, "new"), a);
    assert_ptr_equal(wtree_find(&t, 3), b);
    wtree_done(&t);
}

TEST(what_was_missed_or_not_read_below_a_directory_is_queued_when_it_is_found)
{
    struct wtree t = { 0 };
    struct wnode *root = wtree_add(&t, NULL, "", 1), *a = wtree_add(&t, root, "a", 2), *b = wtree_add(&t, a, "b", 3);
    struct wnode *c = wtree_add(&t, a, "c", 4), *other = wtree_add(&t, root, "other", 5);

    assert_true(wtree_miss(&t, b, "x", true));
    assert_true(wtree_miss(&t, b, "y", false));
    assert_true(wtree_miss(&t, other, "z", true));
    wtree_queue(&t, c, true);
    assert_ptr_equal(wtree_next(&t), c); /* and it could not be opened: */
    assert_null(wtree_next(&t));
    wtree_found(&t, a);
    wtree_unmiss(&t, b, "x");
    wtree_unmiss(&t, b, "none");
    for (struct wnode *n, *last = NULL; (n = wtree_next(&t)); last = n)
        assert_true((n == b || n == c) && n != last);
    assert_true(c->unread);
    assert_false(b->unread);
    struct wmissed *m = wtree_missed(&t, b);
    assert_string_equal(m->name, "y");
    assert_false(m->announce);
    free(m);
    assert_null(wtree_missed(&t, b));
    assert_int_equal(t.missed, 1);
    wtree_done(&t);
    assert_int_equal(t.missed, 0);
}

TEST(a_directory_never_moves_below_itself)
{
    struct wtree t = { 0 };
    struct wnode *root = wtree_add(&t, NULL, "", 1), *a = wtree_add(&t, root, "a", 2), *b = wtree_add(&t, a, "b", 3);

    assert_false(wtree_move(a, b, "a"));
    assert_false(wtree_move(a, a, "a"));
    assert_string_equal(path_of(b, ""), "a/b");
    wtree_done(&t);
}

TEST(dropping_tells_every_descriptor_below_once_and_leaves_the_queue_whole)
{
    struct wtree t = { 0 };
    struct wnode *root = wtree_add(&t, NULL, "", 1), *a = wtree_add(&t, root, "a", 2), *b = wtree_add(&t, root, "b", 3);
    struct wnode *c = wtree_add(&t, a, "c", 1026); /* in the bucket of a */
    auto_buf told = { 0 };

    wtree_queue(&t, a, true);
    wtree_queue(&t, b, false);
    wtree_queue(&t, c, true);
    wtree_queue(&t, b, true); /* again: its place stays */
    wtree_drop(&t, a, note, &told);
    assert_string_equal(told.data, "1026 2 ");
    assert_null(wtree_find(&t, 2));
    assert_null(wtree_find(&t, 1026));
    assert_int_equal(t.count, 2);
    assert_ptr_equal(wtree_next(&t), b);
    assert_true(b->announce);
    assert_null(wtree_next(&t));
    wtree_done(&t);
    assert_int_equal(t.count, 0);
}

TEST(what_was_not_seen_in_a_round_is_swept)
{
    struct wtree t = { 0 };
    struct wnode *root = wtree_add(&t, NULL, "", 1), *a = wtree_add(&t, root, "a", 2);
    auto_buf told = { 0 };

    wtree_add(&t, a, "c", 1026);
    wtree_add(&t, root, "d", 5)->round = 7;
    root->round = 7;
    wtree_sweep(&t, 7, note, &told);
    assert_int_equal(t.count, 2);
    assert_null(wtree_find(&t, 2));
    assert_null(wtree_find(&t, 1026));
    assert_non_null(wtree_find(&t, 5));
    wtree_done(&t);
}

TEST(a_tree_has_a_bound_and_a_path_too)
{
    struct wtree t = { 0 };
    struct wnode *n = wtree_add(&t, NULL, "", 0);

    for (unsigned i = 1; i < WTREE_MAX; i++) {
        n = wtree_add(&t, n, "ab", (int)i);
        assert_non_null(n);
    }
    assert_null(wtree_add(&t, n, "more", WTREE_MAX));
    assert_null(path_of(n, "f"));
    n = wtree_find(&t, 20);
    assert_int_equal(strlen(path_of(n, "abc")), 63); /* 20 times "ab/", and the name */
    assert_null(path_of(n, "abcd"));
    wtree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_directory_that_moves_takes_what_is_below_it_along),
        RUN(what_was_missed_or_not_read_below_a_directory_is_queued_when_it_is_found),
        RUN(a_directory_never_moves_below_itself),
        RUN(dropping_tells_every_descriptor_below_once_and_leaves_the_queue_whole),
        RUN(what_was_not_seen_in_a_round_is_swept),
        RUN(a_tree_has_a_bound_and_a_path_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
