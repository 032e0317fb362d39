/* minter.h - an issuer of tokens for tests: real keys, real signatures, and any header and
 * claims. */
#pragma once

#include "tests/unit/test.h"

#include "server/auth/jwks.h"
#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

static inline EVP_PKEY *minter_key(enum jwt_alg alg)
{
    EVP_PKEY *k = alg == JWT_RS256   ? EVP_RSA_gen(2048)
                  : alg == JWT_ES256 ? EVP_EC_gen("P-256")
                                     : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

    assert_non_null(k);
    return k;
}

static inline void minter_add_number(struct buf *out, const char *name, EVP_PKEY *k, const char *param, int len)
{
    BIGNUM *n = NULL;
    uint8_t bytes[1024];

    assert_int_equal(EVP_PKEY_get_bn_param(k, param, &n), 1);
    int size = BN_bn2binpad(n, bytes, len ? len : BN_num_bytes(n));
    assert_true(size > 0);
    buf_addf(out, ",\"%s\":\"", name);
    text_base64url(out, bytes, (size_t)size);
    buf_adds(out, "\"");
    BN_free(n);
}

/* Writes the key as a member of a key set; `more` is JSON that begins with a comma, or "". */
static inline void minter_jwk(struct buf *out, EVP_PKEY *k, const char *kid, const char *more)
{
    static const char *const kty[] = { "RSA", "EC", "OKP" };
    int type = EVP_PKEY_get_base_id(k);
    unsigned alg = type == EVP_PKEY_RSA ? JWT_RS256 : type == EVP_PKEY_EC ? JWT_ES256 : JWT_EDDSA;

    buf_addf(out, "{\"kty\":\"%s\",\"kid\":\"%s\"%s", kty[alg], kid, more);
    if (alg == JWT_RS256) {
        minter_add_number(out, "n", k, OSSL_PKEY_PARAM_RSA_N, 0);
        minter_add_number(out, "e", k, OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (alg == JWT_ES256) {
        buf_adds(out, ",\"crv\":\"P-256\"");
        minter_add_number(out, "x", k, OSSL_PKEY_PARAM_EC_PUB_X, 32);
        minter_add_number(out, "y", k, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    } else {
        uint8_t raw[32];
        size_t n = sizeof(raw);

        assert_int_equal(EVP_PKEY_get_raw_public_key(k, raw, &n), 1);
        buf_adds(out, ",\"crv\":\"Ed25519\",\"x\":\"");
        text_base64url(out, raw, n);
        buf_adds(out, "\"");
    }
    buf_adds(out, "}");
}

static inline char *minter_set(EVP_PKEY *const *keys, const char *const *kids, size_t n)
{
    struct buf out = { 0 };

    buf_adds(&out, "{\"keys\":[");
    for (size_t i = 0; i < n; i++) {
        buf_adds(&out, i ? "," : "");
        minter_jwk(&out, keys[i], kids[i], "");
    }
    buf_adds(&out, "]}");
    return out.data;
}

static inline size_t minter_raw_signature(const uint8_t *der, size_t len, uint8_t raw[64])
{
    const uint8_t *p = der;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &p, (long)len);

    assert_non_null(pair);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, 32), 32);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + 32, 32), 32);
    ECDSA_SIG_free(pair);
    return 64;
}

/* Signs with the key, regardless of the header. The caller frees the token. */
static inline char *minter_token(EVP_PKEY *k, const char *header, const char *claims)
{
    struct buf out = { 0 };
    uint8_t sig[1024], raw[64];
    size_t n = sizeof(sig);
    int type = EVP_PKEY_get_base_id(k);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    text_base64url(&out, header, strlen(header));
    buf_adds(&out, ".");
    text_base64url(&out, claims, strlen(claims));
    assert_int_equal(EVP_DigestSignInit(ctx, NULL, type == EVP_PKEY_ED25519 ? NULL : EVP_sha256(), NULL, k), 1);
    assert_int_equal(EVP_DigestSign(ctx, sig, &n, (const uint8_t *)out.data, out.len), 1);
    EVP_MD_CTX_free(ctx);
    buf_adds(&out, ".");
    if (type == EVP_PKEY_EC)
        text_base64url(&out, raw, minter_raw_signature(sig, n, raw));
    else
        text_base64url(&out, sig, n);
    return out.data;
}
