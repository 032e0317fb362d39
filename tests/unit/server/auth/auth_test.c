/* Uses a real store in its own directory: tests auth and store together. */
#include "tests/unit/test.h"

#include "server/auth/apikey.h"
#include "server/auth/auth.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#define OWNER_UID 4242u

static char dir[64];
static struct ev *loop;
static struct store *store;
static struct auth *auth;
static char revoked[ID_SIZE]; /* last id passed to on_revoked */
static uint64_t now_ns, now_ms;

/* the last result */
static bool answered;
static struct err failure;
static struct principal who;
static char id[ID_SIZE], secret[APIKEY_SIZE], owner[STORE_OWNER_MAX + 1];
static uint64_t retry_ns;

static void on_key_revoked(void *arg UNUSED, const char *key_id)
{
    strcpy(revoked, key_id);
}

static void open_auth(void)
{
    struct auth_settings set = { .owner_uid = OWNER_UID,
                                 .on_revoked = on_key_revoked,
                                 .rate = { [AUTH_CLASS_CREATE] = "1/h burst 2" } };
    struct err err = { 0 };

    if (auth_new(loop, store, &set, &auth, &err) < 0)
        fail_msg("%s", err.msg);
}

static void open_store(void)
{
    auto_free char *path = str_printf("%s/cove.db", dir);
    struct store_settings set = { .url.file = path };
    struct err err = { 0 };

    if (store_open(loop, &set, &store, &err) < 0)
        fail_msg("%s", err.msg);
}

static void on_tenant_made(void *arg UNUSED, const struct err *err)
{
    answered = true;
    assert_null(err);
}

