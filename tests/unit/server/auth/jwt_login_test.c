/* Tokens of an issuer against a real store: the issuer names the user, the store decides about
 * membership. */
#include "minter.h"

#include "server/auth/tenant_users.h"
#include "server/auth/delegation.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

static char dir[64];
static struct ev *loop;
static struct store *store;
static struct auth *auth;
static EVP_PKEY *key;
static uint64_t now_ns, now_ms;
static char ended[ID_SIZE]; /* last id passed to on_revoked */

static const struct principal operator_ = { .kind = PRINCIPAL_LOCAL, .owner = AUTH_LOCAL_OWNER, .scopes = SCOPE_ALL };

static void on_revoked(void *arg UNUSED, const char *id)
{
    str_copy(ended, sizeof(ended), id);
}

static void open_auth(const char *new_role, const char *role_claim)
{
    static char path[96];
    struct issuer_settings issuer = { .issuer = "https://id.example",
                                      .audience = "cove",
                                      .jwks_file = path,
                                      .user_claim = "sub",
                                      .tenant_claim = "org",
                                      .role_claim = role_claim,
                                      .skew_ms = 0,
                                      .lifetime_max_ms = 3600000,
                                      .refetch_min_ms = 1000 };
    struct auth_settings set = {
        .jwt = &issuer, .jwt_role = new_role, .on_revoked = on_revoked, .rate = { [AUTH_CLASS_CREATE] = "1/h burst 2" }
    };
    struct err err = { 0 };

    snprintf(path, sizeof(path), "%s/jwks", dir);
    if (auth_new(loop, store, &set, &auth, &err) < 0)
        fail_msg("%s", err.msg);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    if (!key)
        key = minter_key(JWT_EDDSA);
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-vouch-XXXXXX" : "/tmp/cove-vouch-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    auto_free char *db = str_printf("%s/cove.db", dir), *path = str_printf("%s/jwks", dir);
    auto_free char *set = minter_set(&key, (const char *const[]){ "k" }, 1);
    auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, set, strlen(set)) < 0)
        return -1;
    now_ns = 1000 * NS_PER_S;
    now_ms = 1700000000000;
    ended[0] = '\0';
    if (store_open(loop, &(struct store_settings){ .url.file = db }, &store, &err) < 0)
        fail_msg("%s", err.msg);
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    auth_free(auth);
    auth = NULL;
    store_close(store);
    ev_free(loop);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- helpers --- */

static bool answered;
static struct err failure;
static struct principal who;
static char made_user[ID_SIZE];

static void await(void)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    while (!answered) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
}

static void on_done(void *arg UNUSED, const struct err *err)
{
    answered = true;
    failure = err ? *err : (struct err){ 0 };
}

static void on_user(void *arg UNUSED, const struct err *err, const struct store_user *row)
{
    on_done(NULL, err);
    if (!err)
        strcpy(made_user, row->id);
}

static void on_tenant(void *arg UNUSED, const struct err *err, const struct store_tenant *row UNUSED)
{
    on_done(NULL, err);
}

static void on_checked(void *arg UNUSED, const struct err *err, const struct principal *p)
{
    on_done(NULL, err);
    if (!err)
        who = *p;
}

static void make_tenant(const char *name)
{
    struct store_tenant row = { .created_ms = 1 };

    strcpy(row.name, name);
    answered = false;
    store_tenant_insert(store, &row, on_done, NULL);
    await();
    assert_int_equal(failure.id, ERR_NONE);
}

static void make_user(const char *tenant, const char *name, const char *role)
{
    struct store_user row = { 0 };

    strcpy(row.owner, tenant);
    strcpy(row.name, name);
    strcpy(row.role, role);
    answered = false;
    auth_user_create(auth, &operator_, &row, on_user, NULL);
    await();
    if (failure.id != ERR_NONE)
        fail_msg("%s", failure.msg);
}

static void set_user(const char *role, bool disabled)
{
    struct store_user row = { .disabled = disabled };

    strcpy(row.id, made_user);
    strcpy(row.role, role);
    answered = false;
    auth_user_set(auth, &operator_, &row, STORE_USER_SET_ROLE | STORE_USER_SET_DISABLED, on_user, NULL);
    await();
    if (failure.id != ERR_NONE)
        fail_msg("%s", failure.msg);
}

static void remove_user(void)
{
    answered = false;
    auth_user_remove(auth, &operator_, made_user, now_ms, on_done, NULL);
    await();
    assert_int_equal(failure.id, ERR_NONE);
}

static bool ask(const struct auth_request *req)
{
    struct auth_check *later;
    uint64_t retry;

    answered = false;
    failure = (struct err){ 0 };
    who = (struct principal){ 0 };
    switch (auth_check(auth, req, &who, &retry, &failure, on_checked, NULL, &later)) {
    case AUTH_YES:
        return true;
    case AUTH_NO:
        return false;
    case AUTH_LATER:
        break;
    }
    await();
    return failure.id == ERR_NONE;
}

