#include "tests/unit/test.h"

#include "server/auth/keycache.h"
#include "core/base/str.h"

#include <stdio.h>

static struct keycache *cache;

static int setup(void **state UNUSED)
{
    cache = keycache_new();
    return 0;
}

static int teardown(void **state UNUSED)
{
    keycache_free(cache);
    return 0;
}

static struct store_login key(unsigned n)
{
    struct store_login k = { .key.owner = "anna", .member = true };

    snprintf(k.key.id, sizeof(k.key.id), "ky%020u", n);
    for (size_t i = 0; i < STORE_HASH_LEN; i++) /* looks like a hash */
        k.key.hash[i] = (uint8_t)((n * 2654435761u + i * 40503u) >> (i % 4 * 8));
    memcpy(k.key.hash, &n, sizeof(n));
    return k;
}

TEST(wrong_keys_never_evict_a_valid_key)
{
    struct store_login good = key(1);
    struct store_key_use lost;

    keycache_put(cache, &good, 100, &lost);
    for (unsigned i = 2; i < 50000; i++) {
        struct store_login wrong = key(i);

        keycache_put_wrong(cache, wrong.key.hash, 100 + i);
        assert_true(keycache_is_wrong(cache, wrong.key.hash, 100 + i));
    }
    assert_non_null(keycache_find(cache, good.key.hash));
    assert_false(keycache_is_wrong(cache, good.key.hash, 200));
}

TEST(a_wrong_key_is_cached_until_its_entry_expires)
{
    struct store_login wrong = key(1);

    keycache_put_wrong(cache, wrong.key.hash, 5);
    assert_true(keycache_is_wrong(cache, wrong.key.hash, 5 + KEYCACHE_FRESH_NS - 1));
    assert_false(keycache_is_wrong(cache, wrong.key.hash, 5 + KEYCACHE_FRESH_NS));
    keycache_put_wrong(cache, wrong.key.hash, 5 + KEYCACHE_FRESH_NS);
    assert_true(keycache_is_wrong(cache, wrong.key.hash, 5 + KEYCACHE_FRESH_NS));
}

TEST(a_full_table_evicts_old_keys_and_returns_their_last_uses)
{
    static struct store_key_use uses[2000];
    struct store_key_use lost;
    unsigned told = 0, kept = 0;

    for (unsigned i = 0; i < 5000; i++) { /* more than there are slots */
        struct store_login k = key(i);
        struct keycache_entry *e = keycache_put(cache, &k, i + 1, &lost);

        e->touched_ns = i + 1;
        e->last_used_ms = i + 1;
        if (lost.at_ms) {
            unsigned n = 0;

            assert_int_equal(sscanf(lost.id, "ky%u", &n), 1);
            assert_int_equal(lost.at_ms, n + 1); /* its own time stamp, and the entry is an older one */
            assert_true(n < i);
            told++;
        }
    }
    size_t left = keycache_take_uses(cache, uses, ARRAY_LEN(uses));
    assert_int_equal(told + left, 5000);
    assert_int_equal(keycache_take_uses(cache, uses, ARRAY_LEN(uses)), 0); /* each use once */
    for (unsigned i = 0; i < 5000; i++) {
        struct store_login k = key(i);

        kept += keycache_find(cache, k.key.hash) != NULL;
    }
    assert_int_equal(kept, left);
    assert_true(kept > 500);
}

