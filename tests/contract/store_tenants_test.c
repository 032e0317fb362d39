/* Tenants, users, roles and logins, on every store. */
#include "store_host.h"

#include "core/base/str.h"

#include <stdio.h>

static struct store_role a_role(const char *owner, const char *name, const char *permissions)
{
    struct store_role r = { .permissions = (char *)permissions, .created_ms = 1 };

    str_copy(r.owner, sizeof(r.owner), owner);
    str_copy(r.name, sizeof(r.name), name);
    return r;
}

TEST(a_tenant_keeps_its_quotas_and_an_update_sets_only_what_it_names)
{
    struct store_tenant t = { .name = "acme", .created_ms = 7 }, other = { .name = "acme", .suspended_ms = 99 };

    for (unsigned i = 0; i < STORE_QUOTA_COUNT; i++) {
        t.quota[i] = i + 1;
        other.quota[i] = 100 + i;
    }
    OK(store_tenant_insert(store, &t, on_done, NULL));
    FAILS(ERR_EXISTS, store_tenant_insert(store, &t, on_done, NULL));
    OK(store_tenant_update(store, &other, STORE_TENANT_SET_QUOTA(STORE_QUOTA_MEMORY), on_tenant, NULL));
    for (unsigned i = 0; i < STORE_QUOTA_COUNT; i++)
        assert_int_equal(GOT(store_tenant, 0)->quota[i], i == STORE_QUOTA_MEMORY ? 102 : i + 1);
    assert_int_equal(GOT(store_tenant, 0)->suspended_ms, 0);
    OK(store_tenant_update(store, &other, STORE_TENANT_SET_SUSPENDED | STORE_TENANT_SET_QUOTAS, on_tenant, NULL));
    OK(store_tenant_get(store, "acme", on_tenant, NULL));
    assert_memory_equal(GOT(store_tenant, 0)->quota, other.quota, sizeof(other.quota));
    assert_int_equal(GOT(store_tenant, 0)->suspended_ms, 99);
    assert_int_equal(GOT(store_tenant, 0)->created_ms, 7);
    FAILS(ERR_MISSING, store_tenant_get(store, "acm", on_tenant, NULL));
    FAILS(ERR_INVALID, store_tenant_insert(store, &(struct store_tenant){ .name = "a b" }, on_done, NULL));
    FAILS(ERR_INVALID, store_tenant_insert(store, &(struct store_tenant){ .name = "*" }, on_done, NULL));
}

TEST(a_new_store_has_the_tenant_local_and_tenants_are_listed_by_name)
{
    OK(store_tenant_list(store, &(struct store_list){ .limit = 2 }, on_tenants, NULL));
    assert_int_equal(got.rows.n, 2);
    assert_string_equal(GOT(store_tenant, 0)->name, "anna");
    assert_string_equal(GOT(store_tenant, 1)->name, "bert");
    auto_free char *next = str_dup(got.next);
    OK(store_tenant_list(store, &(struct store_list){ .limit = 2, .cursor = next }, on_tenants, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_tenant, 0)->name, STORE_LOCAL_TENANT);
    assert_true(GOT(store_tenant, 0)->created_ms > 0);
    assert_null(got.next);
}

