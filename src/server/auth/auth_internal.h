/* auth_internal.h - what the files of this room share. */
#pragma once

#include "server/auth/auth.h"
#include "server/auth/throttle.h"
#include "server/auth/tickets.h"

/* Something that waits for the store. It belongs to the auth, which frees it when it is done or when auth itself ends.
 */
struct auth_op {
    struct auth_op *next, **link;
    struct auth *auth;
    struct store_request *call; /* the one that is under way */
    void (*free)(struct auth_op *op);
};

struct auth {
    struct ev *ev;
    struct store *store;
    uid_t owner_uid;
    void (*on_revoked)(void *arg, const char *id);
    void *arg;
    struct ratelimit_rule rules[AUTH_CLASS_COUNT];
    struct ratelimit local_delegated_buckets[AUTH_CLASS_COUNT]; /* of all that the local owner handed on */
    struct keycache *cache;
    struct throttle *throttle;
    struct ev_timer uses_timer;
    uint64_t last_use_ns, first_use_ns; /* of those that are not written */
    struct auth_op *ops;
    uint8_t pepper[MAC_LEN];
    struct mac_key mac_key;
    bool mac_key_ready; /* the seal is there */
    struct tickets *tickets;
    struct issuer *issuer; /* NULL: tokens of nobody are accepted */
    char jwt_tenant[STORE_OWNER_MAX + 1], jwt_role[STORE_NAME_MAX + 1];
};

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *));
void auth_op_end(struct auth_op *op);

/* --- one request --- */

struct auth_check_args { /* a call of auth_check */
    struct auth *a;
    const struct auth_request *req;
    struct principal *ret;
    uint64_t *retry_ns;
    struct err *err;
    auth_done_fn *done;
    void *arg;
    struct auth_check **ret_later;
};

struct auth_check { /* one that is being answered */
    struct auth_op op;
    enum principal_kind kind;
    struct delegated_token token_claims; /* of what was handed on */
    bool is_delegated;                   /* it was: rights are narrowed to the pass */
    bool is_throttled;                   /* its address has to wait: only a right key is taken */
    uint8_t hash[STORE_HASH_LEN];
    uint64_t now_ns, now_ms;
    char *peer;
    char *token; /* of an issuer whose keys are awaited */
    struct issuer_wait *wait;
    struct issuer_claims claims;
    char created_user[ID_SIZE]; /* the user who was made just now */
    auth_done_fn *done;
    void *arg;
};

struct auth_check *auth_check_begin(const struct auth_check_args *q, enum principal_kind kind,
                                    const struct delegated_token *p);
/* What the store or the cache knows is believed, and narrowed if it was handed on. */
enum auth_verdict auth_accept_entry(const struct auth_check *c, struct keycache_entry *e, struct principal *ret,
                                    struct err *err);
/* Answers and ends the check; err NULL: p is it. */
void auth_check_end(struct auth_check *c, const struct err *err, const struct principal *p);
enum auth_verdict auth_refuse_credential(struct err *err); /* the same for every reason */
/* A credential that somebody made up: false when its address has tried too often, and *err says so. */
bool auth_count_failed_attempt(const struct auth_check_args *q);

/* jwt_login.c */
enum auth_verdict auth_check_jwt(const struct auth_check_args *q, const char *token);
/* A pass that a user of that kind made. */
enum auth_verdict auth_check_delegated_user(const struct auth_check_args *q, enum principal_kind kind,
                                            const struct delegated_token *p);

/* delegation.c */
void delegation_load_salt(struct auth *a);
/* Makes of the maker's rights, in *p, those of the pass. ERR_UNAUTHORIZED when the maker has nothing to do there any
 * more. */
int auth_restrict_to_token(const struct delegated_token *g, enum principal_kind kind, struct principal *p,
                           struct err *err);
