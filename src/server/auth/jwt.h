/* jwt.h - a token that an issuer signed (JSON Web Token in compact form): parsing, claims,
 * verification.
 *
 * Three steps, so that a forged token costs little: jwt_parse parses it, jwt_check_claims checks
 * its claims, jwt_verify verifies the signature. No part of a token may be trusted before all three
 * have passed. Pure functions: no clock, no network, and no header of the token ever selects the
 * source of a key. */
#pragma once

#include "server/auth/jwks.h"

#include <jansson.h>

#define JWT_BYTES_MAX (8 * KIB)
#define JWT_SUBJECT_MAX 255u

struct jwt {
    enum jwt_alg alg; /* claimed by the token; jwks_find looks for a key of this algorithm */
    char *kid;        /* NULL: none */
    json_t *claims;
    const char *text; /* borrowed */
    size_t signed_len;
    uint8_t *sig;
    size_t sig_len;
};

/* Fails with ERR_UNAUTHORIZED and a reason that reveals nothing about the server. The text is
 * borrowed until jwt_done. */
int jwt_parse(const char *text, struct jwt *ret, struct err *err);
void jwt_done(struct jwt *t);

struct jwt_rules {
    const char *issuer, *audience; /* both must match the token */
    uint64_t skew_ms;              /* maximum clock difference */
    uint64_t lifetime_max_ms;      /* a token that expires later than this is refused */
};
/* ret_expires_ms: expiry by this server's clock, including the skew. */
int jwt_check_claims(const struct jwt *t, const struct jwt_rules *rules, uint64_t now_ms, uint64_t *ret_expires_ms,
                     struct err *err);
int jwt_verify(const struct jwt *t, const struct jwk *key, struct err *err);

/* A claim that is a text without control characters, borrowed; NULL: absent or of another type. */
const char *jwt_claim_text(const struct jwt *t, const char *name);
