/* The table of quotas with a real store: which tenant is limited, by which amount, and when. */
#include "store_scene.h"

#include "service/tenant_quotas.h"

struct scene {
    struct store_scene base;
    struct tenant_quotas *quotas;
    int loaded;
    enum err_id load_error;
    int suspensions;
    char suspended[STORE_OWNER_MAX + 1]; /* the last one */
};

static void on_suspended(void *arg, const struct tenant_quota *q)
{
    struct scene *s = arg;

    s->suspensions++;
    str_copy(s->suspended, sizeof(s->suspended), q->tenant);
}

static void on_loaded(void *arg, const struct err *err)
{
    struct scene *s = arg;

    s->loaded++;
    s->load_error = err ? err->id : ERR_NONE;
}

static void open_scene(struct scene *s)
{
    *s = (struct scene){ 0 };
    store_scene_open(&s->base);
    s->quotas = tenant_quotas_new(s->base.ev, s->base.store, on_suspended, s);
}

static void close_scene(struct scene *s)
{
    tenant_quotas_free(s->quotas);
    store_scene_close(&s->base);
}

static enum err_id reserve(struct scene *s, const char *tenant, uint64_t sandboxes)
{
    struct err err = { 0 };

    return quota_reserve(tenant_quotas_get(s->quotas, tenant), (uint64_t[STORE_QUOTA_COUNT]){ sandboxes }, &err) < 0
               ? err.id
               : ERR_NONE;
}

static enum err_id run(struct scene *s, const char *tenant)
{
    struct err err = { 0 };

    return quota_reserve_execution(tenant_quotas_get(s->quotas, tenant), quota_now_ms(s->base.ev), &err) < 0 ? err.id
                                                                                                             : ERR_NONE;
}

TEST(a_tenant_has_one_entry_that_stays)
{
    struct scene s;

    open_scene(&s);
    struct tenant_quota *acme = tenant_quotas_get(s.quotas, "acme");
    for (int i = 0; i < 300; i++) {
        char name[16];

        snprintf(name, sizeof(name), "tenant%d", i);
        assert_string_equal(tenant_quotas_get(s.quotas, name)->tenant, name);
    }
    assert_ptr_equal(tenant_quotas_get(s.quotas, "acme"), acme);
    close_scene(&s);
}

TEST(a_quota_limits_its_own_tenant_and_no_other)
{
    struct scene s;

    open_scene(&s);
    tenant_quotas_set(s.quotas, &(struct store_tenant){ .name = "acme", .quota = { 2, 0, 0, 0, 1 } });
    assert_int_equal(reserve(&s, "acme", 2), ERR_NONE);
    assert_int_equal(reserve(&s, "acme", 1), ERR_QUOTA);
    assert_int_equal(run(&s, "acme"), ERR_NONE);
    assert_int_equal(run(&s, "acme"), ERR_QUOTA);
    for (int i = 0; i < 100; i++) { /* a tenant without a row */
        assert_int_equal(reserve(&s, "bert", 1000), ERR_NONE);
        assert_int_equal(run(&s, "bert"), ERR_NONE);
    }
    tenant_quotas_set(s.quotas, &(struct store_tenant){ .name = "acme" }); /* unlimited from now on */
    assert_int_equal(reserve(&s, "acme", 1), ERR_NONE);
    assert_int_equal(run(&s, "acme"), ERR_NONE);
    close_scene(&s);
}

TEST(a_suspended_or_removed_tenant_starts_nothing_and_is_reported)
{
    struct scene s;

    open_scene(&s);
    tenant_quotas_set(s.quotas, &(struct store_tenant){ .name = "acme", .suspended_ms = 5 });
    assert_int_equal(s.suspensions, 1);
    assert_string_equal(s.suspended, "acme");
    assert_int_equal(reserve(&s, "acme", 1), ERR_TENANT_SUSPENDED);
    assert_int_equal(run(&s, "acme"), ERR_TENANT_SUSPENDED);
    assert_int_equal(reserve(&s, "bert", 1), ERR_NONE);
    tenant_quotas_set(s.quotas, &(struct store_tenant){ .name = "acme" });
    assert_int_equal(s.suspensions, 1);
    assert_int_equal(reserve(&s, "acme", 1), ERR_NONE);
    tenant_quotas_set(s.quotas, &(struct store_tenant){ .name = "bert", .removed_ms = 5 });
    assert_string_equal(s.suspended, "bert");
    assert_int_equal(run(&s, "bert"), ERR_TENANT_SUSPENDED);
    close_scene(&s);
}

TEST(quotas_suspensions_and_the_last_hour_are_read_from_the_store)
{
    static const char sandbox[] = "sbaaaaaaaaaaaaaaaaaaaa";
    struct store_execution row = { .id = "exaaaaaaaaaaaaaaaaaaaa", .owner = "me", .created_ms = clock_real_ms() };
    struct scene s;

    open_scene(&s);
    store_scene_insert_sandbox(&s.base, sandbox);
    str_copy(row.sandbox, sizeof(row.sandbox), sandbox);
    store_execution_insert(s.base.store, &row, NULL, NULL);
    for (int i = 0; i < 1200; i++) { /* more than one page */
        struct store_tenant t = { .created_ms = 1, .quota = { 1 } };

        snprintf(t.name, sizeof(t.name), "tenant%04d", i);
        store_tenant_insert(s.base.store, &t, NULL, NULL);
    }
    store_tenant_insert(
        s.base.store, &(struct store_tenant){ .name = "me", .created_ms = 1, .quota = { 0, 0, 0, 0, 2 } }, NULL, NULL);
    store_tenant_insert(s.base.store, &(struct store_tenant){ .name = "zoe", .created_ms = 1 }, NULL, NULL);
    store_tenant_update(s.base.store, &(struct store_tenant){ .name = "zoe", .suspended_ms = 7 },
                        STORE_TENANT_SET_SUSPENDED, NULL, NULL);
    tenant_quotas_load(s.quotas, on_loaded, &s);
    store_scene_wait(&s.base, &s.loaded);
    assert_int_equal(s.load_error, ERR_NONE);
    assert_int_equal(reserve(&s, "tenant0000", 2), ERR_QUOTA);
    assert_int_equal(reserve(&s, "tenant1199", 2), ERR_QUOTA);
    assert_int_equal(run(&s, "zoe"), ERR_TENANT_SUSPENDED);
    assert_string_equal(s.suspended, "zoe");
    assert_int_equal(run(&s, "me"), ERR_NONE);
    assert_int_equal(run(&s, "me"), ERR_QUOTA); /* one of two was before the start */
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_tenant_has_one_entry_that_stays),
        RUN(a_quota_limits_its_own_tenant_and_no_other),
        RUN(a_suspended_or_removed_tenant_starts_nothing_and_is_reported),
        RUN(quotas_suspensions_and_the_last_hour_are_read_from_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
