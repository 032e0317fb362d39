/* A bearer token of an identity provider, as an attacker sends it.
 *
 * Checked in addition to memory errors: only tokens signed by the key of this file are verified,
 * and an accepted token has the issuer, the audience and an expiry. */
#include "server/auth/jwt.h"

#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static const char set_text[] =
    "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k\",\"x\":\"11qYAYKxCrfVS_"
    "7TyWQHOg7hcvPapiMlrwIaaPcHURo\"},"
    "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"k\",\"x\":\"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4\","
    "\"y\":\"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM\"}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct jwt_rules rules = { "https://id.example", "cove", 1000, 86400000 };
    static struct jwks *set;
    auto_free char *text = str_dup_n((const char *)data, size);
    struct jwt t;
    uint64_t until = 0;

    if (!set)
        must(jwks_parse(set_text, strlen(set_text), &set, NULL) == 0 && jwks_count(set) == 2);
    if (jwt_parse(text, &t, NULL) < 0)
        return 0;
    must(strlen(text) <= JWT_BYTES_MAX && t.signed_len < strlen(text) && t.sig_len > 0);
    if (jwt_check_claims(&t, &rules, 1700000000000, &until, NULL) == 0) {
        must(str_eq(jwt_claim_text(&t, "iss"), "https://id.example") && jwt_claim_text(&t, "sub"));
        must(until > 1700000000000 && until <= 1700000000000 + 86400000 + 2000);
    }
    const struct jwk *k = jwks_find(set, t.kid, t.alg);
    must(!k || jwt_verify(&t, k, NULL) < 0);
    jwt_done(&t);
    return 0;
}
