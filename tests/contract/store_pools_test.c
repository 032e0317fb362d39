/* Warm pools, on every store. */
#include "store_host.h"

#include "core/base/str.h"
#include "store/pools.h"

static const struct store_pool some = { .name = "quick",
                                        .template = "python",
                                        .min = 1,
                                        .max = 2,
                                        .ttl_ms = 3,
                                        .max_age_ms = 4,
                                        .autoscale = true,
                                        .hit_permille = 5,
                                        .scale_down_ms = 6,
                                        .zygote_max_age_ms = 7,
                                        .zygote_max_members = 8,
                                        .recycle = true,
                                        .created_ms = 9,
                                        .updated_ms = 10 };

static void check(const struct store_pool *want)
{
    const struct store_pool *is = GOT(store_pool, 0);

    assert_string_equal(is->name, want->name);
    assert_string_equal(is->template, want->template);
    assert_int_equal(is->min, want->min);
    assert_int_equal(is->max, want->max);
    assert_int_equal(is->ttl_ms, want->ttl_ms);
    assert_int_equal(is->max_age_ms, want->max_age_ms);
    assert_int_equal(is->autoscale, want->autoscale);
    assert_int_equal(is->hit_permille, want->hit_permille);
    assert_int_equal(is->scale_down_ms, want->scale_down_ms);
    assert_int_equal(is->zygote_max_age_ms, want->zygote_max_age_ms);
    assert_int_equal(is->zygote_max_members, want->zygote_max_members);
    assert_int_equal(is->recycle, want->recycle);
    assert_int_equal(is->generation, want->generation);
    assert_int_equal(is->created_ms, want->created_ms);
    assert_int_equal(is->updated_ms, want->updated_ms);
}

TEST(a_pool_is_read_back_as_it_was_written)
{
    struct store_pool want = some;

    want.generation = 1;
    OK(store_pool_put(store, &some, NULL, on_pool, NULL));
    check(&want);
    OK(store_pool_get(store, "quick", on_pool, NULL));
    check(&want);
    host_reopen();
    OK(store_pool_get(store, "quick", on_pool, NULL));
    check(&want);
}

TEST(a_pool_is_replaced_as_a_whole_and_only_with_its_generation)
{
    struct store_pool other = { .name = "quick", .template = "node", .max = 9, .created_ms = 90, .updated_ms = 91 };
    struct store_condition stale = { .generation = 7 }, right = { .generation = 1 };

    FAILS(ERR_MISSING, store_pool_put(store, &some, &right, on_pool, NULL));
    OK(store_pool_insert(store, &some, on_done, NULL));
    FAILS(ERR_EXISTS, store_pool_insert(store, &some, on_done, NULL));
    FAILS(ERR_EXISTS, store_pool_put(store, &other, &stale, on_pool, NULL));
    OK(store_pool_put(store, &other, &right, on_pool, NULL));
    other.generation = 2;
    other.created_ms = some.created_ms;
    check(&other);
    OK(store_pool_delete(store, "quick", on_done, NULL));
    FAILS(ERR_MISSING, store_pool_delete(store, "quick", on_done, NULL));
    FAILS(ERR_MISSING, store_pool_get(store, "quick", on_pool, NULL));
}

TEST(an_invalid_pool_is_refused)
{
    struct store_pool p = some;

    p.min = 3;
    FAILS(ERR_INVALID, store_pool_put(store, &p, NULL, on_pool, NULL));
    p = some;
    strcpy(p.name, "a b");
    FAILS(ERR_INVALID, store_pool_put(store, &p, NULL, on_pool, NULL));
    p = some;
    p.template[0] = '\0';
    FAILS(ERR_INVALID, store_pool_put(store, &p, NULL, on_pool, NULL));
    FAILS(ERR_MISSING, store_pool_get(store, "' OR 1=1 --", on_pool, NULL));
    OK(store_pool_list(store, &(struct store_list){ 0 }, on_pools, NULL));
    assert_int_equal(got.rows.n, 0);
}

TEST(a_template_used_by_a_pool_cannot_be_removed)
{
    struct store_template t = { .name = "python", .created_ms = 1 }, u = { .name = "other", .created_ms = 1 };

    OK(store_template_put(store, &t, NULL, on_template, NULL));
    OK(store_template_put(store, &u, NULL, on_template, NULL));
    OK(store_pool_put(store, &some, NULL, on_pool, NULL));
    FAILS(ERR_TEMPLATE_USED, store_template_delete(store, "python", NULL, on_done, NULL));
    assert_non_null(strstr(got.err.msg, "quick"));
    OK(store_template_get(store, "python", on_template, NULL));
    OK(store_template_delete(store, "other", NULL, on_done, NULL));
    OK(store_pool_delete(store, "quick", on_done, NULL));
    OK(store_template_delete(store, "python", NULL, on_done, NULL));
}

TEST(pools_are_listed_by_name_page_by_page)
{
    static const char *const names[] = { "delta", "alpha", "charlie", "bravo" };
    struct store_list q = { .limit = 3 };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct store_pool p = some;

        str_copy(p.name, sizeof(p.name), names[i]);
        OK(store_pool_put(store, &p, NULL, on_pool, NULL));
    }
    OK(store_pool_list(store, &q, on_pools, NULL));
    assert_int_equal(got.rows.n, 3);
    assert_string_equal(GOT(store_pool, 0)->name, "alpha");
    auto_free char *cursor = str_dup(got.next);
    q.cursor = cursor;
    OK(store_pool_list(store, &q, on_pools, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_pool, 0)->name, "delta");
    assert_null(got.next);
}

#define RUN_STORE(f) cmocka_unit_test_setup_teardown(f, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(a_pool_is_read_back_as_it_was_written),
        RUN_STORE(a_pool_is_replaced_as_a_whole_and_only_with_its_generation),
        RUN_STORE(an_invalid_pool_is_refused),
        RUN_STORE(a_template_used_by_a_pool_cannot_be_removed),
        RUN_STORE(pools_are_listed_by_name_page_by_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
