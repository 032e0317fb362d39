/* inside.h - what auth.c and keys.c share. */
#pragma once

#include "auth/auth.h"

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
    struct keycache *cache;
    struct throttle *throttle;
    struct ev_timer uses;
    struct auth_op *ops;
};

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *));
void auth_op_end(struct auth_op *op);
