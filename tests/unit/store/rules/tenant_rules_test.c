/* Rules on admins, removed users, roles and logins, without a database. */
#include "memory_db.h"

static struct memory_db db;

static int setup(void **state UNUSED)
{
    struct store_tenant anna = { .name = "anna", .created_ms = 1 }, bert = { .name = "bert", .created_ms = 1 };
    struct err err = { 0 };

    memory_db_init(&db);
    memory_db_insert(&db.base, &row_tenant, &anna, NULL, &err);
    memory_db_insert(&db.base, &row_tenant, &bert, NULL, &err);
    return 0;
}

static int teardown(void **state UNUSED)
{
    memory_db_done(&db);
    return 0;
}

static struct store_user new_user(const char *owner, const char *name, const char *role)
{
    struct store_user user = { .created_ms = 1 };

    id_new("us", user.id);
    strcpy(user.owner, owner);
    strcpy(user.name, name);
    strcpy(user.role, role);
    return user;
}

static enum err_id add(const struct row_table *t, void *row, bool vouched)
{
    struct store_request c = { .op = STORE_OP_INSERT, .table = t, .row = row, .from_identity_provider = vouched };

    return memory_db_run(&db, &c);
}

static enum err_id remove_user(const struct store_user *user, bool keep_admin)
{
    struct store_request c = { .op = STORE_OP_REMOVE, .table = &row_user, .id = (char *)user->id, .now_ms = 9 };

    c.keep_admin = keep_admin;
    strcpy(c.owner, user->owner);
    enum err_id id = memory_db_run(&db, &c);
    row_list_done(&row_user, &c.rows);
    return id;
}

static enum err_id update_user(const struct store_user *user, uint32_t set, bool keep_admin)
{
    struct store_request c = { .op = STORE_OP_UPDATE, .table = &row_user, .id = (char *)user->id, .set = set };

    c.row = (void *)(uintptr_t)user;
    c.keep_admin = keep_admin;
    strcpy(c.owner, user->owner);
    enum err_id id = memory_db_run(&db, &c);
    row_list_done(&row_user, &c.rows);
    return id;
}