static void make_tenant(const char *name)
{
    struct store_tenant t = { .created_ms = 1 };

    strcpy(t.name, name);
    answered = false;
    store_tenant_insert(store, &t, on_tenant_made, NULL);
    while (!answered)
        ev_turn(loop, 1000);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-auth-XXXXXX" : "/tmp/cove-auth-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    now_ns = 1000 * NS_PER_S;
    now_ms = 1700000000000;
    revoked[0] = '\0';
    open_store();
    open_auth();
    make_tenant("anna");
    make_tenant("bert");
    make_tenant("boss");
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    auth_free(auth);
    store_close(store);
    ev_free(loop);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void await(void)
{
    uint64_t end = clock_mono_ns() + 20 * NS_PER_S;

    while (!answered) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
}

/* --- helpers --- */

static void on_checked(void *arg UNUSED, const struct err *err, const struct principal *p)
{
    answered = true;
    failure = err ? *err : (struct err){ 0 };
    if (p)
        who = *p;
}

/* Returns the verdict. Waits for AUTH_LATER until it becomes AUTH_YES or AUTH_NO, and sets *looked
 * if the store was queried. */
static enum auth_verdict check_as(const struct auth_request *req, bool *looked)
{
    struct auth_check *later;

    answered = false;
    failure = (struct err){ 0 };
    who = (struct principal){ 0 };
    enum auth_verdict v = auth_check(auth, req, &who, &retry_ns, &failure, on_checked, NULL, &later);
    *looked = v == AUTH_LATER;
    if (v == AUTH_LATER) {
        assert_false(answered);
        await();
        v = failure.id == ERR_NONE ? AUTH_YES : AUTH_NO;
    }
    if (v == AUTH_NO)
        assert_true(failure.id != ERR_NONE && failure.msg[0]);
    return v;
}

static enum auth_verdict check_key(const char *key, const char *peer)
{
    struct auth_request req = { .x_api_key = key, .peer = peer, .now_ns = now_ns, .now_ms = now_ms };
    bool looked;

    return check_as(&req, &looked);
}

static void on_key(void *arg UNUSED, const struct err *err, const struct store_key *row, const char *text)
{
    answered = true;
    failure = err ? *err : (struct err){ 0 };
    if (!err) {
        strcpy(id, row->id);
        strcpy(owner, row->owner);
        strcpy(secret, text);
    }
}

static void on_row(void *arg UNUSED, const struct err *err, const struct store_key *row UNUSED)
{
    answered = true;
    failure = err ? *err : (struct err){ 0 };
}

static struct principal local(void)
{
    struct auth_request req = { .over_socket = true, .peer_uid = 0, .now_ns = now_ns, .now_ms = now_ms };
    bool looked;

    assert_int_equal(check_as(&req, &looked), AUTH_YES);
    return who;
}

static enum err_id create(const struct principal *by, const struct auth_key_spec *spec)
{
    answered = false;
    auth_key_create(auth, by, spec, now_ms, on_key, NULL);
    assert_false(answered);
    await();
    return failure.id;
}

static enum err_id rotate_key(const struct principal *by, const char *key)
{
    answered = false;
    auth_key_rotate(auth, by, key, on_key, NULL);
    await();
    return failure.id;
}

static enum err_id revoke_key(const struct principal *by, const char *key)
{
    answered = false;
    auth_key_revoke(auth, by, key, now_ms, on_row, NULL);
    await();
    return failure.id;
}

/* Returns a principal with these scopes, authenticated by its own key. */
static struct principal with_key(uint32_t scopes, const char *of, uint64_t expires_ms)
{
    struct principal root = local();
    struct auth_key_spec spec = { .scopes = scopes, .owner = of, .expires_ms = expires_ms };

    assert_int_equal(create(&root, &spec), ERR_NONE);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    return who;
}

/* --- tests --- */

TEST(a_key_has_its_owner_and_scopes_and_the_store_is_queried_once)
{
    struct principal root = local();
    struct auth_key_spec spec = { .name = "ci", .scopes = SCOPE_BIT(FILES), .owner = "anna" };
    struct auth_request req = { .now_ns = now_ns, .now_ms = now_ms, .peer = "192.0.2.1" };
    bool looked;

    assert_int_equal(create(&root, &spec), ERR_NONE);
    auto_free char *header = str_printf("Bearer %s", secret);
    auto_free char *other = str_printf("Bearer e2b_%s", secret + 5);
    req.authorization = header;
    assert_int_equal(check_as(&req, &looked), AUTH_YES);
    assert_true(looked);
    assert_string_equal(who.owner, "anna");
    assert_string_equal(who.key_id, id);
    assert_int_equal(who.scopes, scope_expand(SCOPE_BIT(FILES)));
    assert_int_equal(who.kind, PRINCIPAL_KEY);
    assert_string_equal(who.user, "");
    req.authorization = other; /* the other prefix of the same key, answered from the cache */
    assert_int_equal(check_as(&req, &looked), AUTH_YES);
    assert_false(looked);
    assert_string_equal(who.key_id, id);
    req.now_ns += KEYCACHE_FRESH_NS; /* a cached entry expires */
    assert_int_equal(check_as(&req, &looked), AUTH_YES);
    assert_true(looked);
}

TEST(local_is_root_or_the_servers_user_over_the_socket_without_a_key)
{
    struct auth_request req = { .over_socket = true, .peer_uid = OWNER_UID, .now_ns = now_ns, .now_ms = now_ms };
    bool looked;

    assert_int_equal(check_as(&req, &looked), AUTH_YES);
    assert_true(principal_is_local(&who));
    assert_string_equal(who.owner, AUTH_LOCAL_OWNER);
    assert_int_equal(who.scopes, SCOPE_ALL);
    req.peer_uid = OWNER_UID + 1;
    assert_int_equal(check_as(&req, &looked), AUTH_NO);
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    req.peer_uid = 0;
    req.over_socket = false; /* without a socket the uid has no meaning */
    assert_int_equal(check_as(&req, &looked), AUTH_NO);
    req.over_socket = true;
    req.x_api_key = "cove_0000000000000000000000000000000000000000"; /* a peer that sends a key is judged by the key */
    assert_int_equal(check_as(&req, &looked), AUTH_NO);
}

TEST(wrong_revoked_and_expired_keys_are_refused_with_the_same_error)
{
    struct principal root = local();
    struct auth_key_spec spec = { .scopes = SCOPE_BIT(FILES), .expires_ms = now_ms + 5000 };
    char first[sizeof(failure.msg)];

    assert_int_equal(check_key("cove_0000000000000000000000000000000000000000", "192.0.2.1"), AUTH_NO);
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    strcpy(first, failure.msg);
    assert_int_equal(create(&root, &spec), ERR_NONE);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    now_ms += 4999;
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    now_ms += 1;
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_NO);
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
    now_ms -= 1; /* if the clock is set back, the key is valid again: the key itself did not change */
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    assert_int_equal(revoke_key(&root, id), ERR_NONE);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_NO);
    assert_string_equal(failure.msg, first);
}