static bool ask_bearer(const char *text)
{
    auto_free char *header = str_printf("Bearer %s", text);

    return ask(
        &(struct auth_request){ .authorization = header, .peer = "192.0.2.1", .now_ns = now_ns, .now_ms = now_ms });
}

static char *token_of(const char *user, const char *tenant, const char *more)
{
    auto_free char *claims = str_printf(
        "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"%s\",\"org\":\"%s\","
        "\"exp\":1700000600%s}",
        user, tenant, more);

    return minter_token(key, "{\"alg\":\"EdDSA\",\"kid\":\"k\"}", claims);
}

static bool comes(const char *user, const char *tenant, const char *more)
{
    auto_free char *token = token_of(user, tenant, more);

    return ask_bearer(token);
}

/* --- tests --- */

TEST(an_existing_user_has_the_permissions_of_the_role)
{
    open_auth(NULL, "");
    make_tenant("acme");
    make_user("acme", "ada", "viewer");
    assert_true(comes("ada", "acme", ""));
    assert_int_equal(who.kind, PRINCIPAL_JWT);
    assert_string_equal(who.owner, "acme");
    assert_string_equal(who.user, made_user);
    assert_string_equal(who.key_id, "");
    assert_int_equal(who.expires_ms, 1700000600000);
    assert_true(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_READ)));
    assert_false(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_WRITE)));
    set_user("admin", false);
    assert_true(comes("ada", "acme", ""));
    assert_true(principal_has_scopes(&who, SCOPE_BIT(TENANT)));
    assert_false(principal_has_scopes(&who, SCOPE_BIT(ADMIN))); /* reserved for the operator, in no role */
}

TEST(AU16_a_token_for_a_tenant_without_that_user_is_refused)
{
    open_auth(NULL, "");
    make_tenant("acme");
    make_tenant("other");
    make_user("acme", "ada", "developer");
    assert_false(comes("ada", "other", ""));
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    assert_false(comes("ada", "nowhere", ""));
    assert_false(comes("ada", "*", ""));
    assert_false(comes("eve", "acme", ""));
    assert_true(comes("ada", "acme", ""));
    set_user("developer", true); /* takes effect at once, not when a cached entry expires */
    assert_false(comes("ada", "acme", ""));
    assert_string_equal(ended, made_user);
    set_user("developer", false);
    assert_true(comes("ada", "acme", ""));
    remove_user();
    assert_false(comes("ada", "acme", ""));
}

TEST(AU13_a_name_that_only_looks_like_a_users_name_is_refused)
{
    open_auth(NULL, "");
    make_user("local", "ada@example.org", "developer");
    assert_true(comes("ada@example.org", "local", ""));
    /* A Cyrillic a. */
    assert_false(comes("\xd0\xb0"
                       "da@example.org",
                       "local", ""));
    assert_false(comes("Ada@example.org", "local", ""));
    assert_false(comes("ada@example.org ", "local", ""));
    assert_false(comes("ada@example.org\\u0000", "local", ""));
}

TEST(tokens_of_a_suspended_tenant_are_refused)
{
    struct store_tenant row = { .name = "acme", .suspended_ms = 1 };

    open_auth(NULL, "");
    make_tenant("acme");
    make_user("acme", "ada", "developer");
    assert_true(comes("ada", "acme", ""));
    answered = false;
    auth_tenant_set(auth, &row, STORE_TENANT_SET_SUSPENDED, on_tenant, NULL);
    await();
    assert_false(comes("ada", "acme", ""));
    assert_int_equal(failure.id, ERR_TENANT_SUSPENDED);
}

TEST(users_are_created_if_configured_but_tenants_never)
{
    open_auth("viewer", "roles");
    make_tenant("acme");
    assert_true(comes("new", "acme", ""));
    assert_false(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_WRITE)));
    assert_true(comes("dev", "acme", ",\"roles\":[\"nonsense\",\"developer\"]"));
    assert_true(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_WRITE)));
    assert_true(comes("odd", "acme", ",\"roles\":\"nonsense\""));
    assert_false(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_WRITE)));
    assert_true(comes("new", "acme", ",\"roles\":\"admin\"")); /* does not change an existing user */
    assert_false(principal_has_scopes(&who, SCOPE_BIT(TENANT)));
    assert_false(comes("new", "nowhere", ""));
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
}