TEST(an_enabled_user_with_the_first_role_is_an_admin_until_an_update_takes_either)
{
    static const struct {
        const char *role;
        bool disabled;
        uint32_t set;
        const char *new_role;
        bool new_disabled, is, stays;
    } cases[] = {
        { "admin", false, 0, "viewer", true, true, true }, /* nothing is set */
        { "admin", false, STORE_USER_SET_ROLE, "viewer", false, true, false },
        { "admin", false, STORE_USER_SET_ROLE, "admin", false, true, true },
        { "admin", false, STORE_USER_SET_DISABLED, "admin", true, true, false },
        { "admin", false, STORE_USER_SET_ROLE | STORE_USER_SET_DISABLED, "admin", false, true, true },
        { "admin", true, STORE_USER_SET_DISABLED, "", false, false, true },
        { "viewer", false, STORE_USER_SET_ROLE, "admin", false, false, true },
        { "viewer", false, STORE_USER_SET_NAME, "admin", false, false, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct store_user user = { .disabled = cases[i].disabled }, update = { .disabled = cases[i].new_disabled };

        strcpy(user.role, cases[i].role);
        strcpy(update.role, cases[i].new_role);
        if (tenant_rules_is_admin(&user) != cases[i].is ||
            tenant_rules_stays_admin(&user, &update, cases[i].set) != cases[i].stays)
            fail_msg("case %zu", i);
    }
}

TEST(the_last_admin_of_a_tenant_is_kept_only_when_the_caller_asks_for_it)
{
    struct store_user ada = new_user("anna", "ada", "admin"), bea = new_user("anna", "bea", "admin"),
                      other = new_user("bert", "ada", "admin");

    assert_int_equal(add(&row_user, &ada, false), 0);
    assert_int_equal(add(&row_user, &bea, false), 0);
    assert_int_equal(add(&row_user, &other, false), 0); /* an admin of another tenant does not count */
    bea.disabled = true;
    assert_int_equal(update_user(&bea, STORE_USER_SET_DISABLED, true), 0);
    assert_int_equal(remove_user(&ada, true), ERR_LAST_ADMIN); /* a disabled admin does not count */
    assert_true(db.undone);
    strcpy(ada.role, "viewer");
    assert_int_equal(update_user(&ada, STORE_USER_SET_ROLE, true), ERR_LAST_ADMIN);
    bea.disabled = false;
    assert_int_equal(update_user(&bea, STORE_USER_SET_DISABLED, true), 0);
    assert_int_equal(update_user(&ada, STORE_USER_SET_ROLE, true), 0);
    assert_int_equal(remove_user(&bea, true), ERR_LAST_ADMIN);
    assert_int_equal(remove_user(&bea, false), 0);
    assert_int_equal(memory_db_size(&db, &row_user), 2);
}

TEST(an_identity_provider_does_not_bring_a_removed_user_back_but_an_admin_does)
{
    struct store_user ada = new_user("anna", "ada", "viewer"), again = new_user("anna", "ada", "viewer"),
                      elsewhere = new_user("bert", "ada", "viewer");

    assert_int_equal(add(&row_user, &ada, true), 0);
    assert_int_equal(remove_user(&ada, true), 0);
    assert_int_equal(add(&row_user, &again, true), ERR_USER_REMOVED);
    assert_int_equal(add(&row_user, &elsewhere, true), 0); /* the same name in another tenant */
    assert_int_equal(add(&row_user, &again, false), 0);
    assert_int_equal(memory_db_size(&db, &row_removed_user), 0);
}

TEST(a_new_row_refers_to_rows_of_its_own_tenant)
{
    struct store_role role = { .owner = "anna", .name = "runner", .permissions = (char *)"run" };
    struct store_user ada = new_user("anna", "ada", "runner"), stranger = new_user("bert", "ada", "runner"),
                      nowhere = new_user("carl", "ada", "admin");
    struct store_key key = { .id = "ky1", .owner = "bert", .prefix = "cove_1" };
    struct store_request drop = { .op = STORE_OP_REMOVE, .table = &row_role, .owner = "anna", .id = (char *)"runner" };

    assert_int_equal(add(&row_role, &role, false), 0);
    assert_int_equal(add(&row_user, &ada, false), 0);
    assert_int_equal(add(&row_user, &stranger, false), ERR_MISSING); /* the role belongs to anna */
    assert_int_equal(add(&row_user, &nowhere, false), ERR_MISSING);
    strcpy(key.user, ada.id);
    assert_int_equal(add(&row_key, &key, false), ERR_MISSING); /* the user belongs to anna */
    assert_int_equal(memory_db_run(&db, &drop), ERR_EXISTS);   /* the role is in use */
    row_list_done(&row_role, &drop.rows);
    assert_int_equal(memory_db_size(&db, &row_role), 1);
}

static struct store_login login(uint8_t hash, enum err_id expected)
{
    struct store_request c = { .op = STORE_OP_LOGIN, .table = &row_login };
    struct store_login row = { 0 };

    memset(c.hash, hash, sizeof(c.hash));
    assert_int_equal(memory_db_run(&db, &c), expected);
    if (expected == 0)
        row = *(struct store_login *)(void *)c.rows.rows;
    row_list_done(&row_login, &c.rows);
    return row; /* its texts are not valid */
}

TEST(a_login_reads_key_user_role_and_tenant_and_a_key_without_its_user_is_no_member)
{
    struct store_user ada = new_user("anna", "ada", "developer");
    struct store_key key = { .id = "ky1", .owner = "anna", .prefix = "cove_1" }, lost = key, free_key = key;
    struct err err = { 0 };

    ada.disabled = true;
    assert_int_equal(add(&row_user, &ada, false), 0);
    strcpy(key.user, ada.id);
    memset(key.hash, 1, sizeof(key.hash));
    assert_int_equal(add(&row_key, &key, false), 0);
    strcpy(lost.user, "usaaaaaaaaaaaaaaaaaaaa");
    memset(lost.hash, 2, sizeof(lost.hash));
    memory_db_insert(&db.base, &row_key, &lost, NULL, &err);
    memset(free_key.hash, 3, sizeof(free_key.hash));
    assert_int_equal(add(&row_key, &free_key, false), 0);

    struct store_login row = login(1, 0);
    assert_string_equal(row.role, "developer");
    assert_true(row.member && row.disabled);
    row = login(2, 0);
    assert_string_equal(row.role, "");
    assert_false(row.member);
    row = login(3, 0);
    assert_true(row.member);
    login(4, ERR_MISSING);
}

#define RUN_RULES(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_RULES(an_enabled_user_with_the_first_role_is_an_admin_until_an_update_takes_either),
        RUN_RULES(the_last_admin_of_a_tenant_is_kept_only_when_the_caller_asks_for_it),
        RUN_RULES(an_identity_provider_does_not_bring_a_removed_user_back_but_an_admin_does),
        RUN_RULES(a_new_row_refers_to_rows_of_its_own_tenant),
        RUN_RULES(a_login_reads_key_user_role_and_tenant_and_a_key_without_its_user_is_no_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