TEST(an_updated_key_keeps_its_buckets_and_gets_its_new_scopes)
{
    struct store_login k = key(1);
    struct store_key_use lost;
    char files[] = "files", keys[] = "keys", nonsense[] = "files teleport";

    k.key.scopes = files;
    struct keycache_entry *e = keycache_put(cache, &k, 1, &lost);
    assert_int_equal(e->scopes, scope_expand(SCOPE_BIT(FILES)));
    e->buckets[AUTH_CLASS_EXECUTE].full_at = 99;
    k.key.scopes = keys;
    e = keycache_put(cache, &k, 2, &lost);
    assert_int_equal(e->scopes, SCOPE_BIT(KEYS));
    assert_int_equal(e->buckets[AUTH_CLASS_EXECUTE].full_at, 99);
    assert_int_equal(e->checked_ns, 2);
    k.key.scopes = nonsense; /* written by another version: an unknown scope grants nothing */
    assert_int_equal(keycache_put(cache, &k, 3, &lost)->scopes, 0);
    keycache_drop_id(cache, k.key.id);
    assert_null(keycache_find(cache, k.key.hash));
}

#define RUN_CACHE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

TEST(the_scopes_of_a_key_are_restricted_by_the_role)
{
    char all[] = "sandboxes:write executions files keys tenant", own[] = "files:read keys", operators[] = "admin";
    static const struct {
        const char *role;
        bool own;
        uint32_t rights;
    } rows[] = {
        { "viewer", false, SCOPE_BIT(EXECUTIONS_READ) | SCOPE_BIT(FILES_READ) },
        { "admin", false,
          SCOPE_BIT(SANDBOXES_WRITE) | SCOPE_BIT(EXECUTIONS) | SCOPE_BIT(EXECUTIONS_READ) | SCOPE_BIT(FILES) |
              SCOPE_BIT(FILES_READ) | SCOPE_BIT(KEYS) | SCOPE_BIT(TENANT) },
        { "ops", true, SCOPE_BIT(FILES_READ) | SCOPE_BIT(KEYS) },
        { "gone", false, 0 },
    };
    struct store_login k = key(1);
    struct store_key_use lost;

    strcpy(k.key.user, "usaaaaaaaaaaaaaaaaaaaa");
    k.key.scopes = all;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        strcpy(k.role, rows[i].role);
        k.permissions = rows[i].own ? own : NULL;
        assert_int_equal(keycache_put(cache, &k, 1, &lost)->scopes, rows[i].rights);
    }
    /* No role grants the operator's scopes, whatever the key or the tenant's own role contains. */
    strcpy(k.role, "admin");
    k.key.scopes = operators;
    assert_false(keycache_put(cache, &k, 1, &lost)->scopes & (SCOPE_BIT(ADMIN) | SCOPE_BIT(METRICS)));
    strcpy(k.role, "ops");
    k.permissions = operators;
    assert_false(keycache_put(cache, &k, 1, &lost)->scopes & (SCOPE_BIT(ADMIN) | SCOPE_BIT(METRICS)));
}

TEST(a_change_of_a_user_or_tenant_marks_only_their_keys_as_stale)
{
    struct store_login a = key(1), b = key(2);
    struct store_key_use lost;

    strcpy(a.key.user, "usaaaaaaaaaaaaaaaaaaaa");
    strcpy(b.key.owner, "bert");
    keycache_put(cache, &a, 1, &lost);
    keycache_put(cache, &b, 1, &lost);
    keycache_mark_user_stale(cache, a.key.user);
    assert_true(keycache_find(cache, a.key.hash)->stale);
    assert_false(keycache_find(cache, b.key.hash)->stale);
    assert_false(keycache_put(cache, &a, 2, &lost)->stale);
    keycache_mark_owner_stale(cache, "bert");
    assert_true(keycache_find(cache, b.key.hash)->stale);
    assert_false(keycache_find(cache, a.key.hash)->stale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_CACHE(wrong_keys_never_evict_a_valid_key),
        RUN_CACHE(a_wrong_key_is_cached_until_its_entry_expires),
        RUN_CACHE(a_full_table_evicts_old_keys_and_returns_their_last_uses),
        RUN_CACHE(an_updated_key_keeps_its_buckets_and_gets_its_new_scopes),
        RUN_CACHE(the_scopes_of_a_key_are_restricted_by_the_role),
        RUN_CACHE(a_change_of_a_user_or_tenant_marks_only_their_keys_as_stale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
