/* An issuer that serves HTTP from the same loop, so that each kind of misbehaviour is one line of
 * the test. */
#include "tests/support/http_limits.h"
#include "minter.h"

#include "server/auth/issuer.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "server/http/server.h"

#include <fcntl.h>
#include <stdio.h>

#define NOW_MS 1700000000000ull
#define FLOOR_MS 60000u

static struct ev *loop;
static struct http_server *http;
static struct issuer *issuer;
static char url[64];
static uint16_t port;
static EVP_PKEY *key[2];

/* behaviour of the issuer */
static enum { ANSWERS, FAILS, REDIRECTS, IS_HUGE, HANGS, IS_NONSENSE } manner;
static char *keyset;
static unsigned asked, elsewhere;
static struct http_req *hanging;

static void on_keys(struct http_req *req, void *ctx UNUSED)
{
    auto_buf huge = { 0 };

    asked++;
    switch (manner) {
    case ANSWERS:
        http_answer(req, 200, "application/json", keyset, strlen(keyset));
        break;
    case FAILS:
        http_answer_empty(req, 503);
        break;
    case REDIRECTS:
        http_set_header(req, "Location", "/elsewhere");
        http_answer_empty(req, 302);
        break;
    case IS_HUGE:
        while (huge.len <= 2 * JWKS_BYTES_MAX)
            buf_adds(&huge, "                                                                                ");
        http_answer(req, 200, "application/json", huge.data, huge.len);
        break;
    case HANGS:
        hanging = req;
        break;
    case IS_NONSENSE:
        http_answer(req, 200, "text/html", "<html>", 6);
        break;
    }
}

static void on_elsewhere(struct http_req *req, void *ctx UNUSED)
{
    elsewhere++;
    http_answer(req, 200, "application/json", keyset, strlen(keyset));
}

static const struct http_route routes[] = { { "GET", "/keys", on_keys, HTTP_BODY_NONE },
                                            { "GET", "/elsewhere", on_elsewhere, HTTP_BODY_NONE },
                                            { 0 } };
static const struct http_route *const tables[] = { routes, NULL };

static int setup(void **state UNUSED)
{
    struct http_settings set = { .tables = (const struct http_tables[]){ { tables }, { 0 } } };
    struct err err = { 0 };

    for (size_t i = 0; i < 2; i++)
        if (!key[i])
            key[i] = minter_key(JWT_EDDSA);
    manner = ANSWERS;
    asked = elsewhere = 0;
    hanging = NULL;
    keyset = minter_set(key, (const char *const[]){ "one" }, 1);
    set.limits = http_limits_for_tests();
    if (ev_new(&loop, &err) < 0 || http_server_new(loop, &set, &http, &err) < 0 ||
        http_listen_tcp(http, "127.0.0.1:0", &port, &err) < 0)
        return -1;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/keys", port);
    return 0;
}

static int teardown(void **state UNUSED)
{
    issuer_free(issuer);
    issuer = NULL;
    if (hanging)
        http_answer_empty(hanging, 503);
    http_server_free(http);
    ev_free(loop);
    free(keyset);
    return 0;
}

static struct issuer_settings settings(void)
{
    return (struct issuer_settings){ .issuer = "https://id.example",
                                     .audience = "cove",
                                     .jwks_url = url,
                                     .user_claim = "sub",
                                     .tenant_claim = "org",
                                     .role_claim = "roles",
                                     .skew_ms = 1000,
                                     .lifetime_max_ms = 3600000,
                                     .refetch_min_ms = FLOOR_MS,
                                     .keys_max_age_ms = 3600000 };
}

static void open_issuer(uint32_t floor_ms)
{
    struct issuer_settings set = settings();
    struct err err = { 0 };

    set.refetch_min_ms = floor_ms;
    if (issuer_new(loop, &set, &issuer, &err) < 0)
        fail_msg("%s", err.msg);
}

static char *token_of(EVP_PKEY *k, const char *kid, const char *more)
{
    auto_free char *head = str_printf("{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", kid);
    auto_free char *claims = str_printf(
        "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"ada\",\"org\":\"acme\","
        "\"exp\":1700000060%s}",
        more);

    return minter_token(k, head, claims);
}

/* --- helpers --- */

static bool woken;
static struct issuer_claims claims;
static struct err failure;

static void on_again(void *arg UNUSED)
{
    woken = true;
}

static enum issuer_verdict ask_with(const char *token, void (*again)(void *arg))
{
    struct issuer_wait *wait;

    woken = false;
    failure = (struct err){ 0 };
    return issuer_check(issuer, token, NOW_MS, &claims, &failure, again, NULL, &wait);
}