TEST(AU12_a_revoked_or_rotated_key_is_invalid_at_once_and_reported)
{
    struct principal p = with_key(SCOPE_BIT(FILES), "anna", 0), root = local();
    char old[APIKEY_SIZE], key[ID_SIZE];

    strcpy(old, secret);
    strcpy(key, id);
    assert_int_equal(rotate_key(&root, key), ERR_NONE);
    assert_string_equal(revoked, key);
    assert_string_equal(id, key); /* the same key, and so the same owner */
    assert_int_equal(check_key(old, "192.0.2.1"), AUTH_NO);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    assert_string_equal(who.owner, p.owner);
    revoked[0] = '\0';
    assert_int_equal(revoke_key(&root, key), ERR_NONE);
    assert_string_equal(revoked, key);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_NO);
    assert_int_equal(rotate_key(&root, key), ERR_EXISTS); /* and cannot be restored */
    auth_free(auth);
    open_auth(); /* also with an empty cache */
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_NO);
}

TEST(AU17_a_key_cannot_create_a_key_with_more_scopes_or_a_later_expiry)
{
    struct principal admin = with_key(SCOPE_ALL, "boss", 0);
    struct principal keys = with_key(SCOPE_BIT(KEYS) | SCOPE_BIT(FILES), "anna", 0);
    struct principal brief = with_key(SCOPE_BIT(KEYS) | SCOPE_BIT(FILES), "anna", now_ms + 1000);
    struct principal files = with_key(SCOPE_BIT(FILES), "anna", 0);
    const struct {
        const struct principal *by;
        struct auth_key_spec spec;
        enum err_id expected;
    } rows[] = {
        { &admin, { .scopes = SCOPE_ALL }, ERR_NONE },
        { &admin, { .scopes = SCOPE_BIT(FILES), .owner = "anna" }, ERR_NONE },
        { &keys, { .scopes = SCOPE_BIT(FILES) }, ERR_NONE },
        { &keys, { .scopes = SCOPE_BIT(FILES) | SCOPE_BIT(KEYS) }, ERR_NONE },
        { &keys, { .scopes = SCOPE_BIT(FILES), .owner = "anna" }, ERR_NONE },
        { &keys, { .scopes = SCOPE_BIT(EXECUTIONS) }, ERR_DENIED },
        { &keys, { .scopes = SCOPE_BIT(FILES) | SCOPE_BIT(METRICS) }, ERR_DENIED },
        { &keys, { .scopes = SCOPE_ALL }, ERR_DENIED },
        { &keys, { .scopes = SCOPE_BIT(ADMIN) }, ERR_DENIED },
        { &keys, { .scopes = SCOPE_BIT(FILES), .owner = "boss" }, ERR_DENIED },
        { &keys, { .scopes = SCOPE_BIT(FILES), .owner = AUTH_LOCAL_OWNER }, ERR_DENIED },
        { &files, { .scopes = SCOPE_BIT(FILES) }, ERR_DENIED },
        { &brief, { .scopes = SCOPE_BIT(FILES), .expires_ms = now_ms + 1000 }, ERR_NONE },
        { &brief, { .scopes = SCOPE_BIT(FILES), .expires_ms = now_ms + 1001 }, ERR_DENIED },
        { &brief, { .scopes = SCOPE_BIT(FILES) }, ERR_DENIED },
        { &keys, { .scopes = 0 }, ERR_INVALID },
        { &admin, { .scopes = 1u << 31 }, ERR_INVALID },
        { &keys, { .scopes = SCOPE_BIT(FILES), .expires_ms = now_ms }, ERR_INVALID },
        { &admin, { .scopes = SCOPE_BIT(FILES), .owner = "*" }, ERR_INVALID },
        { &admin, { .scopes = SCOPE_BIT(FILES), .owner = "" }, ERR_INVALID },
        { &admin, { .scopes = SCOPE_BIT(FILES), .owner = "a b" }, ERR_INVALID },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum err_id got = create(rows[i].by, &rows[i].spec);

        if (got != rows[i].expected)
            fail_msg("row %zu: expected %s, got %s: %s", i, err_info(rows[i].expected)->code, err_info(got)->code,
                     failure.msg);
        if (got == ERR_NONE)
            assert_string_equal(owner, rows[i].spec.owner ? rows[i].spec.owner : rows[i].by->owner);
    }
}

