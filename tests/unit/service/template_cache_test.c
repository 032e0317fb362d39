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
static struct template_cache *cache;
static char dir[64];

static bool answered;
static enum err_id failure;
static uint64_t generation;

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-cache-XXXXXX" : "/tmp/cove-cache-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    auto_free char *path = str_printf("%s/cove.db", dir);
    if (store_open(loop, &(struct store_settings){ .url.file = path }, &store, &err) < 0)
        fail_msg("%s", err.msg);
    cache = template_cache_new(store);
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    template_cache_free(cache);
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

/* Whether the answer came immediately. */
static bool ask(const char *name, uint64_t now_ns)
{
    answered = false;
    template_cache_get(cache, name, now_ns, on_row, NULL);
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

TEST(a_cached_template_is_returned_immediately_for_one_second)
{
    assert_false(ask("python", NOW));
    assert_true(ask("python", NOW + NS_PER_S - 1));
    assert_int_equal(failure, ERR_NONE);
    assert_int_equal(generation, 1);
    assert_false(ask("python", NOW + NS_PER_S));
    assert_true(ask("python", NOW + NS_PER_S));
}

TEST(an_invalidated_template_is_read_again)
{
    put();
    assert_false(ask("mine", NOW));
    assert_int_equal(generation, 1);
    put();
    template_cache_invalidate(cache, "mine");
    assert_false(ask("mine", NOW));
    assert_int_equal(generation, 2);
    assert_true(ask("mine", NOW));
    assert_int_equal(generation, 2);
}

TEST(a_row_requested_before_a_change_is_not_cached_after_it)
{
    put();
    answered = false;
    template_cache_get(cache, "mine", NOW, on_row, NULL);
    template_cache_invalidate(cache, "mine");
    await();
    assert_false(ask("mine", NOW));
    assert_true(ask("mine", NOW));
}

TEST(a_missing_template_is_not_cached)
{
    assert_false(ask("mine", NOW));
    assert_int_equal(failure, ERR_MISSING);
    put();
    assert_false(ask("mine", NOW));
    assert_int_equal(failure, ERR_NONE);
}

TEST(a_full_cache_replaces_its_oldest_entry)
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

TEST(a_pending_lookup_is_answered_after_the_cache_is_freed)
{
    answered = false;
    template_cache_get(cache, "python", NOW, on_row, NULL);
    template_cache_free(take_ptr(&cache));
    await();
    assert_int_equal(failure, ERR_NONE);
}

#define RUN_CACHE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_CACHE(a_cached_template_is_returned_immediately_for_one_second),
        RUN_CACHE(an_invalidated_template_is_read_again),
        RUN_CACHE(a_row_requested_before_a_change_is_not_cached_after_it),
        RUN_CACHE(a_missing_template_is_not_cached),
        RUN_CACHE(a_full_cache_replaces_its_oldest_entry),
        RUN_CACHE(a_pending_lookup_is_answered_after_the_cache_is_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
