/* Each key is converted to an EVP_PKEY when it is read, so a key that OpenSSL rejects is found then
 * and not with the first token. RSA keys below 2048 bits are not accepted: they can be broken.
 * Above 8192 bits a verification is so expensive that it could be used to overload the server. */
#include "server/auth/jwks.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#define RSA_BITS_MIN 2048
#define RSA_BITS_MAX 8192
#define P256_BYTES 32
#define ED25519_BYTES 32
#define ED25519_SIG 64
#define NUMBER_MAX (RSA_BITS_MAX / 8) /* bytes of the largest number in a key */

struct jwk {
    char kid[JWKS_KID_MAX + 1]; /* "": none */
    enum jwt_alg alg;
    EVP_PKEY *pkey;
};

struct jwks {
    struct jwk keys[JWKS_KEYS_MAX];
    size_t n;
};

const char *jwt_alg_name(enum jwt_alg a)
{
    static const char *const names[JWT_ALG_COUNT] = { "RS256", "ES256", "EdDSA" };

    return names[a];
}

/* --- keys --- */

struct jwk_number {
    uint8_t bytes[NUMBER_MAX + 4];
    size_t len;
};

static bool jwk_read_number(const json_t *key, const char *name, struct jwk_number *ret)
{
    const json_t *v = json_object_get(key, name);
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);

    return text && len > 0 && len <= NUMBER_MAX / 3 * 4 + 4 && text_from_base64url(text, len, ret->bytes, &ret->len) &&
           ret->len <= NUMBER_MAX;
}

static EVP_PKEY *jwk_make_pkey(const char *type, OSSL_PARAM_BLD *bld)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;

    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return pkey;
}

static EVP_PKEY *jwk_read_rsa(const json_t *key)
{
    struct jwk_number n, e;

    if (!jwk_read_number(key, "n", &n) || !jwk_read_number(key, "e", &e) || e.len > 8)
        return NULL;
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    BIGNUM *bn = BN_bin2bn(n.bytes, (int)n.len, NULL), *be = BN_bin2bn(e.bytes, (int)e.len, NULL);
    EVP_PKEY *pkey = NULL;

    if (bld && bn && be && BN_num_bits(bn) >= RSA_BITS_MIN && BN_num_bits(bn) <= RSA_BITS_MAX && BN_is_odd(bn) &&
        BN_is_odd(be) && !BN_is_one(be) && OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_N, bn) == 1 &&
        OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_E, be) == 1)
        pkey = jwk_make_pkey("RSA", bld);
    OSSL_PARAM_BLD_free(bld);
    BN_free(bn);
    BN_free(be);
    return pkey;
}

/* A point that is not on the curve would make all signature checks meaningless. */
static bool jwk_is_on_curve(EVP_PKEY *pkey)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL);
    bool ok = ctx && EVP_PKEY_public_check(ctx) == 1;

    EVP_PKEY_CTX_free(ctx);
    return ok;
}

static EVP_PKEY *jwk_read_ec(const json_t *key)
{
    const char *curve = json_string_value(json_object_get(key, "crv"));
    uint8_t point[1 + 2 * P256_BYTES] = { POINT_CONVERSION_UNCOMPRESSED };
    struct jwk_number x, y;

    if (!curve || !str_eq(curve, "P-256") || !jwk_read_number(key, "x", &x) || !jwk_read_number(key, "y", &y) ||
        x.len != P256_BYTES || y.len != P256_BYTES)
        return NULL;
    memcpy(point + 1, x.bytes, P256_BYTES);
    memcpy(point + 1 + P256_BYTES, y.bytes, P256_BYTES);
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (bld && OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)) == 1)
        pkey = jwk_make_pkey("EC", bld);
    OSSL_PARAM_BLD_free(bld);
    if (pkey && !jwk_is_on_curve(pkey)) {
        EVP_PKEY_free(pkey);
        pkey = NULL;
    }
    return pkey;
}

static EVP_PKEY *jwk_read_okp(const json_t *key)
{
    const char *curve = json_string_value(json_object_get(key, "crv"));
    struct jwk_number x;

    if (!curve || !str_eq(curve, "Ed25519") || !jwk_read_number(key, "x", &x) || x.len != ED25519_BYTES)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x.bytes, x.len);
}

/* The attributes of a key may exclude it from use, but never extend its use. */
static bool jwk_is_for_signatures(const json_t *key, enum jwt_alg alg)
{
    const json_t *use = json_object_get(key, "use"), *ops = json_object_get(key, "key_ops"),
                 *said = json_object_get(key, "alg");
    const json_t *op;
    size_t i;

    if (use && (!json_is_string(use) || !str_eq(json_string_value(use), "sig")))
        return false;
    if (said && (!json_is_string(said) || !str_eq(json_string_value(said), jwt_alg_name(alg))))
        return false;
    if (!ops)
        return true;
    json_array_foreach(ops, i, op) if (json_is_string(op) && str_eq(json_string_value(op), "verify")) return true;
    return false;
}