static enum issuer_verdict ask(const char *token)
{
    return ask_with(token, on_again);
}

static void turn_until(const bool *done)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    while (!*done) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 100);
    }
}

static enum issuer_verdict ask_to_the_end(const char *token)
{
    enum issuer_verdict v = ask(token);

    if (v != ISSUER_LATER)
        return v;
    turn_until(&woken);
    return ask_with(token, NULL);
}

TEST(keys_are_fetched_once_and_a_valid_token_yields_its_claims)
{
    auto_free char *token = token_of(key[0], "one", ",\"roles\":[\"x\",\"developer\",7]"), *late = str_dup(token);

    open_issuer(FLOOR_MS);
    assert_int_equal(ask_to_the_end(token), ISSUER_YES);
    assert_string_equal(claims.user, "ada");
    assert_string_equal(claims.tenant, "acme");
    assert_int_equal(claims.nroles, 2);
    assert_string_equal(claims.roles[1], "developer");
    assert_int_equal(claims.expires_ms, 1700000061000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ask(late), ISSUER_YES);
    assert_int_equal(asked, 1);
}

TEST(AU14_a_new_key_is_fetched_when_a_token_names_it)
{
    auto_free char *old = token_of(key[0], "one", ""), *new = token_of(key[1], "two", "");

    open_issuer(0);
    assert_int_equal(ask_to_the_end(old), ISSUER_YES);
    free(keyset);
    keyset = minter_set(key + 1, (const char *const[]){ "two" }, 1);
    assert_int_equal(ask_to_the_end(new), ISSUER_YES);
    assert_int_equal(asked, 2);
    assert_int_equal(ask_to_the_end(old), ISSUER_NO); /* a key that the issuer removed is invalid */
}

TEST(AU14_forged_tokens_cause_no_fetch_within_the_minimum_interval)
{
    auto_free char *good = token_of(key[0], "one", ""), *unknown = token_of(key[1], "unknown", ""),
                   *forged = token_of(key[1], "one", ""), *expired = token_of(key[1], "nobody2", ",\"nbf\":1800000000");

    open_issuer(FLOOR_MS);
    assert_int_equal(ask_to_the_end(good), ISSUER_YES);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(ask(unknown), ISSUER_NO);
        assert_int_equal(ask(forged), ISSUER_FORGED);
        assert_int_equal(ask(expired), ISSUER_NO);
    }
    assert_int_equal(asked, 1);
}

/* Down, redirecting, too large, not JSON: the last valid keys stay in use, and no redirect is
 * followed. */
TEST(AU14_the_last_keys_stay_in_use_while_the_issuer_fails)
{
    auto_free char *good = token_of(key[0], "one", ""), *unknown = token_of(key[1], "two", "");

    open_issuer(0);
    assert_int_equal(ask_to_the_end(good), ISSUER_YES);
    for (manner = FAILS; manner <= IS_NONSENSE; manner++) {
        if (manner == HANGS)
            continue;
        enum issuer_verdict v = ask(unknown);
        if (v == ISSUER_LATER)
            turn_until(&woken);
        assert_int_equal(ask(good), ISSUER_YES);
    }
    assert_true(asked >= 5);
    assert_int_equal(elsewhere, 0);
}

TEST(AU14_without_keys_the_error_is_issuer_down_and_not_unauthorized)
{
    auto_free char *good = token_of(key[0], "one", "");

    manner = FAILS;
    open_issuer(FLOOR_MS);
    assert_int_equal(ask_to_the_end(good), ISSUER_NO);
    assert_int_equal(failure.id, ERR_ISSUER_DOWN);
}

TEST(AU14_a_slow_issuer_delays_only_checks_that_need_it_and_they_can_be_cancelled)
{
    auto_free char *good = token_of(key[0], "one", ""), *unknown = token_of(key[1], "two", "");
    struct issuer_wait *waits[3];

    open_issuer(0);
    assert_int_equal(ask_to_the_end(good), ISSUER_YES);
    manner = HANGS;
    woken = false;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(issuer_check(issuer, unknown, NOW_MS, &claims, &failure, on_again, NULL, &waits[i]),
                         ISSUER_LATER);
    assert_int_equal(ask(good), ISSUER_YES);
    issuer_wait_cancel(waits[1]);
    issuer_wait_cancel(waits[0]);
    issuer_wait_cancel(waits[2]);
    bool there = false;
    while (!there) {
        ev_turn(loop, 100);
        there = hanging != NULL;
    }
    assert_false(woken);
    assert_int_equal(asked, 2); /* one fetch for all waiting checks */
}

