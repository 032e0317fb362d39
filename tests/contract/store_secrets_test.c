/* Secrets, on every store. */
#include "store_host.h"

#include "core/base/str.h"
#include "store/secrets.h"

static struct store_secret a_secret(const char *owner, const char *name, const char *sealed)
{
    struct store_secret s = { .created_ms = 10, .updated_ms = 11, .sealed = (char *)(uintptr_t)sealed };

    id_new("se", s.id);
    assert_true(str_copy(s.owner, sizeof(s.owner), owner));
    assert_true(str_copy(s.name, sizeof(s.name), name));
    return s;
}

static void list(const char *owner)
{
    const struct store_list q = { .owner = owner, .oldest_first = true };

    OK(store_secret_list(store, &q, on_secrets, NULL));
}

TEST(a_secret_is_read_back_after_the_store_was_opened_again)
{
    struct store_secret s = a_secret("anna", "openai", "00ff");

    OK(store_secret_put(store, &s, 10, on_secret_put, NULL));
    assert_true(got.fresh);
    assert_int_equal(GOT(store_secret, 0)->generation, 1);
    host_reopen();
    list("anna");
    assert_int_equal(got.rows.n, 1);
    const struct store_secret *is = GOT(store_secret, 0);
    assert_string_equal(is->id, s.id);
    assert_string_equal(is->name, "openai");
    assert_string_equal(is->sealed, "00ff");
    assert_int_equal(is->created_ms, 10);
    assert_int_equal(is->updated_ms, 11);
    assert_int_equal(is->uses, 0);
}

TEST(a_new_value_keeps_the_id_and_the_figures_of_use)
{
    struct store_secret s = a_secret("anna", "openai", "00"), other = a_secret("anna", "openai", "11");

    OK(store_secret_put(store, &s, 10, on_secret_put, NULL));
    OK(store_secret_add_use(store, "anna", "openai", 3, 500, on_done, NULL));
    OK(store_secret_add_use(store, "anna", "openai", 2, 400, on_done, NULL));
    other.updated_ms = 99;
    OK(store_secret_put(store, &other, 10, on_secret_put, NULL));
    assert_false(got.fresh);
    const struct store_secret *is = GOT(store_secret, 0);
    assert_string_equal(is->id, s.id);
    assert_string_equal(is->sealed, "11");
    assert_int_equal(is->created_ms, 10);
    assert_int_equal(is->updated_ms, 99);
    assert_int_equal(is->uses, 5);
    assert_int_equal(is->last_used_ms, 500);
    assert_true(is->generation > 1);
}

TEST(the_quota_bounds_new_names_and_not_new_values)
{
    struct store_secret a = a_secret("anna", "a", "00"), b = a_secret("anna", "b", "00"),
                        again = a_secret("anna", "a", "11"), berts = a_secret("bert", "b", "00");

    OK(store_secret_put(store, &a, 1, on_secret_put, NULL));
    FAILS(ERR_QUOTA, store_secret_put(store, &b, 1, on_secret_put, NULL));
    OK(store_secret_put(store, &again, 1, on_secret_put, NULL));
    OK(store_secret_put(store, &berts, 1, on_secret_put, NULL));
    list("anna");
    assert_int_equal(got.rows.n, 1);
}

TEST(one_tenant_neither_sees_nor_removes_the_secret_of_another)
{
    struct store_secret annas = a_secret("anna", "key", "aa"), berts = a_secret("bert", "key", "bb");

    OK(store_secret_put(store, &annas, 10, on_secret_put, NULL));
    FAILS(ERR_SECRET_MISSING, store_secret_delete(store, "bert", "key", on_done, NULL));
    OK(store_secret_put(store, &berts, 10, on_secret_put, NULL));
    OK(store_secret_delete(store, "bert", "key", on_done, NULL));
    list("bert");
    assert_int_equal(got.rows.n, 0);
    list("anna");
    assert_string_equal(GOT(store_secret, 0)->sealed, "aa");
    OK(store_secret_add_use(store, "bert", "key", 1, 1, on_done, NULL));
    list("anna");
    assert_int_equal(GOT(store_secret, 0)->uses, 0);
}

TEST(a_removed_tenant_leaves_no_secret)
{
    struct store_secret s = a_secret("anna", "key", "aa");

    OK(store_secret_put(store, &s, 10, on_secret_put, NULL));
    OK(store_tenant_remove(store, "anna", 50, on_done, NULL));
    list(STORE_ANY_OWNER);
    assert_int_equal(got.rows.n, 0);
}

TEST(a_name_or_a_sealed_text_that_is_too_long_is_refused)
{
    static char text[STORE_SECRET_SEALED_MAX + 2];
    struct store_secret s = a_secret("anna", "key", text), bad = a_secret("anna", "a/b", "00");

    memset(text, 'a', sizeof(text) - 1);
    FAILS(ERR_INVALID, store_secret_put(store, &s, 10, on_secret_put, NULL));
    FAILS(ERR_INVALID, store_secret_put(store, &bad, 10, on_secret_put, NULL));
}

#define RUN_STORE(f) cmocka_unit_test_setup_teardown(f, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(a_secret_is_read_back_after_the_store_was_opened_again),
        RUN_STORE(a_new_value_keeps_the_id_and_the_figures_of_use),
        RUN_STORE(the_quota_bounds_new_names_and_not_new_values),
        RUN_STORE(one_tenant_neither_sees_nor_removes_the_secret_of_another),
        RUN_STORE(a_removed_tenant_leaves_no_secret),
        RUN_STORE(a_name_or_a_sealed_text_that_is_too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
