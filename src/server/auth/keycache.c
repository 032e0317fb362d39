/* Two tables of fixed size (bounded_table.h). The table of valid keys evicts the key with the
 * oldest use, the table of invalid keys the oldest entry. Hashes are not secret, but are compared
 * in constant time, so that no timing analysis is necessary. */
#include "server/auth/keycache.h"

#include "server/auth/apikey.h"
#include "server/auth/role.h"
#include "server/auth/bounded_table.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define GOOD_ROWS 128u
#define WRONG_ROWS 128u

struct keycache_wrong_key {
    uint8_t hash[STORE_HASH_LEN];
    uint64_t checked_ns; /* 0: free */
};

struct keycache {
    struct bounded_table good_table, wrong_table;
    struct keycache_entry good[GOOD_ROWS * BOUNDED_TABLE_WAYS];
    struct keycache_wrong_key wrong[WRONG_ROWS * BOUNDED_TABLE_WAYS];
};

const char *auth_class_name(enum auth_class class)
{
    static const char *const names[AUTH_CLASS_COUNT] = { "default", "create", "execute" };

    return names[class];
}

struct keycache *keycache_new(void)
{
    struct keycache *c = mem_new(struct keycache);

    bounded_table_init(&c->good_table, GOOD_ROWS);
    bounded_table_init(&c->wrong_table, WRONG_ROWS);
    return c;
}

void keycache_free(struct keycache *c)
{
    free(c);
}

static struct keycache_entry *keycache_row(struct keycache *c, const uint8_t hash[STORE_HASH_LEN])
{
    return &c->good[bounded_table_row(&c->good_table, hash, STORE_HASH_LEN)];
}

struct keycache_entry *keycache_find(struct keycache *c, const uint8_t hash[STORE_HASH_LEN])
{
    struct keycache_entry *row = keycache_row(c, hash), *found = NULL;

    for (size_t i = 0; i < BOUNDED_TABLE_WAYS; i++)
        if (row[i].occupied && apikey_hash_equal(row[i].hash, hash))
            found = &row[i];
    return found;
}

static struct keycache_entry *keycache_replace_entry(struct keycache *c, const uint8_t hash[STORE_HASH_LEN],
                                                     struct store_key_use *ret_lost)
{
    struct keycache_entry *row = keycache_row(c, hash), *least = row;

    for (size_t i = 0; i < BOUNDED_TABLE_WAYS; i++) {
        if (!row[i].occupied) {
            least = &row[i];
            break;
        }
        if (row[i].touched_ns < least->touched_ns)
            least = &row[i];
    }
    if (least->occupied && least->last_used_ms) {
        str_copy(ret_lost->id, sizeof(ret_lost->id), least->id);
        ret_lost->at_ms = least->last_used_ms;
    }
    *least = (struct keycache_entry){ .occupied = true };
    memcpy(least->hash, hash, STORE_HASH_LEN);
    return least;
}

/* A scope that this version does not know grants nothing. */
static uint32_t keycache_login_scopes(const struct store_login *row)
{
    struct err err = { 0 };
    uint32_t scopes = 0;

    if (scope_parse_list(row->key.scopes ? row->key.scopes : "", &scopes, &err) < 0)
        return 0;
    return row->key.user[0] ? scopes & role_permissions(row->role, row->permissions) : scopes;
}

struct keycache_entry *keycache_put(struct keycache *c, const struct store_login *row, uint64_t now_ns,
                                    struct store_key_use *ret_lost)
{
    const struct store_key *key = &row->key;
    struct keycache_entry *e = keycache_find(c, key->hash);

    *ret_lost = (struct store_key_use){ 0 };
    if (!e)
        e = keycache_replace_entry(c, key->hash, ret_lost);
    e->checked_ns = now_ns;
    e->stale = false;
    str_copy(e->id, sizeof(e->id), key->id);
    str_copy(e->owner, sizeof(e->owner), key->owner);
    str_copy(e->user, sizeof(e->user), key->user);
    e->expires_ms = key->expires_ms;
    e->disabled = row->disabled;
    e->suspended = row->suspended_ms != 0;
    e->scopes = keycache_login_scopes(row);
    return e;
}

void keycache_drop_id(struct keycache *c, const char *id)
{
    for (size_t i = 0; i < ARRAY_LEN(c->good); i++)
        if (c->good[i].occupied && str_eq(c->good[i].id, id))
            c->good[i] = (struct keycache_entry){ 0 };
}

/* The buckets stay, otherwise a change would reset the rate limits. */

void keycache_mark_user_stale(struct keycache *c, const char *user)
{
    for (size_t i = 0; i < ARRAY_LEN(c->good); i++)
        if (c->good[i].occupied && str_eq(c->good[i].user, user))
            c->good[i].stale = true;
}

void keycache_mark_owner_stale(struct keycache *c, const char *owner)
{
    for (size_t i = 0; i < ARRAY_LEN(c->good); i++)
        if (c->good[i].occupied && str_eq(c->good[i].owner, owner))
            c->good[i].stale = true;
}

bool keycache_is_wrong(const struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns)
{
    const struct keycache_wrong_key *row = &c->wrong[bounded_table_row(&c->wrong_table, hash, STORE_HASH_LEN)];
    bool found = false;

    for (size_t i = 0; i < BOUNDED_TABLE_WAYS; i++)
        if (row[i].checked_ns && now_ns - row[i].checked_ns < KEYCACHE_FRESH_NS && apikey_hash_equal(row[i].hash, hash))
            found = true;
    return found;
}

void keycache_put_wrong(struct keycache *c, const uint8_t hash[STORE_HASH_LEN], uint64_t now_ns)
{
    struct keycache_wrong_key *row = &c->wrong[bounded_table_row(&c->wrong_table, hash, STORE_HASH_LEN)], *least = row;

    for (size_t i = 0; i < BOUNDED_TABLE_WAYS; i++) {
        if (apikey_hash_equal(row[i].hash, hash)) {
            least = &row[i];
            break;
        }
        if (row[i].checked_ns < least->checked_ns)
            least = &row[i];
    }
    memcpy(least->hash, hash, STORE_HASH_LEN);
    least->checked_ns = now_ns ? now_ns : 1;
}

size_t keycache_take_uses(struct keycache *c, struct store_key_use *uses, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(c->good) && n < cap; i++) {
        struct keycache_entry *e = &c->good[i];

        if (!e->occupied || !e->last_used_ms)
            continue;
        str_copy(uses[n].id, sizeof(uses[n].id), e->id);
        uses[n++].at_ms = e->last_used_ms;
        e->last_used_ms = 0;
    }
    return n;
}
