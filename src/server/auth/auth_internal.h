/* auth_internal.h - internal interface of the files of src/server/auth. */
#pragma once

#include "server/auth/auth.h"
#include "server/auth/throttle.h"
#include "server/auth/tickets.h"

/* An operation that waits for the store. The auth object owns it and frees it when it is done or
 * when auth_free() is called. */
struct auth_op {
    struct auth_op *next, **link;
    struct auth *auth;
    struct store_request *call; /* the request in progress */
    void (*free)(struct auth_op *op);
};

struct auth {
    struct ev *ev;
    struct store *store;
    uid_t owner_uid;
    void (*on_revoked)(void *arg, const char *id);
    void *arg;
    struct ratelimit_rule rules[AUTH_CLASS_COUNT];
    struct ratelimit
        local_delegated_buckets[AUTH_CLASS_COUNT]; /* rate limits of everything that the local owner delegated */
    struct keycache *cache;
    struct throttle *throttle;
    struct ev_timer uses_timer;
    uint64_t last_use_ns, first_use_ns; /* times of the uses that are not written yet */
    struct auth_op *ops;
    uint8_t pepper[MAC_LEN];
    struct mac_key mac_key;
    bool mac_key_ready; /* mac_key is initialized */
    struct tickets *tickets;
    struct issuer *issuer; /* NULL: no JWT is accepted */
    char jwt_tenant[STORE_OWNER_MAX + 1], jwt_role[STORE_NAME_MAX + 1];
};

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *));
void auth_op_end(struct auth_op *op);

/* --- requests --- */

struct auth_check_args { /* arguments of auth_check */
    struct auth *a;
    const struct auth_request *req;
    struct principal *ret;
    uint64_t *retry_ns;
    struct err *err;
    auth_done_fn *done;
    void *arg;
    struct auth_check **ret_later;
};

struct auth_check { /* a check in progress */
    struct auth_op op;
    enum principal_kind kind;
    struct delegated_token token_claims; /* the delegated token, if is_delegated */
    bool is_delegated;                   /* scopes are restricted to those of the delegated token */
    bool is_throttled;                   /* the address is throttled: only a valid key is accepted */
    uint8_t hash[STORE_HASH_LEN];
    uint64_t now_ns, now_ms;
    char *peer;
    char *token; /* JWT that waits for the issuer's keys */
    struct issuer_wait *wait;
    struct issuer_claims claims;
    char created_user[ID_SIZE]; /* user that this check created */
    auth_done_fn *done;
    void *arg;
};

struct auth_check *auth_check_begin(const struct auth_check_args *q, enum principal_kind kind,
                                    const struct delegated_token *p);
/* Accepts the entry of the store or the cache, and restricts its scopes if the credential is
 * delegated. */
enum auth_verdict auth_accept_entry(const struct auth_check *c, struct keycache_entry *e, struct principal *ret,
                                    struct err *err);
/* Completes and frees the check; err NULL: p is the principal. */
void auth_check_end(struct auth_check *c, const struct err *err, const struct principal *p);
enum auth_verdict auth_refuse_credential(struct err *err); /* the same error for every reason */
/* Counts a forged credential. Returns false with *err if its address has failed too often. */
bool auth_count_failed_attempt(const struct auth_check_args *q);

/* jwt_login.c */
enum auth_verdict auth_check_jwt(const struct auth_check_args *q, const char *token);
/* Checks a delegated token whose delegator is a user. */
enum auth_verdict auth_check_delegated_user(const struct auth_check_args *q, enum principal_kind kind,
                                            const struct delegated_token *p);

/* delegation.c */
void delegation_load_salt(struct auth *a);
/* Restricts the delegator's scopes in *p to those of the token. Fails with ERR_UNAUTHORIZED if the
 * delegator no longer has access. */
int auth_restrict_to_token(const struct delegated_token *g, enum principal_kind kind, struct principal *p,
                           struct err *err);
