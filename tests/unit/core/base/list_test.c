#include "tests/unit/test.h"

#include "core/base/list.h"

struct element {
    struct element *next, **link;
    char name;
};

static void assert_list(const struct element *first, const char *names)
{
    for (; *names; names++, first = first->next) {
        assert_non_null(first);
        assert_int_equal(first->name, *names);
    }
    assert_null(first);
}

TEST(push_adds_at_the_front_and_append_at_the_end)
{
    struct element a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' }, *list = NULL;

    list_append(&list, &b);
    list_push(&list, &a);
    list_append(&list, &c);
    assert_list(list, "abc");
}

TEST(remove_takes_the_first_the_middle_and_the_last_element)
{
    struct element a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' }, *list = NULL;

    list_append(&list, &a);
    list_append(&list, &b);
    list_append(&list, &c);
    list_remove(&list, &b);
    assert_list(list, "ac");
    list_remove(&list, &c);
    assert_list(list, "a");
    list_remove(&list, &a);
    assert_list(list, "");
}

TEST(linked_remove_needs_no_head_and_may_come_twice)
{
    struct element a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' }, *list = NULL;

    linked_push(&list, &c);
    linked_push(&list, &b);
    linked_push(&list, &a);
    assert_list(list, "abc");
    linked_remove(&b);
    assert_null(b.link);
    linked_remove(&b);
    assert_list(list, "ac");
    linked_remove(&a);
    assert_ptr_equal(c.link, &list);
    linked_remove(&c);
    assert_list(list, "");
}

TEST(a_loop_goes_on_after_it_removed_its_element)
{
    struct element a = { .name = 'a' }, b = { .name = 'b' }, *list = NULL;
    int seen = 0;

    linked_push(&list, &b);
    linked_push(&list, &a);
    for (struct element *e = list; e; e = e->next) {
        linked_remove(e);
        seen++;
    }
    assert_int_equal(seen, 2);
    assert_null(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(push_adds_at_the_front_and_append_at_the_end),
        RUN(remove_takes_the_first_the_middle_and_the_last_element),
        RUN(linked_remove_needs_no_head_and_may_come_twice),
        RUN(a_loop_goes_on_after_it_removed_its_element),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
