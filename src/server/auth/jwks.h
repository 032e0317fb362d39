/* jwks.h - the public keys of an issuer, from its JSON Web Key Set.
 *
 * A key has one algorithm, which its type determines: RSA is RS256, P-256 is ES256, Ed25519 is
 * EdDSA. The algorithm in a token is compared with that and never selects it, so a public key
 * cannot be mistaken for the secret of a MAC. Keys of other types, or for other uses, are
 * ignored. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define JWKS_BYTES_MAX (256 * KIB)
#define JWKS_KEYS_MAX 64u
#define JWKS_KID_MAX 256u

enum jwt_alg { JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALG_COUNT };
const char *jwt_alg_name(enum jwt_alg a);

struct jwk;  /* one key */
struct jwks; /* all keys of one issuer */

/* Fails with ERR_INVALID if the text is not a key set, or if none of its keys can be used;
 * malformed keys are ignored. */
int jwks_parse(const char *text, size_t len, struct jwks **ret, struct err *err);
void jwks_free(struct jwks *s);
DEFINE_AUTO(jwks, jwks_free);
size_t jwks_count(const struct jwks *s);

/* The key with this id and algorithm; kid NULL: the only key with that algorithm. NULL: not
 * found. */
const struct jwk *jwks_find(const struct jwks *s, const char *kid, enum jwt_alg alg);
/* Whether `sig`, in the format of a JWT, is this key's signature of the data. */
bool jwk_verify(const struct jwk *k, const void *data, size_t len, const uint8_t *sig, size_t sig_len);
