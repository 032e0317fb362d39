/* jwt.h - a token that an issuer signed (JSON Web Token in its compact form): taken apart, verified, held to the rules.
 *
 * In three steps, so that a stranger's token costs little: jwt_parse reads it, jwt_check_claims holds its claims
 * against what we expect, jwt_verify asks the key. Nothing of it may be believed before all three have passed. Pure: no
 * clock, no network, and no header of the token ever says where a key could be found. */
#pragma once

#include "server/auth/jwks.h"

#include <jansson.h>

#define JWT_BYTES_MAX (8 * KIB)
#define JWT_SUBJECT_MAX 255u

struct jwt {
    enum jwt_alg alg; /* that it claims; jwks_find looks for a key of this kind */
    char *kid;        /* NULL: none */
    json_t *claims;
    const char *text; /* borrowed */
    size_t signed_len;
    uint8_t *sig;
    size_t sig_len;
};

/* ERR_UNAUTHORIZED with a reason that says nothing about us. The text is borrowed until jwt_done. */
int jwt_parse(const char *text, struct jwt *ret, struct err *err);
void jwt_done(struct jwt *t);

struct jwt_rules {
    const char *issuer, *audience; /* both must be in the token */
    uint64_t skew_ms;              /* how far its clock may be off from ours */
    uint64_t lifetime_max_ms;      /* a token that is good for longer is refused */
};
/* ret_expires_ms: when it ends by our clock, the skew included. */
int jwt_check_claims(const struct jwt *t, const struct jwt_rules *rules, uint64_t now_ms, uint64_t *ret_expires_ms,
                     struct err *err);
int jwt_verify(const struct jwt *t, const struct jwk *key, struct err *err);

/* A claim that is a text without control characters, borrowed; NULL: there is none, or it is something else. */
const char *jwt_claim_text(const struct jwt *t, const char *name);
