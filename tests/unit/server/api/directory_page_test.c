/* Pages of a directory whose entries arrive in any order. */
#include "tests/unit/test.h"

#include "server/api/directory_page.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

static void add(struct directory_page *l, const char *name)
{
    struct files_entry e = { .kind = 'f', .name = name, .target = "" };

    directory_page_add(l, &e);
}

TEST(every_name_is_on_exactly_one_sorted_page_for_any_input_order)
{
    enum { N = 1000 };
    static const size_t sizes[] = { 1, 7, 999, 1000, 1001 };

    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        auto_buf cursor = { 0 };
        unsigned seen = 0, pages = 0;
        bool more = true;

        while (more) {
            struct directory_page l;
            struct err err = { 0 };

            assert_int_equal(directory_page_init(&l, sizes[s], pages ? cursor.data : NULL, &err), 0);
            for (unsigned i = 0; i < N; i++) {
                char name[16];

                snprintf(name, sizeof(name), "%04u", (i * 617 + pages) % N);
                add(&l, name);
            }
            buf_clear(&cursor);
            more = directory_page_finish(&l, &cursor);
            for (size_t i = 0; i < l.n; i++, seen++) {
                char want[16];

                snprintf(want, sizeof(want), "%04u", seen);
                assert_string_equal(l.heap[i]->name, want);
            }
            pages++;
            directory_page_done(&l);
            assert_true(pages <= N);
        }
        assert_int_equal(seen, N);
        assert_int_equal(pages, (N + sizes[s] - 1) / sizes[s]);
    }
}

TEST(names_of_arbitrary_bytes_survive_the_cursor)
{
    auto_buf cursor = { 0 };
    struct err err = { 0 };
    struct directory_page l;
    char longest[256] = "";

    memset(longest, 'z', 255);
    assert_int_equal(directory_page_init(&l, 1, NULL, &err), 0);
    add(&l, "\xff");
    add(&l, longest);
    assert_true(directory_page_finish(&l, &cursor)); /* names compare as bytes, not as characters */
    assert_string_equal(l.heap[0]->name, longest);
    directory_page_done(&l);
    assert_int_equal(directory_page_init(&l, 1, cursor.data, &err), 0);
    add(&l, longest);
    add(&l, "\xff");
    assert_false(directory_page_finish(&l, &cursor));
    assert_int_equal(l.n, 1);
    assert_string_equal(l.heap[0]->name, "\xff");
    directory_page_done(&l);
}

TEST(an_invalid_cursor_is_refused)
{
    static const char *const bad[] = { "", "A", "YQ==", "Y Q", "AA", "Lw", "YWJj/w" };
    char large[400] = "";

    memset(large, 'Y', 344);
    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        struct err err = { 0 };
        struct directory_page l;

        assert_int_equal(directory_page_init(&l, 1, i < ARRAY_LEN(bad) ? bad[i] : large, &err), -1);
        assert_int_equal(err.id, ERR_INVALID);
        directory_page_done(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_name_is_on_exactly_one_sorted_page_for_any_input_order),
        RUN(names_of_arbitrary_bytes_survive_the_cursor),
        RUN(an_invalid_cursor_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
