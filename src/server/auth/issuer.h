/* issuer.h - the one issuer whose tokens are accepted, and its keys, which are kept up to date.
 *
 * The keys come from a file or from a URL. They are fetched at the start, when they reach
 * keys_max_age_ms, and when a token names an unknown key, but never more often than refetch_min_ms:
 * forged tokens cannot make the server flood the issuer with requests. A response is bounded in
 * bytes and time, and redirects are not followed. While the issuer is down, its last keys stay
 * valid for ISSUER_KEEP_NS.
 *
 * This module returns only the claims of the issuer; it does not map them to users of the
 * server. */
#pragma once

#include "server/auth/jwt.h"
#include "core/ev/ev.h"

#define ISSUER_KEEP_NS (24 * 3600 * NS_PER_S)
#define ISSUER_NAME_MAX 64u /* length of the name of a tenant or role */
#define ISSUER_ROLES_MAX 16u

struct issuer_settings { /* strings are borrowed for the issuer's lifetime */
    const char *issuer, *audience;
    const char *jwks_url, *jwks_file;                   /* exactly one of them */
    const char *user_claim, *tenant_claim, *role_claim; /* "" for the last two: not used */
    uint64_t skew_ms, lifetime_max_ms;
    uint64_t refetch_min_ms, keys_max_age_ms; /* minimum and maximum time between two fetches */
};

struct issuer;
/* Fails with ERR_CONF_VALUE if the settings contradict each other. A file must be readable now; a
 * URL need not respond yet. */
int issuer_new(struct ev *ev, const struct issuer_settings *set, struct issuer **ret, struct err *err);
void issuer_free(struct issuer *i); /* makes no callbacks */
DEFINE_AUTO(issuer, issuer_free);

struct issuer_claims {
    char user[JWT_SUBJECT_MAX + 1];
    char tenant[ISSUER_NAME_MAX + 1]; /* "": not in the token */
    char roles[ISSUER_ROLES_MAX][ISSUER_NAME_MAX + 1];
    size_t nroles;
    uint64_t expires_ms;
};

enum issuer_verdict {
    ISSUER_YES,    /* *ret is set */
    ISSUER_NO,     /* ERR_UNAUTHORIZED; or ERR_ISSUER_DOWN if there are no keys to verify it with */
    ISSUER_FORGED, /* ERR_UNAUTHORIZED; such a token is never sent by accident */
    ISSUER_LATER,  /* the keys are being fetched: `again` is called once, from the loop */
};
struct issuer_wait;
/* again NULL: uses the current keys; this is how to check again after a fetch. */
enum issuer_verdict issuer_check(struct issuer *i, const char *token, uint64_t now_ms, struct issuer_claims *ret,
                                 struct err *err, void (*again)(void *arg), void *arg, struct issuer_wait **ret_wait);
void issuer_wait_cancel(struct issuer_wait *w); /* `again` will not be called */
