/* Rules that are easy to forget; each prevents an attack that worked elsewhere:
 *
 * 1. One spelling: three parts in strict base64url, JSON objects without duplicate names. So two
 *    readers of a token never see different content.
 * 2. The algorithm in the header is only compared, never used to select one. `none` and the MAC
 *    algorithms are not accepted.
 * 3. A header that contains a key or its location (jwk, jku, x5c, x5u), or that requires an
 *    extension (crit), makes the token invalid. Following it would let the bearer choose the key.
 * 4. A token without expiry, or with an expiry years ahead, is refused: it could not be revoked. */
#include "server/auth/jwt.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <math.h>
#include <strings.h>

#define TIME_MAX_S 253402300799.0 /* the end of the year 9999 */

static int jwt_invalid(struct err *err, const char *why)
{
    return err_set(err, ERR_UNAUTHORIZED, "the token is not valid: %s", why);
}

/* --- parsing --- */

static json_t *jwt_read_part(const char *text, size_t len)
{
    auto_free uint8_t *bytes = mem_alloc(len + 1);
    json_t *doc = NULL;
    size_t n;

    if (text_from_base64url(text, len, bytes, &n))
        doc = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    return NULL;
}

static int jwt_read_header(const json_t *head, struct jwt *ret, struct err *err)
{
    static const char *const refused[] = { "jku", "jwk", "x5u", "x5c", "crit", "b64", "zip" };
    const char *alg = json_string_value(json_object_get(head, "alg"));
    const json_t *typ = json_object_get(head, "typ"), *kid = json_object_get(head, "kid");
    unsigned a = 0;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (json_object_get(head, refused[i]))
            return jwt_invalid(err, "its header has a parameter that is not allowed");
    while (alg && a < JWT_ALG_COUNT && !str_eq(alg, jwt_alg_name(a)))
        a++;
    if (!alg || a == JWT_ALG_COUNT)
        return jwt_invalid(err, "its algorithm is not one of RS256, ES256, EdDSA");
    ret->alg = a;
    const char *type = json_string_value(typ);
    if (typ && (!type || (strcasecmp(type, "JWT") != 0 && strcasecmp(type, "at+jwt") != 0 &&
                          strcasecmp(type, "application/at+jwt") != 0)))
        return jwt_invalid(err, "its type (typ) is not JWT or at+jwt");
    if (kid && (!json_is_string(kid) || json_string_length(kid) == 0 || json_string_length(kid) > JWKS_KID_MAX))
        return jwt_invalid(err, "its kid is not a valid key id");
    ret->kid = kid ? str_dup(json_string_value(kid)) : NULL;
    return 0;
}

static int jwt_read_parts(const char *text, struct jwt *ret, struct err *err)
{
    const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;

    if (!second || strchr(second + 1, '.'))
        return jwt_invalid(err, "it does not have three parts");
    json_t *head = jwt_read_part(text, (size_t)(first - text));
    int rc = head ? jwt_read_header(head, ret, err) : jwt_invalid(err, "its header is not a JSON object in base64url");
    json_decref(head);
    if (rc < 0)
        return -1;
    ret->claims = jwt_read_part(first + 1, (size_t)(second - first - 1));
    if (!ret->claims)
        return jwt_invalid(err, "its claims are not a JSON object in base64url, or have duplicate names");
    size_t sig_len = strlen(second + 1);
    ret->sig = mem_alloc(sig_len + 1);
    if (sig_len == 0 || !text_from_base64url(second + 1, sig_len, ret->sig, &ret->sig_len))
        return jwt_invalid(err, "its signature is not base64url");
    ret->signed_len = (size_t)(second - text);
    return 0;
}

int jwt_parse(const char *text, struct jwt *ret, struct err *err)
{
    *ret = (struct jwt){ .text = text };
    if (strnlen(text, JWT_BYTES_MAX + 1) > JWT_BYTES_MAX)
        return jwt_invalid(err, "it is too long");
    if (jwt_read_parts(text, ret, err) == 0)
        return 0;
    jwt_done(ret);
    return -1;
}

