/* Users and roles with a real store: which principal may change which user, and that a change takes
 * effect with the next request. */
#include "tests/unit/test.h"

#include "server/auth/apikey.h"
#include "server/auth/tenant_users.h"
#include "server/auth/role.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#include <ftw.h>
#include <stdio.h>

static char dir[64];
static struct ev *loop;
static struct store *store;
static struct auth *auth;
static unsigned nrevoked;
static char ended[STORE_OWNER_MAX + 1]; /* last id passed to on_revoked */
static const uint64_t now_ns = 1000 * NS_PER_S, now_ms = 1700000000000;

/* the last result */
static bool answered;
static struct err failure;
static struct principal who;
static struct store_user user;
static struct store_key key;
static char secret[APIKEY_SIZE];

static void on_key_revoked(void *arg UNUSED, const char *id)
{
    str_copy(ended, sizeof(ended), id);
    nrevoked++;
}

static void await(void)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    while (!answered) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
}

static void note(const struct err *err)
{
    assert_false(answered);
    answered = true;
    failure = err ? *err : (struct err){ 0 };
}

static void on_done(void *arg UNUSED, const struct err *err)
{
    note(err);
}

static void on_user(void *arg UNUSED, const struct err *err, const struct store_user *row)
{
    note(err);
    if (row)
        user = *row;
}

static void on_role(void *arg UNUSED, const struct err *err, const struct store_role *row UNUSED)
{
    note(err);
}

static void on_tenant(void *arg UNUSED, const struct err *err, const struct store_tenant *row UNUSED)
{
    note(err);
}

static void on_key(void *arg UNUSED, const struct err *err, const struct store_key *row, const char *text)
{
    note(err);
    if (row) {
        key = *row;
        strcpy(secret, text);
    }
}

static void on_key_row(void *arg UNUSED, const struct err *err, const struct store_key *row UNUSED)
{
    note(err);
}

static void on_checked(void *arg UNUSED, const struct err *err, const struct principal *p)
{
    note(err);
    who = p ? *p : (struct principal){ 0 };
}

#define ASK(call) (answered = false, (call), await(), failure.id)

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int setup(void **state UNUSED)
{
    struct auth_settings set = { .on_revoked = on_key_revoked };
    struct err err = { 0 };

    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-auth-XXXXXX" : "/tmp/cove-auth-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    auto_free char *path = str_printf("%s/cove.db", dir);
    if (store_open(loop, &(struct store_settings){ .url.file = path }, &store, &err) < 0 ||
        auth_new(loop, store, &set, &auth, &err) < 0)
        return -1;
    nrevoked = 0;
    assert_int_equal(ASK(store_tenant_insert(store, &(struct store_tenant){ .name = "acme" }, on_done, NULL)), 0);
    assert_int_equal(ASK(store_tenant_insert(store, &(struct store_tenant){ .name = "other" }, on_done, NULL)), 0);
    return 0;
}