TEST(AU17_a_key_with_more_scopes_cannot_be_rotated_or_revoked)
{
    struct principal strong = with_key(SCOPE_ALL, "anna", 0);
    struct principal lasting = with_key(SCOPE_BIT(FILES), "anna", 0);
    struct principal weak = with_key(SCOPE_BIT(KEYS) | SCOPE_BIT(FILES), "anna", 0);
    struct principal brief = with_key(SCOPE_BIT(KEYS) | SCOPE_BIT(FILES), "anna", now_ms + 1000);
    struct principal other = with_key(SCOPE_BIT(FILES), "bert", 0);

    assert_int_equal(rotate_key(&weak, strong.key_id), ERR_DENIED);
    assert_int_equal(rotate_key(&brief, lasting.key_id), ERR_DENIED);
    assert_int_equal(rotate_key(&lasting, weak.key_id), ERR_DENIED); /* lacks `keys` */
    assert_int_equal(rotate_key(&weak, lasting.key_id), ERR_NONE);
    assert_int_equal(rotate_key(&weak, weak.key_id), ERR_NONE); /* its own key */
    /* A key of another owner looks like a missing one. */
    assert_int_equal(rotate_key(&weak, other.key_id), ERR_MISSING);
    assert_int_equal(revoke_key(&weak, other.key_id), ERR_MISSING);
    assert_int_equal(revoke_key(&weak, "ky'; DROP TABLE keys"), ERR_MISSING);
    assert_int_equal(revoke_key(&lasting, weak.key_id), ERR_DENIED);
    assert_int_equal(revoke_key(&weak, strong.key_id), ERR_DENIED); /* nor be revoked */
    assert_int_equal(revoke_key(&brief, lasting.key_id), ERR_NONE);
    assert_int_equal(revoke_key(&weak, weak.key_id), ERR_NONE);
    assert_int_equal(revoke_key(&strong, brief.key_id), ERR_NONE);
    assert_int_equal(rotate_key(&strong, other.key_id), ERR_NONE); /* an admin may change every key */
}

/* Whether any file of the store contains these bytes. */
static bool store_holds(const char *needle)
{
    static const char *const names[] = { "cove.db", "cove.db-wal" };
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        auto_free char *path = str_printf("%s/%s", dir, names[i]);
        auto_free char *data = mem_alloc(4 * MIB);
        auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : fd_read_full(fd, data, 4 * MIB);

        found |= n > 0 && memmem(data, (size_t)n, needle, strlen(needle));
    }
    return found;
}

TEST(AU10_the_store_holds_only_the_prefix_of_a_key)
{

    with_key(SCOPE_BIT(FILES), "anna", 0);
    assert_int_equal(
        rotate_key(&(struct principal){ .kind = PRINCIPAL_LOCAL, .owner = "local", .scopes = SCOPE_ALL }, id),
        ERR_NONE);
    auth_free(auth); /* writes the last uses */
    auth = NULL;
    store_close(store);
    store = NULL;
    char next[14];
    snprintf(next, sizeof(next), "%s", secret);
    assert_true(store_holds(next));        /* proves that the search works */
    assert_false(store_holds(secret));     /* the key */
    assert_false(store_holds(secret + 5)); /* its digits */
    assert_false(store_holds(secret + 15));
}

TEST(AU11_a_throttled_address_can_still_use_a_cached_key)
{
    char good[APIKEY_SIZE];
    unsigned refused = 0;

    with_key(SCOPE_BIT(FILES), "anna", 0);
    strcpy(good, secret);
    for (unsigned i = 0; i < 100; i++) {
        char wrong[APIKEY_SIZE];

        snprintf(wrong, sizeof(wrong), "cove_%040x", i);
        assert_int_equal(check_key(wrong, "198.51.100.1"), AUTH_NO);
        refused += failure.id == ERR_RATE_LIMITED;
        if (failure.id == ERR_RATE_LIMITED)
            assert_true(retry_ns > 0);
    }
    assert_int_equal(refused, 90);
    assert_int_equal(check_key(good, "198.51.100.1"), AUTH_YES); /* another client with the same address */
    now_ns += 2 * KEYCACHE_FRESH_NS;
    for (unsigned i = 0; i < 20; i++)
        check_key("cove_ffffffffffffffffffffffffffffffffffffffff", "198.51.100.1");
    assert_int_equal(check_key(good, "198.51.100.1"), AUTH_YES); /* also if the cached entry has expired */
    assert_int_equal(check_key("cove_0000000000000000000000000000000000000000", "198.51.100.2"), AUTH_NO);
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
}

