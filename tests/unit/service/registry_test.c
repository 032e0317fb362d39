/* The table of live sandboxes, without any sandbox behind the entries. */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "service/sandbox_internal.h"

#include <sched.h>

#define ENTRIES 3000 /* more than buckets */

static struct sandbox entries[ENTRIES];

static struct sandbox *entry(struct registry *r, size_t i, const char *owner)
{
    entries[i] = (struct sandbox){ 0 };
    snprintf(entries[i].id, sizeof(entries[i].id), "sb%zu", i);
    str_copy(entries[i].owner, sizeof(entries[i].owner), owner);
    registry_add(r, &entries[i]);
    return &entries[i];
}

static void on_empty(void *arg)
{
    ++*(int *)arg;
}

TEST(a_sandbox_is_found_by_its_owner_and_by_any_owner)
{
    auto_(registry) r = registry_new();
    struct sandbox *sb = entry(r, 1, "me");

    assert_ptr_equal(registry_find(r, "me", "sb1"), sb);
    assert_ptr_equal(registry_find(r, STORE_ANY_OWNER, "sb1"), sb);
    assert_null(registry_find(r, "other", "sb1"));
    assert_null(registry_find(r, "me", "sb2"));
    registry_rename(r, sb, "sb2");
    assert_null(registry_find(r, "me", "sb1"));
    assert_ptr_equal(registry_find(r, "me", "sb2"), sb);
    assert_int_equal(registry_count(r), 1);
}

TEST(every_sandbox_is_visited_once_and_may_be_removed_from_a_snapshot)
{
    auto_(registry) r = registry_new();
    size_t n = 0;
    int empty = 0;

    assert_null(registry_next(r, NULL));
    for (size_t i = 0; i < ENTRIES; i++)
        entry(r, i, "me");
    registry_set_on_empty(r, on_empty, &empty);
    for (struct sandbox *sb = NULL; (sb = registry_next(r, sb)); n++)
        assert_int_equal(sb->use_count++, 0);
    assert_int_equal(n, ENTRIES);
    auto_free struct sandbox **all = registry_snapshot(r);
    for (n = 0; all[n]; n++) {
        assert_int_equal(empty, 0);
        registry_remove(r, all[n]);
    }
    assert_int_equal(n, ENTRIES);
    assert_int_equal(empty, 1);
    assert_int_equal(registry_count(r), 0);
}

TEST(the_least_pinned_cpu_is_chosen_until_its_sandbox_is_removed)
{
    auto_(registry) r = registry_new();
    struct sandbox *sb = entry(r, 1, "me");
    cpu_set_t allowed;

    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    uint64_t first = registry_choose_cpus(r, 1, 0);
    assert_int_equal(__builtin_popcountll(first), 1);
    assert_int_equal(registry_choose_cpus(r, 1000, first), first);
    assert_int_equal(registry_choose_cpus(r, 0, 0), 0);
    registry_pin_cpus(r, sb, first);
    if (CPU_COUNT(&allowed) > 1)
        assert_int_not_equal(registry_choose_cpus(r, 1, 0), first);
    registry_remove(r, sb);
    assert_int_equal(registry_choose_cpus(r, 1, 0), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_sandbox_is_found_by_its_owner_and_by_any_owner),
        RUN(every_sandbox_is_visited_once_and_may_be_removed_from_a_snapshot),
        RUN(the_least_pinned_cpu_is_chosen_until_its_sandbox_is_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
