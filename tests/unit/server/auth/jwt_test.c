/* Tokens with real signatures of real keys; the time is a constant. */
#include "minter.h"

#include "server/auth/jwt.h"

#include <openssl/hmac.h>
#include <stdio.h>

#define NOW_S 1700000000ull
#define GOOD "\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"ada\""
#define IN_TIME "\"exp\":1700000300,\"iat\":1700000000"

static EVP_PKEY *keys[JWT_ALG_COUNT], *stranger;
static struct jwks *set;
static const char *const kids[] = { "r1", "e1", "o1" };
static const char *const heads[] = { "{\"alg\":\"RS256\",\"kid\":\"r1\"}", "{\"alg\":\"ES256\",\"kid\":\"e1\"}",
                                     "{\"alg\":\"EdDSA\",\"kid\":\"o1\"}" };
static const struct jwt_rules rules = { "https://id.example", "cove", 30 * 1000, 24 * 3600 * 1000 };

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    for (unsigned a = 0; a < JWT_ALG_COUNT; a++)
        keys[a] = minter_key(a);
    stranger = minter_key(JWT_EDDSA);
    auto_free char *text = minter_set(keys, kids, JWT_ALG_COUNT);
    return jwks_parse(text, strlen(text), &set, &err);
}

static int teardown(void **state UNUSED)
{
    for (unsigned a = 0; a < JWT_ALG_COUNT; a++)
        EVP_PKEY_free(keys[a]);
    EVP_PKEY_free(stranger);
    jwks_free(set);
    return 0;
}

/* All checks of a token, in the order in which a caller must make them. */
static int judge(const char *token, uint64_t now_ms, struct err *err)
{
    __attribute__((cleanup(jwt_done))) struct jwt t = { 0 };
    uint64_t until;

    *err = (struct err){ 0 };
    if (jwt_parse(token, &t, err) < 0 || jwt_check_claims(&t, &rules, now_ms, &until, err) < 0)
        return -1;
    const struct jwk *k = jwks_find(set, t.kid, t.alg);
    return k ? jwt_verify(&t, k, err) : err_set(err, ERR_UNAUTHORIZED, "no key");
}

static void refuses(EVP_PKEY *k, const char *header, const char *claims, const char *why)
{
    auto_free char *token = minter_token(k, header, claims);
    struct err err;

    if (judge(token, NOW_S * 1000, &err) == 0)
        fail_msg("accepted: %s %s", header, claims);
    assert_int_equal(err.id, ERR_UNAUTHORIZED);
    if (!strstr(err.msg, why))
        fail_msg("%s %s: '%s' does not say '%s'", header, claims, err.msg, why);
}

TEST(a_token_of_each_algorithm_is_accepted)
{
    struct err err;

    for (unsigned a = 0; a < JWT_ALG_COUNT; a++) {
        auto_free char *token = minter_token(keys[a], heads[a], "{" GOOD "," IN_TIME "}");
        auto_free char *list = minter_token(keys[a], heads[a],
                                            "{\"iss\":\"https://id.example\",\"aud\":[\"x\",\"cove\"],\"sub\":\"ada\","
                                            "\"exp\":1700000300.5}");

        if (judge(token, NOW_S * 1000, &err) < 0 || judge(list, NOW_S * 1000, &err) < 0)
            fail_msg("%s: %s", heads[a], err.msg);
    }
}

TEST(AU13_the_header_never_chooses_the_algorithm)
{
    static const char claims[] = "{" GOOD "," IN_TIME "}";

    refuses(keys[JWT_RS256], "{\"alg\":\"none\",\"kid\":\"r1\"}", claims, "algorithm");
    refuses(keys[JWT_RS256], "{\"alg\":\"None\",\"kid\":\"r1\"}", claims, "algorithm");
    refuses(keys[JWT_RS256], "{\"alg\":\"HS256\",\"kid\":\"r1\"}", claims, "algorithm");
    refuses(keys[JWT_RS256], "{\"alg\":\"PS256\",\"kid\":\"r1\"}", claims, "algorithm");
    refuses(keys[JWT_RS256], "{\"kid\":\"r1\"}", claims, "algorithm");
    refuses(keys[JWT_RS256], "{\"alg\":\"ES256\",\"kid\":\"r1\"}", claims, "no key");
    refuses(keys[JWT_ES256], "{\"alg\":\"ES256\",\"kid\":\"r1\"}", claims, "no key");
    refuses(keys[JWT_EDDSA], "{\"alg\":\"RS256\",\"kid\":\"r1\"}", claims, "signature");
    refuses(stranger, "{\"alg\":\"EdDSA\",\"kid\":\"o1\"}", claims, "signature");
}