TEST(AU11_a_throttled_address_can_use_a_valid_key_that_is_not_cached)
{
    struct principal root = local();
    struct auth_key_spec spec = { .scopes = SCOPE_BIT(FILES), .owner = "anna" };

    for (unsigned i = 0; i < 50; i++) {
        char wrong[APIKEY_SIZE];

        snprintf(wrong, sizeof(wrong), "cove_%040x", i);
        check_key(wrong, "198.51.100.1");
    }
    assert_int_equal(failure.id, ERR_RATE_LIMITED);
    assert_int_equal(create(&root, &spec), ERR_NONE);
    assert_int_equal(check_key(secret, "198.51.100.1"), AUTH_YES);
    assert_int_equal(check_key("cove_ffffffffffffffffffffffffffffffffffffffff", "198.51.100.1"), AUTH_NO);
    assert_int_equal(failure.id, ERR_RATE_LIMITED); /* one valid key does not reset the failures of the address */
}

TEST(rate_limits_count_per_key_and_class_and_not_for_local_peers)
{
    struct principal a = with_key(SCOPE_BIT(FILES), "anna", 0), b = with_key(SCOPE_BIT(FILES), "anna", 0);
    struct principal root = local();
    struct ratelimit_answer r;

    assert_true(auth_rate_take(auth, &a, AUTH_CLASS_CREATE, now_ns, &r));
    assert_true(auth_rate_take(auth, &a, AUTH_CLASS_CREATE, now_ns, &r));
    assert_false(auth_rate_take(auth, &a, AUTH_CLASS_CREATE, now_ns, &r));
    assert_int_equal(r.limit, 2);
    assert_int_equal(r.retry_ns, 3600 * NS_PER_S);
    assert_true(auth_rate_take(auth, &a, AUTH_CLASS_EXECUTE, now_ns, &r)); /* another class */
    assert_true(auth_rate_take(auth, &b, AUTH_CLASS_CREATE, now_ns, &r));  /* another key */
    for (int i = 0; i < 1000; i++)
        assert_true(auth_rate_take(auth, &root, AUTH_CLASS_CREATE, now_ns, &r));
    now_ns += 2 * KEYCACHE_FRESH_NS; /* refreshing the cached entry does not refill its bucket */
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    assert_true(auth_rate_take(auth, &b, AUTH_CLASS_CREATE, now_ns, &r));
    assert_false(auth_rate_take(auth, &b, AUTH_CLASS_CREATE, now_ns, &r));
}

static uint64_t last_used;

static void on_last_used(void *arg UNUSED, const struct err *err, const struct store_key *row)
{
    answered = true;
    last_used = err ? 0 : row->last_used_ms;
}

TEST(the_last_use_of_a_key_is_written_at_the_latest_at_shutdown)
{
    with_key(SCOPE_BIT(FILES), "anna", 0);
    now_ms += 777;
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    auth_free(auth);
    auth = NULL;
    answered = false;
    store_key_get(store, "anna", id, on_last_used, NULL);
    await();
    assert_int_equal(last_used, now_ms);
}

TEST(a_use_is_written_as_soon_as_no_other_follows)
{
    uint64_t end = clock_mono_ns() + 20 * NS_PER_S; /* if other uses followed, it would take thirty seconds */

    with_key(SCOPE_BIT(FILES), "anna", 0);
    now_ms += 555;
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    last_used = 0;
    while (last_used != now_ms && clock_mono_ns() < end) {
        ev_turn(loop, 100);
        answered = false;
        store_key_get(store, "anna", id, on_last_used, NULL);
        await();
    }
    assert_int_equal(last_used, now_ms);
}

static enum err_id first_key(void)
{
    answered = false;
    auth_key_create_first(auth, now_ms, on_key, NULL);
    await();
    return failure.id;
}