TEST(a_removed_tenant_has_no_login_and_its_name_is_never_reused)
{
    struct store_user user = a_user("anna", "carla", "admin");
    struct store_key key = a_key("anna", 1), other = a_key("bert", 2);
    struct store_role role = a_role("anna", "ops", "files");

    OK(store_user_insert(store, &user, on_done, NULL));
    OK(store_role_insert(store, &role, on_done, NULL));
    OK(store_key_insert(store, &key, false, on_done, NULL));
    OK(store_key_insert(store, &other, false, on_done, NULL));
    OK(store_tenant_remove(store, "anna", 50, on_done, NULL));
    OK(store_login_by_hash(store, key.hash, on_login, NULL));
    assert_int_equal(GOT(store_login, 0)->key.revoked_ms, 50);
    assert_false(GOT(store_login, 0)->member);
    OK(store_login_by_hash(store, other.hash, on_login, NULL));
    assert_int_equal(GOT(store_login, 0)->key.revoked_ms, 0);
    assert_true(GOT(store_login, 0)->member);
    FAILS(ERR_MISSING, store_user_get(store, "anna", user.id, on_user, NULL));
    FAILS(ERR_MISSING, store_role_get(store, "anna", "ops", on_role, NULL));
    FAILS(ERR_EXISTS, store_tenant_insert(store, &(struct store_tenant){ .name = "anna" }, on_done, NULL));
    struct store_key late = a_key("anna", 3);
    FAILS(ERR_MISSING, store_key_insert(store, &late, false, on_done, NULL));
    user = a_user("anna", "dora", "admin");
    FAILS(ERR_MISSING, store_user_insert(store, &user, on_done, NULL));
    FAILS(ERR_MISSING, store_tenant_remove(store, "anna", 60, on_done, NULL));
    FAILS(ERR_MISSING, store_tenant_remove(store, "missing", 60, on_done, NULL));
    FAILS(ERR_DENIED, store_tenant_remove(store, STORE_LOCAL_TENANT, 60, on_done, NULL));
}

TEST(user_names_are_unique_in_a_tenant_and_their_roles_exist_there)
{
    struct store_user a = a_user("anna", "carla", "viewer"), b = a_user("bert", "carla", "ops");
    struct store_role role = a_role("anna", "ops", "files executions");

    OK(store_user_insert(store, &a, on_done, NULL));
    a = a_user("anna", "carla", "viewer");
    FAILS(ERR_EXISTS, store_user_insert(store, &a, on_done, NULL));
    OK(store_role_insert(store, &role, on_done, NULL));
    FAILS(ERR_MISSING, store_user_insert(store, &b, on_done, NULL)); /* a role of another tenant */
    strcpy(b.role, "developer");
    OK(store_user_insert(store, &b, on_done, NULL)); /* the name is free there */
    strcpy(b.role, "ops");
    FAILS(ERR_MISSING, store_user_update(store, "bert", &b, STORE_USER_SET_ROLE, true, on_user, NULL));
    FAILS(ERR_MISSING, store_user_update(store, "anna", &b, STORE_USER_SET_ROLE, true, on_user, NULL));
    FAILS(ERR_EXISTS, store_role_insert(store, &role, on_done, NULL));
    role = a_role("anna", "admin", "files");
    FAILS(ERR_EXISTS, store_role_insert(store, &role, on_done, NULL));
    role = a_role("anna", "a/b", "files");
    FAILS(ERR_INVALID, store_role_insert(store, &role, on_done, NULL));
    struct store_key key = a_key("bert", 1);
    strcpy(key.user, a.id); /* of another tenant */
    FAILS(ERR_MISSING, store_key_insert(store, &key, false, on_done, NULL));
}

TEST(a_role_in_use_cannot_be_removed_and_roles_are_listed_by_name)
{
    struct store_role ops = a_role("anna", "ops", "files"), ci = a_role("anna", "ci", "executions"),
                      theirs = a_role("bert", "ops", "keys");
    struct store_user user = a_user("anna", "carla", "ops");

    OK(store_role_insert(store, &ops, on_done, NULL));
    OK(store_role_insert(store, &ci, on_done, NULL));
    OK(store_role_insert(store, &theirs, on_done, NULL));
    OK(store_user_insert(store, &user, on_done, NULL));
    OK(store_role_list(store, &(struct store_list){ .owner = "anna" }, on_roles, NULL));
    assert_int_equal(got.rows.n, 2);
    assert_string_equal(GOT(store_role, 0)->name, "ci");
    assert_string_equal(GOT(store_role, 1)->permissions, "files");
    FAILS(ERR_EXISTS, store_role_remove(store, "anna", "ops", on_done, NULL));
    strcpy(user.role, "viewer");
    OK(store_user_update(store, "anna", &user, STORE_USER_SET_ROLE, true, on_user, NULL));
    OK(store_role_remove(store, "anna", "ops", on_done, NULL));
    FAILS(ERR_MISSING, store_role_remove(store, "anna", "ops", on_done, NULL));
    OK(store_role_get(store, "bert", "ops", on_role, NULL));
}