/* The public key is not secret: a MAC that was made with it must not be accepted. */
TEST(AU13_a_mac_made_with_the_public_key_is_refused)
{
    auto_free char *text = minter_set(keys, kids, JWT_ALG_COUNT);
    struct buf token = { 0 };
    uint8_t mac[32];
    unsigned n;
    struct err err;

    text_base64url(&token, "{\"alg\":\"HS256\",\"kid\":\"r1\"}", 26);
    buf_adds(&token, ".");
    text_base64url(&token, "{" GOOD "," IN_TIME "}", strlen("{" GOOD "," IN_TIME "}"));
    HMAC(EVP_sha256(), text, (int)strlen(text), (const uint8_t *)token.data, token.len, mac, &n);
    buf_adds(&token, ".");
    text_base64url(&token, mac, n);
    assert_int_equal(judge(token.data, NOW_S * 1000, &err), -1);
    buf_done(&token);
}

TEST(AU13_a_header_with_a_key_or_its_location_is_refused)
{
    static const char *const more[] = { "\"jku\":\"https://evil.example/k\"",
                                        "\"x5u\":\"https://evil.example/c\"",
                                        "\"jwk\":{\"kty\":\"OKP\"}",
                                        "\"x5c\":[\"aaaa\"]",
                                        "\"crit\":[\"exp\"]",
                                        "\"b64\":false",
                                        "\"zip\":\"DEF\"" };

    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        auto_free char *head = str_printf("{\"alg\":\"EdDSA\",\"kid\":\"o1\",%s}", more[i]);

        refuses(keys[JWT_EDDSA], head, "{" GOOD "," IN_TIME "}", "header");
    }
}

TEST(AU13_a_kid_is_only_compared_with_key_ids)
{
    static const char *const names[] = { "../../etc/passwd", "o1' OR '1'='1", "O1", "o1 ", "o2" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        auto_free char *head = str_printf("{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", names[i]);

        refuses(keys[JWT_EDDSA], head, "{" GOOD "," IN_TIME "}", "no key");
    }
    refuses(keys[JWT_EDDSA], "{\"alg\":\"EdDSA\",\"kid\":7}", "{" GOOD "," IN_TIME "}", "kid");
    refuses(keys[JWT_EDDSA], "{\"alg\":\"EdDSA\",\"kid\":\"\"}", "{" GOOD "," IN_TIME "}", "kid");
    refuses(keys[JWT_EDDSA], "{\"alg\":\"EdDSA\",\"kid\":\"o1\\u0000\"}", "{" GOOD "," IN_TIME "}", "header");
}

TEST(AU13_missing_wrong_or_expired_claims_are_refused)
{
    static const struct {
        const char *claims, *why;
    } rows[] = {
        { "{" GOOD "}", "expires" },
        { "{" GOOD ",\"exp\":\"1700000300\"}", "expires" },
        { "{" GOOD ",\"exp\":-1}", "expires" },
        { "{" GOOD ",\"exp\":1e300}", "expires" },
        { "{" GOOD ",\"exp\":1699999970}", "expired" }, /* the skew is exact to the second */
        { "{" GOOD ",\"exp\":4102444800}", "later" },
        { "{" GOOD ",\"exp\":1700086431}", "later" },
        { "{" GOOD "," IN_TIME ",\"nbf\":1700000031}", "not valid yet" },
        { "{" GOOD ",\"exp\":1700000300,\"iat\":1700000031}", "future" },
        { "{" GOOD "," IN_TIME ",\"nbf\":true}", "times" },
        { "{\"iss\":\"https://id.example/\",\"aud\":\"cove\",\"sub\":\"ada\"," IN_TIME "}", "another issuer" },
        { "{\"aud\":\"cove\",\"sub\":\"ada\"," IN_TIME "}", "another issuer" },
        { "{\"iss\":\"https://id.example\",\"aud\":\"coven\",\"sub\":\"ada\"," IN_TIME "}", "another audience" },
        { "{\"iss\":\"https://id.example\",\"aud\":[\"a\",[\"cove\"]],\"sub\":\"a\"," IN_TIME "}", "another audience" },
        { "{\"iss\":\"https://id.example\",\"sub\":\"ada\"," IN_TIME "}", "another audience" },
        { "{\"iss\":\"https://id.example\",\"aud\":\"cove\"," IN_TIME "}", "subject" },
        { "{\"iss\":\"https://id.example\",\"aud\":\"cove\",\"sub\":\"a\\nb\"," IN_TIME "}", "subject" },
        { "{" GOOD "," IN_TIME ",\"sub\":\"root\"}", "duplicate" },
        { "[1]", "claims" },
        { "{" GOOD "," IN_TIME "} ", "" }, /* trailing blanks are valid JSON; the next row is not */
        { "{" GOOD "," IN_TIME "}{}", "claims" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].why[0])
            refuses(keys[JWT_EDDSA], heads[JWT_EDDSA], rows[i].claims, rows[i].why);
}