static bool jwk_read(const json_t *key, struct jwk *ret)
{
    static const struct {
        const char *kty;
        enum jwt_alg alg;
        EVP_PKEY *(*read)(const json_t *key);
    } kinds[] = { { "RSA", JWT_RS256, jwk_read_rsa },
                  { "EC", JWT_ES256, jwk_read_ec },
                  { "OKP", JWT_EDDSA, jwk_read_okp } };
    const char *kty = json_string_value(json_object_get(key, "kty"));
    const json_t *kid = json_object_get(key, "kid");

    if (!kty || (kid && (!json_is_string(kid) || json_string_length(kid) == 0 ||
                         !str_copy(ret->kid, sizeof(ret->kid), json_string_value(kid)))))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq(kinds[i].kty, kty) && jwk_is_for_signatures(key, kinds[i].alg)) {
            ret->alg = kinds[i].alg;
            ret->pkey = kinds[i].read(key);
            ERR_clear_error();
            return ret->pkey != NULL;
        }
    return false;
}

/* --- sets --- */

int jwks_parse(const char *text, size_t len, struct jwks **ret, struct err *err)
{
    json_error_t why;

    if (len > JWKS_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the key set is larger than %u bytes", (unsigned)JWKS_BYTES_MAX);
    json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    const json_t *list = json_object_get(doc, "keys"), *key;
    size_t i;

    if (!json_is_array(list)) {
        json_decref(doc);
        return err_set(err, ERR_INVALID, "not a key set: expected a JSON object with an array named keys");
    }
    struct jwks *s = mem_new(struct jwks);
    json_array_foreach(list, i, key)
    {
        if (s->n == JWKS_KEYS_MAX)
            break;
        s->keys[s->n] = (struct jwk){ 0 };
        s->n += jwk_read(key, &s->keys[s->n]);
    }
    json_decref(doc);
    if (s->n == 0) {
        jwks_free(s);
        return err_set(err, ERR_INVALID, "the key set has no key for RS256, ES256 or EdDSA");
    }
    *ret = s;
    return 0;
}

void jwks_free(struct jwks *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        EVP_PKEY_free(s->keys[i].pkey);
    free(s);
}

size_t jwks_count(const struct jwks *s)
{
    return s->n;
}

const struct jwk *jwks_find(const struct jwks *s, const char *kid, enum jwt_alg alg)
{
    const struct jwk *found = NULL;

    for (size_t i = 0; i < s->n; i++) {
        const struct jwk *k = &s->keys[i];

        if (k->alg != alg || (kid && !str_eq(k->kid, kid)))
            continue;
        if (kid)
            return k;
        if (found)
            return NULL; /* ambiguous */
        found = k;
    }
    return found;
}

/* --- signatures --- */

static bool jwk_verify_digest(const struct jwk *k, const EVP_MD *md, const void *data, size_t len, const uint8_t *sig,
                              size_t sig_len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, md, NULL, k->pkey) == 1 &&
              EVP_DigestVerify(ctx, sig, sig_len, data, len) == 1;

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

/* A JWT holds the two numbers side by side, OpenSSL expects DER. */
static bool jwk_verify_ecdsa(const struct jwk *k, const void *data, size_t len, const uint8_t *sig, size_t sig_len)
{
    if (sig_len != 2 * P256_BYTES)
        return false;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(sig, P256_BYTES, NULL), *s = BN_bin2bn(sig + P256_BYTES, P256_BYTES, NULL);
    uint8_t *der = NULL;

    if (!pair || !r || !s || ECDSA_SIG_set0(pair, r, s) != 1)
        abort(); /* out of memory */
    int n = i2d_ECDSA_SIG(pair, &der);
    bool ok = n > 0 && jwk_verify_digest(k, EVP_sha256(), data, len, der, (size_t)n);
    OPENSSL_free(der);
    ECDSA_SIG_free(pair);
    return ok;
}

bool jwk_verify(const struct jwk *k, const void *data, size_t len, const uint8_t *sig, size_t sig_len)
{
    switch (k->alg) {
    case JWT_RS256:
        return sig_len == (size_t)EVP_PKEY_get_size(k->pkey) &&
               jwk_verify_digest(k, EVP_sha256(), data, len, sig, sig_len);
    case JWT_ES256:
        return jwk_verify_ecdsa(k, data, len, sig, sig_len);
    case JWT_EDDSA:
        return sig_len == ED25519_SIG && jwk_verify_digest(k, NULL, data, len, sig, sig_len);
    default:
        return false;
    }
}
