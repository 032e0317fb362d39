/* issuer.h - the one issuer whose tokens are accepted, with its keys kept up to date.
 *
 * The keys come from a file or from a URL. They are fetched at the start, once in an age, and when a token names a key
 * that is not known yet, but never more often than the floor: a stranger's tokens cannot make us knock at the issuer's
 * door. An answer is bounded in bytes and time, and a redirect is no answer. While the issuer is down its last keys
 * stay good, for ISSUER_KEEP_NS.
 *
 * Nothing here says who somebody is to us: only what the issuer says about them. */
#pragma once

#include "server/auth/jwt.h"
#include "core/ev/ev.h"

#define ISSUER_KEEP_NS (24 * 3600 * NS_PER_S)
#define ISSUER_NAME_MAX 64u /* of a tenant and of a role */
#define ISSUER_ROLES_MAX 16u

struct issuer_settings { /* texts are borrowed for the issuer's life */
    const char *issuer, *audience;
    const char *jwks_url, *jwks_file;                   /* one of them */
    const char *user_claim, *tenant_claim, *role_claim; /* "" for the last two: not looked at */
    uint64_t skew_ms, lifetime_max_ms;
    uint64_t refetch_min_ms, keys_max_age_ms; /* between two fetches, at least and at most */
};

struct issuer;
/* ERR_CONF_VALUE for settings that do not fit together; a file must be readable now, a URL need not answer yet. */
int issuer_new(struct ev *ev, const struct issuer_settings *set, struct issuer **ret, struct err *err);
void issuer_free(struct issuer *i); /* calls nobody back */
DEFINE_AUTO(issuer, issuer_free);

struct issuer_claims {
    char user[JWT_SUBJECT_MAX + 1];
    char tenant[ISSUER_NAME_MAX + 1]; /* "": it names none */
    char roles[ISSUER_ROLES_MAX][ISSUER_NAME_MAX + 1];
    size_t nroles;
    uint64_t expires_ms;
};

enum issuer_verdict {
    ISSUER_YES,    /* *ret is filled */
    ISSUER_NO,     /* ERR_UNAUTHORIZED; or ERR_ISSUER_DOWN when there are no keys to judge it by */
    ISSUER_FORGED, /* ERR_UNAUTHORIZED, and nobody sends such a token by accident */
    ISSUER_LATER,  /* the keys are being fetched: `again` is called once, from the loop */
};
struct issuer_wait;
/* again NULL: it is judged by the keys there are, which is how to ask when they have been fetched. */
enum issuer_verdict issuer_check(struct issuer *i, const char *token, uint64_t now_ms, struct issuer_claims *ret,
                                 struct err *err, void (*again)(void *arg), void *arg, struct issuer_wait **ret_wait);
void issuer_wait_cancel(struct issuer_wait *w); /* `again` will not be called */
