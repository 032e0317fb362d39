/* keycache.h - a cache of recently used keys, so that most requests need no query of the store.
 *
 * Valid and invalid keys are in separate tables: no number of invalid keys can evict a valid one.
 * An entry is at most KEYCACHE_FRESH_NS old; a change through src/server/auth updates the cache at
 * once. */
#pragma once

#include "server/auth/ratelimit.h"
#include "server/auth/scope.h"
#include "store/tenants.h"

#define KEYCACHE_FRESH_NS (30 * NS_PER_S)

/* Classes of requests with separate rate limits. */
enum auth_class { AUTH_CLASS_DEFAULT, AUTH_CLASS_CREATE, AUTH_CLASS_EXECUTE, AUTH_CLASS_COUNT };

const char *auth_class_name(enum auth_class class); /* as in the settings */

struct keycache_entry {
    uint8_t hash[STORE_HASH_LEN];
    bool occupied;       /* this slot is in use */
    bool stale;          /* something about it changed: the store must be queried again */
    uint64_t checked_ns; /* time of the last query of the store */
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    char user[ID_SIZE];
    uint32_t scopes; /* scopes of the key, restricted to those of the user's role */
    bool disabled;   /* the user is disabled */
    bool suspended;  /* the tenant is suspended */
    uint64_t expires_ms;
    uint64_t touched_ns;   /* time of the last request */
    uint64_t last_used_ms; /* not yet written to the store; 0: nothing to write */
    struct ratelimit buckets[AUTH_CLASS_COUNT];
};

struct keycache;
struct keycache *keycache_new(void);
void keycache_free(struct keycache *c);
DEFINE_AUTO(keycache, keycache_free);

/* NULL: not found. The pointer is valid until the next call. Stale entries are found too. */
struct keycache_entry *keycache_find(struct keycache *c, const uint8_t hash[STORE_HASH_LEN]);
/* Adds a key, or updates its entry, whose buckets and time stamps stay. If that evicts an entry
 * whose last use was not written yet, the use is copied to *ret_lost (last_used_ms 0: none). */
struct keycache_entry *keycache_put(struct keycache *c, const struct store_login *row, uint64_t now_ns,
                                    struct store_key_use *ret_lost);
void keycache_drop_id(struct keycache *c, const char *id); /* after revocation or rotation */
/* Marks all keys of a user or a tenant as stale: the store is queried again. */
void keycache_mark_user_stale(struct keycache *c, const char *user);
void keycache_mark_owner_stale(struct keycache *c, const char *owner);

bool keycache_is_wrong(const struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns);
void keycache_put_wrong(struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns);

/* Moves up to cap uses that are not written to the store yet to uses; returns how many. */
size_t keycache_take_uses(struct keycache *c, struct store_key_use *uses, size_t cap);