TEST(AU17_the_last_admin_of_a_tenant_cannot_be_lost_in_any_way)
{
    struct store_user one = a_user("anna", "one", "admin"), two = a_user("anna", "two", "admin"),
                      far = a_user("bert", "far", "admin"), change;

    OK(store_user_insert(store, &one, on_done, NULL));
    OK(store_user_insert(store, &two, on_done, NULL));
    OK(store_user_insert(store, &far, on_done, NULL));
    change = two;
    change.disabled = true;
    OK(store_user_update(store, "anna", &change, STORE_USER_SET_DISABLED, true, on_user, NULL));
    change = one;
    strcpy(change.role, "viewer"); /* the other admin is disabled, and the one of another tenant does not count */
    FAILS(ERR_LAST_ADMIN, store_user_update(store, "anna", &change, STORE_USER_SET_ROLE, true, on_user, NULL));
    change = one;
    change.disabled = true;
    FAILS(ERR_LAST_ADMIN, store_user_update(store, "anna", &change, STORE_USER_SET_DISABLED, true, on_user, NULL));
    FAILS(ERR_LAST_ADMIN, store_user_remove(store, "anna", one.id, 9, true, on_done, NULL));
    OK(store_user_get(store, "anna", one.id, on_user, NULL));
    assert_string_equal(GOT(store_user, 0)->role, "admin");
    assert_false(GOT(store_user, 0)->disabled);
    strcpy(change.name, "first");
    OK(store_user_update(store, "anna", &change, STORE_USER_SET_NAME, true, on_user, NULL));
    OK(store_user_remove(store, "anna", two.id, 9, true, on_done, NULL));  /* it was not an admin that counts */
    OK(store_user_remove(store, "anna", one.id, 9, false, on_done, NULL)); /* the operator may */
}