TEST(AU21_the_first_key_is_created_once_and_can_be_rotated_by_the_local_owner)
{
    char first[APIKEY_SIZE], first_id[ID_SIZE];

    assert_int_equal(first_key(), ERR_NONE);
    strcpy(first, secret);
    strcpy(first_id, id);
    assert_int_equal(check_key(first, "192.0.2.1"), AUTH_YES);
    assert_int_equal(who.scopes, SCOPE_ALL);
    assert_string_equal(who.owner, AUTH_LOCAL_OWNER);
    struct principal weaker = who;
    weaker.scopes &= ~SCOPE_BIT(ADMIN);
    assert_int_equal(first_key(), ERR_EXISTS);
    assert_int_equal(rotate_key(&weaker, first_id), ERR_DENIED);
    struct principal root = local();
    assert_int_equal(rotate_key(&root, first_id), ERR_NONE);
    assert_string_equal(id, first_id);
    assert_string_not_equal(secret, first);
    assert_int_equal(check_key(first, "192.0.2.1"), AUTH_NO);
    assert_int_equal(check_key(secret, "192.0.2.1"), AUTH_YES);
    assert_int_equal(revoke_key(&root, first_id), ERR_NONE);
    assert_int_equal(first_key(), ERR_EXISTS); /* a first key cannot be created again */
}

TEST(freeing_auth_with_pending_operations_makes_no_callback_and_no_leak)
{
    struct auth_request req = { .x_api_key = "cove_0000000000000000000000000000000000000000", .now_ns = now_ns };
    struct principal root = local();
    struct auth_key_spec spec = { .scopes = SCOPE_ALL };
    struct auth_check *later;

    assert_int_equal(auth_check(auth, &req, &who, &retry_ns, &failure, on_checked, NULL, &later), AUTH_LATER);
    answered = false;
    auth_key_create(auth, &root, &spec, now_ms, on_key, NULL);
    auth_key_rotate(auth, &root, "kyaaaaaaaaaaaaaaaaaaaa", on_key, NULL);
    auth_key_create_first(auth, now_ms, on_key, NULL);
    auth_free(auth);
    auth = NULL;
    store_close(store);
    store = NULL;
    assert_false(answered);
}

static void on_forgotten(void *arg UNUSED, const struct err *err UNUSED, const struct principal *p UNUSED)
{
    fail_msg("a cancelled check was answered");
}

TEST(a_cancelled_check_is_not_answered)
{
    struct auth_request req = { .x_api_key = "cove_0000000000000000000000000000000000000000", .now_ns = now_ns };
    struct auth_check *later;

    assert_int_equal(auth_check(auth, &req, &who, &retry_ns, &failure, on_forgotten, NULL, &later), AUTH_LATER);
    auth_check_cancel(later);
    local();
    assert_int_equal(check_key("cove_1111111111111111111111111111111111111111", "192.0.2.1"), AUTH_NO);
}

#define RUN_AUTH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_AUTH(a_key_has_its_owner_and_scopes_and_the_store_is_queried_once),
        RUN_AUTH(local_is_root_or_the_servers_user_over_the_socket_without_a_key),
        RUN_AUTH(wrong_revoked_and_expired_keys_are_refused_with_the_same_error),
        RUN_AUTH(AU12_a_revoked_or_rotated_key_is_invalid_at_once_and_reported),
        RUN_AUTH(AU17_a_key_cannot_create_a_key_with_more_scopes_or_a_later_expiry),
        RUN_AUTH(AU17_a_key_with_more_scopes_cannot_be_rotated_or_revoked),
        RUN_AUTH(AU10_the_store_holds_only_the_prefix_of_a_key),
        RUN_AUTH(AU11_a_throttled_address_can_still_use_a_cached_key),
        RUN_AUTH(AU11_a_throttled_address_can_use_a_valid_key_that_is_not_cached),
        RUN_AUTH(rate_limits_count_per_key_and_class_and_not_for_local_peers),
        RUN_AUTH(the_last_use_of_a_key_is_written_at_the_latest_at_shutdown),
        RUN_AUTH(a_use_is_written_as_soon_as_no_other_follows),
        RUN_AUTH(AU21_the_first_key_is_created_once_and_can_be_rotated_by_the_local_owner),
        RUN_AUTH(freeing_auth_with_pending_operations_makes_no_callback_and_no_leak),
        RUN_AUTH(a_cancelled_check_is_not_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