TEST(the_clock_skew_is_accepted_to_the_second)
{
    auto_free char *token = minter_token(keys[JWT_EDDSA], heads[JWT_EDDSA],
                                         "{" GOOD ",\"nbf\":1700000000,\"iat\":1700000000,\"exp\":1700000300}");
    static const struct {
        uint64_t at_ms;
        bool good;
    } steps[] = { { (NOW_S - 31) * 1000, false },
                  { (NOW_S - 30) * 1000, true },
                  { NOW_S * 1000, true },
                  { (NOW_S + 330) * 1000 - 1, true },
                  { (NOW_S + 330) * 1000, false } };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if ((judge(token, steps[i].at_ms, &err) == 0) != steps[i].good)
            fail_msg("step %zu: %s", i, err.msg);
}

TEST(AU13_a_truncated_stripped_changed_or_huge_token_is_refused)
{
    auto_free char *token = minter_token(keys[JWT_EDDSA], heads[JWT_EDDSA], "{" GOOD "," IN_TIME "}");
    auto_free char *other = minter_token(keys[JWT_EDDSA], heads[JWT_EDDSA], "{" GOOD ",\"exp\":1700000900}");
    size_t len = strlen(token), dot = (size_t)(strrchr(token, '.') - token);
    struct err err;

    for (size_t i = 0; i < len; i++) {
        auto_free char *cut = str_dup_n(token, i);
        auto_free char *changed = str_dup(token);

        changed[i] = changed[i] == 'A' ? 'B' : 'A';
        assert_int_equal(judge(cut, NOW_S * 1000, &err), -1);
        if (judge(changed, NOW_S * 1000, &err) == 0)
            fail_msg("byte %zu can be changed", i);
    }
    auto_free char *swapped = str_printf("%.*s%s", (int)dot, token, strrchr(other, '.'));
    auto_free char *padded = str_printf("%s=", token), *four = str_printf("%s.x", token),
                   *blank = str_printf("%s ", token);
    assert_int_equal(judge(swapped, NOW_S * 1000, &err), -1);
    assert_int_equal(judge(padded, NOW_S * 1000, &err), -1);
    assert_int_equal(judge(four, NOW_S * 1000, &err), -1);
    assert_int_equal(judge(blank, NOW_S * 1000, &err), -1);
    auto_free char *huge = mem_alloc(MIB + 1);
    memset(huge, 'a', MIB);
    assert_int_equal(judge(huge, NOW_S * 1000, &err), -1);
    assert_non_null(strstr(err.msg, "too long"));
}

TEST(a_token_of_another_type_is_refused)
{
    refuses(keys[JWT_EDDSA], "{\"alg\":\"EdDSA\",\"kid\":\"o1\",\"typ\":\"logout+jwt\"}", "{" GOOD "," IN_TIME "}",
            "type");
    refuses(keys[JWT_EDDSA], "{\"alg\":\"EdDSA\",\"kid\":\"o1\",\"typ\":[]}", "{" GOOD "," IN_TIME "}", "type");
}

/* --- key sets --- */

static size_t count(const char *text)
{
    struct jwks *s = NULL;
    struct err err = { 0 };

    if (jwks_parse(text, strlen(text), &s, &err) < 0)
        return 0;
    size_t n = jwks_count(s);
    jwks_free(s);
    return n;
}

