#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/template_cache.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define NOW (1000 * NS_PER_S)

static struct ev *loop;
static struct store *store;
static struct template_cache *shelf;
static char dir[64];

static bool answered;
static enum err_id failure;
static uint64_t generation;

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-shelf-XXXXXX" : "/tmp/cove-shelf-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    auto_free char *path = str_printf("%s/cove.db", dir);
    if (store_open(loop, &(struct store_settings){ .path = path }, &store, &err) < 0)
        fail_msg("%s", err.msg);
    shelf = template_cache_new(store);
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    template_cache_free(shelf);
    store_close(store);
    ev_free(loop);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void on_row(void *arg UNUSED, const struct err *err, const struct store_template *row)
{
    answered = true;
    failure = err ? err->id : ERR_NONE;
    generation = row ? row->generation : 0;
}

static void await(void)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    while (!answered) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
}

/* Whether it was there at once. */
static bool ask(const char *name, uint64_t now_ns)
{
    answered = false;
    template_cache_get(shelf, name, now_ns, on_row, NULL);
    bool at_once = answered;
    await();
    return at_once;
}

static void put(void)
{
    struct store_template row = { .name = "mine", .spec_json = (char *)"{\"runtime\":\"sh\"}", .created_ms = 1 };

    answered = false;
    store_template_put(store, &row, NULL, on_row, NULL);
    await();
    assert_int_equal(failure, ERR_NONE);
}

TEST(what_was_found_is_there_at_once_for_a_second)
{
    assert_false(ask("python", NOW));
    assert_true(ask("python", NOW + NS_PER_S - 1));
    assert_int_equal(failure, ERR_NONE);
    assert_int_equal(generation, 1);
    assert_false(ask("python", NOW + NS_PER_S));
    assert_true(ask("python", NOW + NS_PER_S));
}

TEST(what_was_changed_is_read_anew)
{
    put();
    assert_false(ask("mine", NOW));
    assert_int_equal(generation, 1);
    put();
    template_cache_invalidate(shelf, "mine");
    assert_false(ask("mine", NOW));
    assert_int_equal(generation, 2);
    assert_true(ask("mine", NOW));
    assert_int_equal(generation, 2);
}

TEST(what_was_asked_for_before_a_change_is_not_kept_behind_it)
{
    put();
    answered = false;
    template_cache_get(shelf, "mine", NOW, on_row, NULL);
    template_cache_invalidate(shelf, "mine");
    await();
    assert_false(ask("mine", NOW));
    assert_true(ask("mine", NOW));
}

TEST(what_there_is_not_is_looked_for_each_time)
{
    assert_false(ask("mine", NOW));
    assert_int_equal(failure, ERR_MISSING);
    put();
    assert_false(ask("mine", NOW));
    assert_int_equal(failure, ERR_NONE);
}

TEST(more_than_there_is_room_for_push_each_other_out)
{
    assert_false(ask("bash", NOW));
    for (int i = 0; i < 16; i++) {
        struct store_template row = { .spec_json = (char *)"{\"runtime\":\"sh\"}", .created_ms = 1 };

        snprintf(row.name, sizeof(row.name), "t%d", i);
        answered = false;
        store_template_put(store, &row, NULL, on_row, NULL);
        await();
        assert_false(ask(row.name, NOW));
        assert_true(ask(row.name, NOW));
    }
    assert_false(ask("bash", NOW));
}

TEST(who_waits_when_it_goes_is_answered_all_the_same)
{
    answered = false;
    template_cache_get(shelf, "python", NOW, on_row, NULL);
    template_cache_free(take_ptr(&shelf));
    await();
    assert_int_equal(failure, ERR_NONE);
}

#define RUN_SHELF(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_SHELF(what_was_found_is_there_at_once_for_a_second),
        RUN_SHELF(what_was_changed_is_read_anew),
        RUN_SHELF(what_was_asked_for_before_a_change_is_not_kept_behind_it),
        RUN_SHELF(what_there_is_not_is_looked_for_each_time),
        RUN_SHELF(more_than_there_is_room_for_push_each_other_out),
        RUN_SHELF(who_waits_when_it_goes_is_answered_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