static int teardown(void **state UNUSED)
{
    auth_free(auth);
    store_close(store);
    ev_free(loop);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const struct principal the_operator = { .kind = PRINCIPAL_LOCAL, .owner = "local", .scopes = SCOPE_ALL };

static enum err_id add_user(const struct principal *by, const char *tenant, const char *name, const char *role)
{
    struct store_user row = { .created_ms = now_ms };

    strcpy(row.owner, tenant);
    strcpy(row.name, name);
    strcpy(row.role, role);
    return ASK(auth_user_create(auth, by, &row, on_user, NULL));
}

static enum err_id set_role(const struct principal *by, const char *id, const char *role)
{
    struct store_user row = { 0 };

    strcpy(row.id, id);
    strcpy(row.role, role);
    return ASK(auth_user_set(auth, by, &row, STORE_USER_SET_ROLE, on_user, NULL));
}

static enum err_id set_disabled(const struct principal *by, const char *id, bool disabled)
{
    struct store_user row = { .disabled = disabled };

    strcpy(row.id, id);
    return ASK(auth_user_set(auth, by, &row, STORE_USER_SET_DISABLED, on_user, NULL));
}

static enum err_id make_key(const struct principal *by, const char *tenant, const char *for_user, uint32_t scopes)
{
    struct auth_key_spec spec = { .name = "k", .owner = tenant, .user = for_user, .scopes = scopes };

    return ASK(auth_key_create(auth, by, &spec, now_ms, on_key, NULL));
}

/* Authenticates the key as the next request would. */
static enum err_id enter(const char *text)
{
    struct auth_request req = { .x_api_key = text, .peer = "192.0.2.1", .now_ns = now_ns, .now_ms = now_ms };
    struct auth_check *later;
    uint64_t retry;

    answered = false;
    failure = (struct err){ 0 };
    enum auth_verdict v = auth_check(auth, &req, &who, &retry, &failure, on_checked, NULL, &later);
    if (v == AUTH_LATER)
        await();
    return failure.id;
}

/* Creates a user of acme with this role, and returns its principal with a key for all permissions
 * of the role. */
static struct principal member(const char *name, const char *role, char text[APIKEY_SIZE])
{
    assert_int_equal(add_user(&the_operator, "acme", name, role), ERR_NONE);
    assert_int_equal(make_key(&the_operator, "acme", user.id, 0), ERR_NONE);
    assert_int_equal(enter(secret), ERR_NONE);
    if (text)
        strcpy(text, secret);
    return who;
}

TEST(a_users_key_has_the_permissions_of_the_role_and_never_the_operators)
{
    for (size_t i = 0; i < role_builtin_count; i++) {
        struct principal p = member(role_builtin[i].name, role_builtin[i].name, NULL);

        assert_int_equal(p.scopes, role_builtin[i].permissions);
        assert_string_equal(p.owner, "acme");
        assert_string_equal(p.user, user.id);
    }
    assert_int_equal(make_key(&the_operator, "acme", user.id, SCOPE_ALL), ERR_DENIED);
    assert_int_equal(make_key(&the_operator, "acme", user.id, SCOPE_BIT(METRICS)), ERR_DENIED);
    assert_int_equal(make_key(&the_operator, "other", user.id, SCOPE_BIT(FILES)), ERR_MISSING);
    assert_int_equal(make_key(&the_operator, "acme", "usnobody", SCOPE_BIT(FILES)), ERR_MISSING);
    assert_int_equal(make_key(&the_operator, "nowhere", "", SCOPE_BIT(FILES)), ERR_MISSING);
}

TEST(a_changed_role_or_disabled_user_takes_effect_with_the_next_request)
{
    char text[APIKEY_SIZE];
    struct principal admin = member("boss", "admin", NULL), dev = member("dev", "developer", text);

    assert_true(principal_has_scopes(&dev, SCOPE_BIT(EXECUTIONS)));
    assert_int_equal(set_role(&admin, dev.user, "viewer"), ERR_NONE);
    assert_int_equal(nrevoked, 1); /* open streams end */
    assert_int_equal(enter(text), ERR_NONE);
    assert_false(principal_has_scopes(&who, SCOPE_BIT(EXECUTIONS)));
    assert_true(principal_has_scopes(&who, SCOPE_BIT(EXECUTIONS_READ)));
    assert_int_equal(set_disabled(&admin, dev.user, true), ERR_NONE);
    assert_int_equal(enter(text), ERR_UNAUTHORIZED);
    assert_non_null(strstr(failure.msg, "disabled"));
    assert_int_equal(set_disabled(&admin, dev.user, false), ERR_NONE);
    assert_int_equal(enter(text), ERR_NONE);
    assert_int_equal(ASK(auth_user_remove(auth, &admin, dev.user, now_ms, on_done, NULL)), ERR_NONE);
    assert_int_equal(enter(text), ERR_UNAUTHORIZED);
}

TEST(open_streams_end_with_their_user_or_tenant_even_if_no_key_is_cached)
{
    struct principal admin = member("boss", "admin", NULL);
    struct store_tenant t = { .name = "acme", .suspended_ms = now_ms };

    assert_int_equal(add_user(&admin, "acme", "dev", "developer"), ERR_NONE);
    assert_int_equal(set_disabled(&admin, user.id, true), ERR_NONE);
    assert_string_equal(ended, user.id);
    assert_int_equal(ASK(auth_tenant_set(auth, &t, STORE_TENANT_SET_SUSPENDED, on_tenant, NULL)), ERR_NONE);
    assert_string_equal(ended, "acme");
    assert_int_equal(nrevoked, 2);
}

TEST(a_suspended_tenant_is_refused_until_it_is_resumed)
{
    char text[APIKEY_SIZE];
    struct store_tenant t = { .name = "acme", .suspended_ms = now_ms };

    member("dev", "developer", text);
    assert_int_equal(ASK(auth_tenant_set(auth, &t, STORE_TENANT_SET_SUSPENDED, on_tenant, NULL)), ERR_NONE);
    assert_int_equal(nrevoked, 1);
    assert_int_equal(enter(text), ERR_TENANT_SUSPENDED);
    assert_non_null(strstr(failure.msg, "acme"));
    t.suspended_ms = 0;
    assert_int_equal(ASK(auth_tenant_set(auth, &t, STORE_TENANT_SET_SUSPENDED, on_tenant, NULL)), ERR_NONE);
    assert_int_equal(enter(text), ERR_NONE);
    assert_int_equal(ASK(auth_tenant_remove(auth, "acme", now_ms, on_done, NULL)), ERR_NONE);
    assert_int_equal(enter(text), ERR_UNAUTHORIZED);
}

TEST(AU17_a_role_or_permission_cannot_be_granted_without_having_it)
{
    struct principal admin = member("boss", "admin", NULL), dev = member("dev", "developer", NULL);
    struct principal some = admin; /* an admin with a key for fewer scopes */
    char boss[ID_SIZE], weak[ID_SIZE];

    strcpy(boss, admin.user);
    some.scopes = SCOPE_BIT(TENANT) | SCOPE_BIT(FILES) | SCOPE_BIT(FILES_READ);
    assert_int_equal(add_user(&dev, "acme", "x", "viewer"), ERR_DENIED); /* lacks `tenant` */
    assert_int_equal(add_user(&some, "acme", "x", "viewer"), ERR_DENIED);
    assert_int_equal(set_role(&some, dev.user, "admin"), ERR_DENIED);
    assert_int_equal(set_disabled(&some, boss, true), ERR_DENIED); /* a user with more permissions cannot be changed */
    assert_int_equal(ASK(auth_user_remove(auth, &some, boss, now_ms, on_done, NULL)), ERR_DENIED);
    assert_int_equal(ASK(auth_role_create(auth, &some, "acme", "run", SCOPE_BIT(EXECUTIONS), now_ms, on_role, NULL)),
                     ERR_DENIED);
    assert_int_equal(ASK(auth_role_create(auth, &some, "acme", "look", SCOPE_BIT(FILES_READ), now_ms, on_role, NULL)),
                     ERR_NONE);
    assert_int_equal(add_user(&some, "acme", "weak", "look"), ERR_NONE);
    strcpy(weak, user.id);
    assert_int_equal(set_role(&some, weak, "nothing-of-the-kind"), ERR_MISSING);
    assert_int_equal(ASK(auth_role_create(auth, &the_operator, "acme", "root", SCOPE_ALL, now_ms, on_role, NULL)),
                     ERR_INVALID);
    assert_int_equal(ASK(auth_role_create(auth, &the_operator, "acme", "empty", 0, now_ms, on_role, NULL)),
                     ERR_INVALID);
    assert_int_equal(ASK(auth_role_remove(auth, &admin, "acme", "viewer", on_done, NULL)), ERR_DENIED);
    assert_int_equal(ASK(auth_role_remove(auth, &dev, "acme", "look", on_done, NULL)), ERR_DENIED);
    assert_int_equal(ASK(auth_role_remove(auth, &admin, "acme", "look", on_done, NULL)), ERR_EXISTS);
}

TEST(AU17_a_role_cannot_be_removed_by_a_principal_that_lacks_its_permissions)
{
    struct principal admin = member("boss", "admin", NULL), some = admin;

    some.scopes = SCOPE_BIT(TENANT) | SCOPE_BIT(FILES_READ);
    assert_int_equal(ASK(auth_role_create(auth, &admin, "acme", "run", SCOPE_BIT(EXECUTIONS) | SCOPE_BIT(FILES_READ),
                                          now_ms, on_role, NULL)),
                     ERR_NONE);
    assert_int_equal(ASK(auth_role_create(auth, &admin, "acme", "look", SCOPE_BIT(FILES_READ), now_ms, on_role, NULL)),
                     ERR_NONE);
    assert_int_equal(ASK(auth_role_remove(auth, &some, "acme", "run", on_done, NULL)), ERR_DENIED);
    assert_non_null(strstr(failure.msg, "executions"));
    assert_int_equal(ASK(auth_role_remove(auth, &some, "acme", "look", on_done, NULL)), ERR_NONE);
    assert_int_equal(ASK(auth_role_remove(auth, &some, "acme", "look", on_done, NULL)), ERR_MISSING);
    assert_int_equal(ASK(auth_role_remove(auth, &admin, "acme", "run", on_done, NULL)), ERR_NONE);
}

TEST(AU17_the_last_admin_cannot_be_removed_and_mutual_removal_leaves_one)
{
    struct principal one = member("one", "admin", NULL), two;
    struct err err[2] = { { 0 } };

    assert_int_equal(ASK(auth_user_remove(auth, &one, one.user, now_ms, on_done, NULL)), ERR_LAST_ADMIN);
    assert_int_equal(set_role(&one, one.user, "viewer"), ERR_LAST_ADMIN);
    assert_int_equal(set_disabled(&one, one.user, true), ERR_LAST_ADMIN);
    two = member("two", "admin", NULL);
    for (size_t i = 0; i < 2; i++) { /* sequential, but both are submitted before either result is known */
        struct principal *by = i ? &two : &one;

        err[i].id = ASK(auth_user_remove(auth, by, i ? one.user : two.user, now_ms, on_done, NULL));
    }
    assert_true((err[0].id == ERR_NONE) != (err[1].id == ERR_NONE));
    assert_int_equal(ASK(auth_user_remove(auth, &the_operator, err[0].id ? two.user : one.user, now_ms, on_done, NULL)),
                     ERR_NONE); /* the operator may, because the operator remains */
}

static unsigned nsettled, nleft;

static void on_settled(void *arg UNUSED, const struct err *err)
{
    nsettled++;
    nleft += err && err->id == ERR_LAST_ADMIN;
}

TEST(AU17_concurrent_mutual_removal_of_admins_leaves_one)
{
    struct principal who_is[8];
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    nsettled = nleft = 0;
    for (unsigned i = 0; i < ARRAY_LEN(who_is); i++) {
        char name[8];

        snprintf(name, sizeof(name), "a%u", i);
        who_is[i] = member(name, "admin", NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(who_is); i++)
        auth_user_remove(auth, &who_is[i], who_is[i].user, now_ms, on_settled, NULL);
    while (nsettled < ARRAY_LEN(who_is)) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
    assert_int_equal(nleft, 1);
}

TEST(AU18_only_the_operator_may_name_a_tenant_and_errors_reveal_nothing)
{
    struct principal admin = member("boss", "admin", NULL);
    struct err there = { 0 }, nowhere = { 0 };
    const char *tenant = NULL;

    assert_int_equal(auth_resolve_tenant(&admin, NULL, &tenant, &there), 0);
    assert_string_equal(tenant, "acme");
    assert_int_equal(auth_resolve_tenant(&admin, "acme", &tenant, &there), 0);
    assert_int_equal(auth_resolve_tenant(&admin, "other", &tenant, &there), -1);
    assert_int_equal(auth_resolve_tenant(&admin, "nowhere", &tenant, &nowhere), -1);
    assert_int_equal(there.id, nowhere.id);
    assert_string_equal(there.msg, nowhere.msg);
    assert_int_equal(auth_resolve_tenant(&the_operator, "other", &tenant, &there), 0);
    assert_string_equal(tenant, "other");
    assert_int_equal(auth_resolve_tenant(&the_operator, STORE_ANY_OWNER, &tenant, &there), -1);
}

TEST(a_user_of_another_tenant_looks_missing)
{
    struct principal admin = member("boss", "admin", NULL);
    struct store_user theirs;

    assert_int_equal(add_user(&the_operator, "other", "theirs", "viewer"), ERR_NONE);
    theirs = user;
    assert_int_equal(set_role(&admin, theirs.id, "viewer"), ERR_MISSING);
    assert_int_equal(ASK(auth_user_remove(auth, &admin, theirs.id, now_ms, on_done, NULL)), ERR_MISSING);
    assert_int_equal(set_role(&the_operator, theirs.id, "developer"), ERR_NONE);
}

TEST(a_developer_sees_only_own_keys_and_an_admin_all_of_the_tenant)
{
    struct principal admin = member("boss", "admin", NULL), dev = member("dev", "developer", NULL);
    struct store_key own = key;

    assert_int_equal(make_key(&dev, NULL, NULL, SCOPE_BIT(FILES)), ERR_NONE);
    assert_string_equal(key.user, dev.user);
    assert_true(auth_key_is_visible(&dev, &key));
    assert_int_equal(make_key(&dev, NULL, "", SCOPE_BIT(FILES)), ERR_DENIED);
    assert_int_equal(make_key(&dev, NULL, admin.user, SCOPE_BIT(FILES)), ERR_DENIED);
    assert_int_equal(make_key(&admin, NULL, "", SCOPE_BIT(FILES)), ERR_NONE); /* a key without a user */
    assert_string_equal(key.user, "");
    assert_false(auth_key_is_visible(&dev, &key));
    assert_true(auth_key_is_visible(&admin, &own));
    assert_int_equal(ASK(auth_key_rotate(auth, &dev, key.id, on_key, NULL)), ERR_MISSING);
    assert_int_equal(ASK(auth_key_revoke(auth, &dev, key.id, now_ms, on_key_row, NULL)), ERR_MISSING);
    assert_int_equal(ASK(auth_key_revoke(auth, &admin, own.id, now_ms, on_key_row, NULL)), ERR_NONE);
}

#define RUN_MEMBERS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_MEMBERS(a_users_key_has_the_permissions_of_the_role_and_never_the_operators),
        RUN_MEMBERS(a_changed_role_or_disabled_user_takes_effect_with_the_next_request),
        RUN_MEMBERS(open_streams_end_with_their_user_or_tenant_even_if_no_key_is_cached),
        RUN_MEMBERS(a_suspended_tenant_is_refused_until_it_is_resumed),
        RUN_MEMBERS(AU17_a_role_or_permission_cannot_be_granted_without_having_it),
        RUN_MEMBERS(AU17_a_role_cannot_be_removed_by_a_principal_that_lacks_its_permissions),
        RUN_MEMBERS(AU17_the_last_admin_cannot_be_removed_and_mutual_removal_leaves_one),
        RUN_MEMBERS(AU17_concurrent_mutual_removal_of_admins_leaves_one),
        RUN_MEMBERS(AU18_only_the_operator_may_name_a_tenant_and_errors_reveal_nothing),
        RUN_MEMBERS(a_user_of_another_tenant_looks_missing),
        RUN_MEMBERS(a_developer_sees_only_own_keys_and_an_admin_all_of_the_tenant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
