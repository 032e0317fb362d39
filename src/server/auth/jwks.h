/* jwks.h - the public keys of an issuer, as its JSON Web Key Set tells them.
 *
 * A key has one algorithm, decided by what the key is: RSA is RS256, P-256 is ES256, Ed25519 is EdDSA. What a token
 * says about its algorithm is held against that and never chooses it, so a public key cannot be mistaken for the secret
 * of a MAC. Keys of other kinds, or for other uses, are left out. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define JWKS_BYTES_MAX (256 * KIB)
#define JWKS_KEYS_MAX 64u
#define JWKS_KID_MAX 256u

enum jwt_alg { JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALG_COUNT };
const char *jwt_alg_name(enum jwt_alg a);

struct jwk;  /* one key */
struct jwks; /* all of one issuer */

/* ERR_INVALID when it is no key set, or when no key of it can be used; a key that is malformed is left out. */
int jwks_parse(const char *text, size_t len, struct jwks **ret, struct err *err);
void jwks_free(struct jwks *s);
DEFINE_AUTO(jwks, jwks_free);
size_t jwks_count(const struct jwks *s);

/* The key with this name and algorithm; kid NULL: the only one with that algorithm. NULL: there is none. */
const struct jwk *jwks_find(const struct jwks *s, const char *kid, enum jwt_alg alg);
/* Whether `sig`, in the form that tokens carry, is this key's signature of the data. */
bool jwk_verify(const struct jwk *k, const void *data, size_t len, const uint8_t *sig, size_t sig_len);
