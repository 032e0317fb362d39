/* inside.h - what the files of this room share. */
#pragma once

#include "auth/auth.h"
#include "auth/tickets.h"

/* Something that waits for the store. It belongs to the auth, which frees it when it is done or when auth itself ends.
 */
struct auth_op {
    struct auth_op *next, **at;
    struct auth *auth;
    struct store_call *call; /* the one that is under way */
    void (*free)(struct auth_op *op);
};

struct auth {
    struct ev *ev;
    struct store *store;
    uid_t owner_uid;
    void (*on_revoked)(void *arg, const char *key_id);
    void *arg;
    struct ratelimit_rule rules[AUTH_CLASS_COUNT];
    struct ratelimit others[AUTH_CLASS_COUNT]; /* of all that the local owner handed on */
    struct keycache *cache;
    struct throttle *throttle;
    struct ev_timer uses;
    struct auth_op *ops;
    uint8_t pepper[SEAL_LEN];
    struct seal seal;
    bool sealed; /* the seal is there */
    struct tickets *tickets;
};

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *));
void auth_op_end(struct auth_op *op);

/* passes.c */
void auth_seal_load(struct auth *a);
/* Makes of the maker's rights, in *p, those of the pass. ERR_UNAUTHORIZED when the maker has nothing to do there any
 * more. */
int auth_narrow(const struct pass *g, enum principal_kind kind, struct principal *p, struct err *err);