TEST(a_key_file_is_read_at_the_start_and_again_for_an_unknown_key)
{
    char path[] = "/tmp/cove-jwks-XXXXXX";
    auto_fd int fd = mkstemp(path);
    auto_free char *old = token_of(key[0], "one", ""), *new = token_of(key[1], "two", "");
    auto_free char *both = minter_set(key, (const char *const[]){ "one", "two" }, 2);
    struct issuer_settings set = settings();
    struct err err = { 0 };

    set.jwks_url = NULL;
    set.jwks_file = path;
    set.refetch_min_ms = 0;
    assert_int_equal(issuer_new(loop, &set, &issuer, &err), -1);
    assert_int_equal(err.id, ERR_CONF_VALUE);
    assert_int_equal(fd_write_all(fd, keyset, strlen(keyset)), 0);
    assert_int_equal(issuer_new(loop, &set, &issuer, &err), 0);
    assert_int_equal(ask(old), ISSUER_YES);
    assert_int_equal(ask(new), ISSUER_NO);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(ask(new), ISSUER_NO); /* an empty file does not remove the keys */
    assert_int_equal(ask(old), ISSUER_YES);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(fd_write_all(fd, both, strlen(both)), 0);
    assert_int_equal(ask(new), ISSUER_YES);
    unlink(path);
}

TEST(keys_are_fetched_over_https_or_from_this_host)
{
    static const struct {
        const char *url;
        bool good;
    } rows[] = { { "http://id.example/keys", false },
                 { "http://localhost.evil.example/k", false },
                 { "http://127.0.0.1@evil.example/", false },
                 { "ftp://localhost/", false },
                 { "file:///etc/passwd", false },
                 { "HTTPS://x", false },
                 { "http://localhost:1/keys", true },
                 { "https://127.0.0.1:1/keys", true } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct issuer_settings set = settings();
        struct err err = { 0 };
        auto_(issuer) one = NULL;

        set.jwks_url = rows[i].url;
        if ((issuer_new(loop, &set, &one, &err) == 0) != rows[i].good)
            fail_msg("%s: %s", rows[i].url, err.msg);
    }
}

TEST(contradictory_settings_are_refused)
{
    struct issuer_settings set = settings(), other;
    struct err err = { 0 };
    auto_(issuer) one = NULL;

    other = set;
    other.jwks_url = NULL;
    assert_int_equal(issuer_new(loop, &other, &one, &err), -1);
    other = set;
    other.jwks_file = "/x";
    assert_int_equal(issuer_new(loop, &other, &one, &err), -1);
    other = set;
    other.audience = "";
    assert_int_equal(issuer_new(loop, &other, &one, &err), -1);
    assert_int_equal(err.id, ERR_CONF_VALUE);
}

TEST(a_claim_without_a_valid_user_or_tenant_is_refused)
{
    auto_free char *good = token_of(key[0], "one", ""), *none = NULL, *odd = NULL;
    static const char head[] = "{\"alg\":\"EdDSA\",\"kid\":\"one\"}";

    none = minter_token(key[0], head,
                        "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"a\",\"exp\":1700000060}");
    odd = minter_token(key[0], head,
                       "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"a\",\"org\":[\"acme\"],"
                       "\"exp\":1700000060}");
    open_issuer(FLOOR_MS);
    assert_int_equal(ask_to_the_end(good), ISSUER_YES);
    assert_int_equal(ask(none), ISSUER_NO);
    assert_int_equal(ask(odd), ISSUER_NO);
    assert_int_equal(failure.id, ERR_UNAUTHORIZED);
}

#define RUN_ISSUER(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int free_keys(void **state UNUSED)
{
    EVP_PKEY_free(key[0]);
    EVP_PKEY_free(key[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_ISSUER(keys_are_fetched_once_and_a_valid_token_yields_its_claims),
        RUN_ISSUER(AU14_a_new_key_is_fetched_when_a_token_names_it),
        RUN_ISSUER(AU14_forged_tokens_cause_no_fetch_within_the_minimum_interval),
        RUN_ISSUER(AU14_the_last_keys_stay_in_use_while_the_issuer_fails),
        RUN_ISSUER(AU14_without_keys_the_error_is_issuer_down_and_not_unauthorized),
        RUN_ISSUER(AU14_a_slow_issuer_delays_only_checks_that_need_it_and_they_can_be_cancelled),
        RUN_ISSUER(a_key_file_is_read_at_the_start_and_again_for_an_unknown_key),
        RUN_ISSUER(keys_are_fetched_over_https_or_from_this_host),
        RUN_ISSUER(contradictory_settings_are_refused),
        RUN_ISSUER(a_claim_without_a_valid_user_or_tenant_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, free_keys);
}