TEST(keys_for_other_uses_are_ignored)
{
    static const char *const out[] = { ",\"use\":\"enc\"", ",\"alg\":\"RS256\"", ",\"key_ops\":[\"sign\"]",
                                       ",\"key_ops\":\"verify\"", ",\"use\":1" };
    static const char *const in[] = { "", ",\"use\":\"sig\"", ",\"alg\":\"EdDSA\",\"x5t\":\"zz\"",
                                      ",\"key_ops\":[\"sign\",\"verify\"]" };

    for (size_t i = 0; i < ARRAY_LEN(out) + ARRAY_LEN(in); i++) {
        bool good = i >= ARRAY_LEN(out);
        auto_buf text = { 0 };

        buf_adds(&text, "{\"keys\":[");
        minter_jwk(&text, keys[JWT_EDDSA], "o1", good ? in[i - ARRAY_LEN(out)] : out[i]);
        buf_adds(&text, "]}");
        if (count(text.data) != (good ? 1 : 0))
            fail_msg("%s", text.data);
    }
}

TEST(weak_and_malformed_keys_are_ignored)
{
    EVP_PKEY *small = EVP_RSA_gen(1024), *p384 = EVP_EC_gen("P-384");
    auto_buf weak = { 0 };

    buf_adds(&weak, "{\"keys\":[");
    minter_jwk(&weak, small, "s", "");
    buf_adds(&weak, "]}");
    assert_int_equal(count(weak.data), 0);
    assert_int_equal(count("{\"keys\":[{\"kty\":\"oct\",\"kid\":\"h\",\"k\":\"AAAA\"}]}"), 0);
    assert_int_equal(count("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"e\","
                           "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\","
                           "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}]}"),
                     0); /* not on the curve */
    assert_int_equal(count("{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}"), 0);
    assert_int_equal(count("{\"keys\":{}}"), 0);
    assert_int_equal(count("{}"), 0);
    assert_int_equal(count("nothing"), 0);
    EVP_PKEY_free(small);
    EVP_PKEY_free(p384);
}

TEST(a_token_without_kid_needs_a_set_with_one_key_of_its_algorithm)
{
    EVP_PKEY *two[] = { keys[JWT_EDDSA], stranger };
    static const char *const names[] = { "a", "b" };
    auto_free char *text = minter_set(two, names, 2);
    struct jwks *both = NULL;
    struct err err = { 0 };

    assert_non_null(jwks_find(set, NULL, JWT_EDDSA));
    assert_int_equal(jwks_parse(text, strlen(text), &both, &err), 0);
    assert_null(jwks_find(both, NULL, JWT_EDDSA));
    assert_non_null(jwks_find(both, "b", JWT_EDDSA));
    jwks_free(both);
}

TEST(a_set_is_bounded_in_bytes_and_in_keys)
{
    auto_buf text = { 0 };

    buf_adds(&text, "{\"keys\":[");
    for (unsigned i = 0; i < JWKS_KEYS_MAX + 10; i++) {
        char kid[16];

        snprintf(kid, sizeof(kid), "k%u", i);
        buf_adds(&text, i ? "," : "");
        minter_jwk(&text, keys[JWT_EDDSA], kid, "");
    }
    buf_adds(&text, "]}");
    assert_int_equal(count(text.data), JWKS_KEYS_MAX);
    while (text.len <= JWKS_BYTES_MAX)
        buf_adds(&text, "                                                                ");
    assert_int_equal(count(text.data), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_token_of_each_algorithm_is_accepted),
        RUN(AU13_the_header_never_chooses_the_algorithm),
        RUN(AU13_a_mac_made_with_the_public_key_is_refused),
        RUN(AU13_a_header_with_a_key_or_its_location_is_refused),
        RUN(AU13_a_kid_is_only_compared_with_key_ids),
        RUN(AU13_missing_wrong_or_expired_claims_are_refused),
        RUN(the_clock_skew_is_accepted_to_the_second),
        RUN(AU13_a_truncated_stripped_changed_or_huge_token_is_refused),
        RUN(a_token_of_another_type_is_refused),
        RUN(keys_for_other_uses_are_ignored),
        RUN(weak_and_malformed_keys_are_ignored),
        RUN(a_token_without_kid_needs_a_set_with_one_key_of_its_algorithm),
        RUN(a_set_is_bounded_in_bytes_and_in_keys),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
