/* keycache.h - keys that were looked up lately, so that a request costs the store nothing.
 *
 * Good keys and wrong ones have tables of their own: no number of wrong ones pushes a good one out. What is in here is
 * at most KEYCACHE_FRESH_NS old; a change made through src/server/auth is in here at once. */
#pragma once

#include "server/auth/ratelimit.h"
#include "server/auth/scope.h"
#include "store/tenants.h"

#define KEYCACHE_FRESH_NS (30 * NS_PER_S)

/* Classes of requests that are counted apart. */
enum auth_class { AUTH_CLASS_DEFAULT, AUTH_CLASS_CREATE, AUTH_CLASS_EXECUTE, AUTH_CLASS_COUNT };

struct keycache_entry {
    uint8_t hash[STORE_HASH_LEN];
    bool occupied;       /* this place is taken */
    bool stale;          /* something about it changed: the store is to be asked again */
    uint64_t checked_ns; /* when the store said so */
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    char user[ID_SIZE];
    uint32_t scopes; /* of the key, as far as the user's role allows them */
    bool disabled;   /* its user is */
    bool suspended;  /* its tenant is */
    uint64_t expires_ms;
    uint64_t touched_ns;   /* last request */
    uint64_t last_used_ms; /* not yet told to the store; 0: nothing to tell */
    struct ratelimit buckets[AUTH_CLASS_COUNT];
};

struct keycache;
struct keycache *keycache_new(void);
void keycache_free(struct keycache *c);
DEFINE_AUTO(keycache, keycache_free);

/* NULL: not there. The pointer is good until the next call. An old entry is found too: it says who it was. */
struct keycache_entry *keycache_find(struct keycache *c, const uint8_t hash[STORE_HASH_LEN]);
/* Puts a key in, or brings up to date the one that is there, whose buckets and marks stay. When something that still
 * has a use to tell makes room for it, that goes to *ret_lost (last_used_ms 0: nothing). */
struct keycache_entry *keycache_put(struct keycache *c, const struct store_login *row, uint64_t now_ns,
                                    struct store_key_use *ret_lost);
void keycache_drop_id(struct keycache *c, const char *id); /* revoked, rotated */
/* Something about all keys of a user or a tenant changed: they are asked for again. */
void keycache_mark_user_stale(struct keycache *c, const char *user);
void keycache_mark_owner_stale(struct keycache *c, const char *owner);

bool keycache_is_wrong(const struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns);
void keycache_put_wrong(struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns);

/* Moves up to cap uses that the store has not been told to uses; returns how many. */
size_t keycache_take_uses(struct keycache *c, struct store_key_use *uses, size_t cap);