void jwt_done(struct jwt *t)
{
    free(t->kid);
    free(t->sig);
    json_decref(t->claims);
    *t = (struct jwt){ 0 };
}

/* --- claims --- */

const char *jwt_claim_text(const struct jwt *t, const char *name)
{
    const json_t *v = json_object_get(t->claims, name);
    const char *text = json_string_value(v);

    if (!text || json_string_length(v) == 0 || strlen(text) != json_string_length(v))
        return NULL;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return NULL;
    return text;
}

enum jwt_time_result { JWT_TIME_ABSENT, JWT_TIME_INVALID, JWT_TIME_VALID };

static enum jwt_time_result jwt_read_time(const struct jwt *t, const char *name, uint64_t *ret_ms)
{
    const json_t *v = json_object_get(t->claims, name);
    double s = json_number_value(v);

    if (!v)
        return JWT_TIME_ABSENT;
    if (!json_is_number(v) || !isfinite(s) || s < 0 || s > TIME_MAX_S)
        return JWT_TIME_INVALID;
    *ret_ms = (uint64_t)(s * 1000.0);
    return JWT_TIME_VALID;
}

static bool jwt_has_audience(const struct jwt *t, const char *audience)
{
    const json_t *aud = json_object_get(t->claims, "aud"), *one;
    size_t i;

    if (json_is_string(aud))
        return str_eq(json_string_value(aud), audience);
    json_array_foreach(aud, i, one) if (json_is_string(one) && str_eq(json_string_value(one), audience)) return true;
    return false;
}

static int jwt_check_times(const struct jwt *t, const struct jwt_rules *r, uint64_t now_ms, uint64_t *ret,
                           struct err *err)
{
    uint64_t exp = 0, nbf = 0, iat = 0;
    enum jwt_time_result has_nbf = jwt_read_time(t, "nbf", &nbf), has_iat = jwt_read_time(t, "iat", &iat);

    if (jwt_read_time(t, "exp", &exp) != JWT_TIME_VALID)
        return jwt_invalid(err, "it does not say when it expires (exp)");
    if (has_nbf == JWT_TIME_INVALID || has_iat == JWT_TIME_INVALID)
        return jwt_invalid(err, "one of its times is not valid");
    if (now_ms >= exp + r->skew_ms)
        return err_set(err, ERR_UNAUTHORIZED, "the token has expired");
    if (exp > now_ms + r->lifetime_max_ms + r->skew_ms)
        return jwt_invalid(err, "it expires later than this server accepts");
    if (has_nbf == JWT_TIME_VALID && nbf > now_ms + r->skew_ms)
        return jwt_invalid(err, "it is not valid yet");
    if (has_iat == JWT_TIME_VALID && iat > now_ms + r->skew_ms)
        return jwt_invalid(err, "it was issued in the future");
    *ret = exp + r->skew_ms;
    return 0;
}

int jwt_check_claims(const struct jwt *t, const struct jwt_rules *rules, uint64_t now_ms, uint64_t *ret_expires_ms,
                     struct err *err)
{
    const char *iss = jwt_claim_text(t, "iss"), *sub = jwt_claim_text(t, "sub");

    if (!iss || !str_eq(iss, rules->issuer))
        return jwt_invalid(err, "it is from another issuer");
    if (!jwt_has_audience(t, rules->audience))
        return jwt_invalid(err, "it is for another audience");
    if (!sub || strlen(sub) > JWT_SUBJECT_MAX)
        return jwt_invalid(err, "it has no subject (sub)");
    return jwt_check_times(t, rules, now_ms, ret_expires_ms, err);
}

int jwt_verify(const struct jwt *t, const struct jwk *key, struct err *err)
{
    if (!jwk_verify(key, t->text, t->signed_len, t->sig, t->sig_len))
        return jwt_invalid(err, "its signature is wrong");
    return 0;
}