TEST(a_login_reads_key_role_and_tenant_in_one_query)
{
    struct store_role role = a_role("anna", "ops", "files executions");
    struct store_user user = a_user("anna", "carla", "ops");
    struct store_key key = a_key("anna", 1), plain = a_key("anna", 2);

    OK(store_role_insert(store, &role, on_done, NULL));
    OK(store_user_insert(store, &user, on_done, NULL));
    strcpy(key.user, user.id);
    OK(store_key_insert(store, &key, false, on_done, NULL));
    OK(store_key_insert(store, &plain, false, on_done, NULL));
    OK(store_login_by_hash(store, plain.hash, on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->role, "");
    assert_true(GOT(store_login, 0)->member);
    OK(store_login_by_hash(store, key.hash, on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->role, "ops");
    assert_string_equal(GOT(store_login, 0)->permissions, "files executions");
    assert_true(GOT(store_login, 0)->member);
    assert_false(GOT(store_login, 0)->disabled);
    OK(store_login_by_name(store, "anna", "carla", on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->key.user, user.id);
    assert_string_equal(GOT(store_login, 0)->key.owner, "anna");
    assert_string_equal(GOT(store_login, 0)->permissions, "files executions");
    FAILS(ERR_MISSING, store_login_by_name(store, "bert", "carla", on_login, NULL));
    user.disabled = true;
    OK(store_user_update(store, "anna", &user, STORE_USER_SET_DISABLED, true, on_user, NULL));
    OK(store_tenant_update(store, &(struct store_tenant){ .name = "anna", .suspended_ms = 5 },
                           STORE_TENANT_SET_SUSPENDED, on_tenant, NULL));
    OK(store_login_by_hash(store, key.hash, on_login, NULL));
    assert_true(GOT(store_login, 0)->disabled);
    assert_int_equal(GOT(store_login, 0)->suspended_ms, 5);
    OK(store_user_remove(store, "anna", user.id, 70, true, on_done, NULL));
    OK(store_login_by_hash(store, key.hash, on_login, NULL));
    assert_int_equal(GOT(store_login, 0)->key.revoked_ms, 70);
    assert_false(GOT(store_login, 0)->member);
}

TEST(AU16_a_removed_user_is_not_recreated_until_an_admin_adds_them)
{
    struct store_user user = a_user("anna", "carla", "viewer"), again = a_user("anna", "carla", "viewer"),
                      far = a_user("bert", "carla", "viewer"), other = a_user("anna", "dora", "viewer");

    OK(store_user_insert_from_provider(store, &user, on_done, NULL));
    FAILS(ERR_EXISTS, store_user_insert_from_provider(store, &again, on_done, NULL));
    OK(store_user_remove(store, "anna", user.id, 70, false, on_done, NULL));
    FAILS(ERR_USER_REMOVED, store_user_insert_from_provider(store, &again, on_done, NULL));
    FAILS(ERR_USER_REMOVED,
          store_user_insert_from_provider(store, &again, on_done, NULL)); /* asking again changes nothing */
    OK(store_user_insert_from_provider(store, &far, on_done, NULL));      /* in another tenant the name is free */
    OK(store_user_insert_from_provider(store, &other, on_done, NULL));
    OK(store_user_insert(store, &again, on_done, NULL)); /* added by an admin */
    OK(store_user_remove(store, "anna", again.id, 80, false, on_done, NULL));
    FAILS(ERR_USER_REMOVED, store_user_insert_from_provider(store, &user, on_done, NULL));
    FAILS(ERR_MISSING,
          store_user_insert(store,
                            &(struct store_user){
                                .id = "usaaaaaaaaaaaaaaaaaaaa", .owner = "anna", .name = "carla", .role = "nothing" },
                            on_done, NULL));
    FAILS(ERR_USER_REMOVED, store_user_insert_from_provider(store, &user, on_done, NULL)); /* nothing was added */
}

TEST(keys_are_listed_by_their_user)
{
    struct store_user user = a_user("anna", "carla", "viewer");
    struct store_key key = a_key("anna", 1), plain = a_key("anna", 2);

    OK(store_user_insert(store, &user, on_done, NULL));
    strcpy(key.user, user.id);
    OK(store_key_insert(store, &key, false, on_done, NULL));
    OK(store_key_insert(store, &plain, false, on_done, NULL));
    OK(store_key_list(store, &(struct store_list){ .owner = "anna", .user = user.id }, on_keys, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_key, 0)->id, key.id);
    OK(store_key_list(store, &(struct store_list){ .owner = "anna" }, on_keys, NULL));
    assert_int_equal(got.rows.n, 2);
    OK(store_key_list(store, &(struct store_list){ .owner = "bert", .user = user.id }, on_keys, NULL));
    assert_int_equal(got.rows.n, 0);
}

#define RUN_STORE(f) cmocka_unit_test_setup_teardown(f, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(a_tenant_keeps_its_quotas_and_an_update_sets_only_what_it_names),
        RUN_STORE(a_new_store_has_the_tenant_local_and_tenants_are_listed_by_name),
        RUN_STORE(a_removed_tenant_has_no_login_and_its_name_is_never_reused),
        RUN_STORE(user_names_are_unique_in_a_tenant_and_their_roles_exist_there),
        RUN_STORE(a_role_in_use_cannot_be_removed_and_roles_are_listed_by_name),
        RUN_STORE(AU17_the_last_admin_of_a_tenant_cannot_be_lost_in_any_way),
        RUN_STORE(a_login_reads_key_role_and_tenant_in_one_query),
        RUN_STORE(AU16_a_removed_user_is_not_recreated_until_an_admin_adds_them),
        RUN_STORE(keys_are_listed_by_their_user),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