TEST(AU16_a_removed_user_is_not_created_again_by_a_token)
{
    open_auth("viewer", "");
    make_tenant("acme");
    assert_true(comes("new", "acme", ""));
    strcpy(made_user, who.user);
    remove_user();
    for (int i = 0; i < 2; i++) {
        assert_false(comes("new", "acme", ""));
        assert_int_equal(failure.id, ERR_USER_REMOVED);
    }
    assert_true(comes("another", "acme", ""));
    make_user("acme", "new", "developer"); /* by an admin, with a role of choice */
    assert_true(comes("new", "acme", ""));
    assert_true(principal_has_scopes(&who, SCOPE_BIT(SANDBOXES_WRITE)));
    remove_user();
    assert_false(comes("new", "acme", ""));
}

TEST(delegated_tokens_end_with_their_user_and_do_not_pass_to_a_namesake)
{
    struct delegation_spec spec = {
        .owner = "local", .sandbox = "sbaaaaaaaaaaaaaaaaaaaa", .scopes = scope_expand(SCOPE_BIT(FILES)), .ttl_ms = 60000
    };
    struct delegated_token pass;
    struct err err = { 0 };
    auto_buf token = { 0 };
    char ticket[TICKET_SIZE];

    open_auth(NULL, "");
    make_user("local", "ada", "developer");
    assert_true(comes("ada", "local", ""));
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;
    while (delegation_make_token(auth, &who, &spec, now_ms, &token, &pass, &err) < 0) {
        assert_int_equal(err.id, ERR_BUSY); /* the MAC key is not loaded yet */
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 100);
    }
    assert_true(ask_bearer(token.data));
    assert_int_equal(who.kind, PRINCIPAL_SANDBOX_TOKEN);
    assert_string_equal(who.sandbox, spec.sandbox);
    assert_int_equal(who.scopes, spec.scopes);
    assert_int_equal(delegation_make_ticket(auth, &who, "GET", "/v1/x", now_ns, ticket, &err), 0);
    assert_true(ask(&(struct auth_request){
        .ticket = ticket, .method = "GET", .path = "/v1/x", .now_ns = now_ns, .now_ms = now_ms }));
    assert_int_equal(who.kind, PRINCIPAL_TICKET);
    set_user("developer", true);
    assert_false(ask_bearer(token.data));
    set_user("viewer", false);
    assert_true(ask_bearer(token.data));
    assert_int_equal(who.scopes, SCOPE_BIT(FILES_READ)); /* no more than the delegator has now */
    remove_user();
    make_user("local", "ada", "developer");
    assert_false(ask_bearer(token.data));
}

TEST(all_tokens_of_a_user_share_one_rate_limit)
{
    struct ratelimit_answer rate;

    open_auth(NULL, "");
    make_user("local", "ada", "developer");
    for (int i = 0; i < 3; i++) {
        auto_free char *more = str_printf(",\"jti\":\"%d\"", i);

        assert_true(comes("ada", "local", more));
        assert_int_equal(auth_rate_take(auth, &who, AUTH_CLASS_CREATE, now_ns, &rate), i < 2);
    }
}

TEST(AU11_forged_tokens_throttle_their_address_but_valid_ones_are_accepted)
{
    EVP_PKEY *other = minter_key(JWT_EDDSA);
    auto_free char *good = token_of("ada", "local", ""), *old = str_dup(good);
    auto_free char *forged = minter_token(other, "{\"alg\":\"EdDSA\",\"kid\":\"k\"}",
                                          "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"ada\","
                                          "\"org\":\"local\",\"exp\":1700000600}");

    open_auth(NULL, "");
    make_user("local", "ada", "developer");
    for (int i = 0; i < 10; i++) {
        assert_false(ask_bearer(forged));
        assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    }
    assert_false(ask_bearer(forged));
    assert_int_equal(failure.id, ERR_RATE_LIMITED);
    assert_true(ask_bearer(good));
    now_ms = 1700000600000;
    for (int i = 0; i < 30; i++) { /* an expired token is a mistake and not an attack */
        assert_false(ask_bearer(old));
        assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    }
    EVP_PKEY_free(other);
}

#define RUN_VOUCHED(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int free_key(void **state UNUSED)
{
    EVP_PKEY_free(key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_VOUCHED(an_existing_user_has_the_permissions_of_the_role),
        RUN_VOUCHED(AU16_a_token_for_a_tenant_without_that_user_is_refused),
        RUN_VOUCHED(AU13_a_name_that_only_looks_like_a_users_name_is_refused),
        RUN_VOUCHED(tokens_of_a_suspended_tenant_are_refused),
        RUN_VOUCHED(users_are_created_if_configured_but_tenants_never),
        RUN_VOUCHED(AU16_a_removed_user_is_not_created_again_by_a_token),
        RUN_VOUCHED(delegated_tokens_end_with_their_user_and_do_not_pass_to_a_namesake),
        RUN_VOUCHED(all_tokens_of_a_user_share_one_rate_limit),
        RUN_VOUCHED(AU11_forged_tokens_throttle_their_address_but_valid_ones_are_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, free_key);
}
