/* Creates, rotates and revokes keys.
 *
 * Rule: no principal grants more than it has. A new key has a subset of its creator's scopes, its
 * creator's owner unless an admin chooses another, and expires no later than its creator. A key
 * with more scopes than `by` cannot be rotated by it, because the new secret is returned to `by`;
 * nor can it be revoked by it, otherwise the weakest key could lock out the strongest. Every key
 * may revoke itself.
 *
 * The secret is in the operation from its creation until done has returned, and is wiped with
 * it. */
#include "server/auth/auth_internal.h"

#include "server/auth/apikey.h"
#include "server/auth/role.h"
#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"

struct auth_key_op {
    struct auth_op op;
    struct principal by;
    struct apikey key;
    struct store_key row; /* the row to write; strings are on the heap */
    bool only_first;
    uint64_t now_ms;
    struct err refusal; /* reason for a refusal before any query of the store */
    auth_key_fn *done;
    store_key_fn *done_row;
    void *arg;
};

static void auth_key_op_free(struct auth_op *op)
{
    struct auth_key_op *k = container_of(op, struct auth_key_op, op);

    apikey_wipe(&k->key);
    free(k->row.name);
    free(k->row.scopes);
    free(k);
}

static struct auth_key_op *auth_key_op_new(struct auth *a, const struct principal *by, uint64_t now_ms,
                                           auth_key_fn *done, void *arg)
{
    struct auth_key_op *k = mem_new(struct auth_key_op);

    auth_op_begin(a, &k->op, auth_key_op_free);
    k->by = *by;
    k->now_ms = now_ms;
    k->done = done;
    k->arg = arg;
    return k;
}

const char *auth_key_visible_owner(const struct principal *by)
{
    return principal_has_scopes(by, SCOPE_BIT(ADMIN)) ? STORE_ANY_OWNER : by->owner;
}

const char *auth_key_visible_user(const struct principal *by)
{
    return by->user[0] && !principal_has_scopes(by, SCOPE_BIT(TENANT)) ? by->user : NULL;
}

bool auth_key_is_visible(const struct principal *by, const struct store_key *row)
{
    const char *user = auth_key_visible_user(by);

    return !user || str_eq(user, row->user);
}

/* A refusal is reported from the loop like every other result: an empty query of the store provides
 * the callback. */
static void auth_key_on_refused(void *arg, const struct err *err UNUSED, const char *value UNUSED)
{
    struct auth_key_op *k = arg;

    if (k->done)
        k->done(k->arg, &k->refusal, NULL, NULL);
    else
        k->done_row(k->arg, &k->refusal, NULL);
    auth_op_end(&k->op);
}

static void auth_key_refuse_deferred(struct auth_key_op *k)
{
    k->op.call = store_meta_get(k->op.auth->store, "auth.nothing", auth_key_on_refused, k);
}

static void auth_key_op_finish(struct auth_key_op *k, const struct err *err)
{
    k->done(k->arg, err, err ? NULL : &k->row, err ? NULL : k->key.text);
    auth_op_end(&k->op);
}

static int auth_key_check_scopes(const struct principal *by, uint32_t scopes, const char *verb, struct err *err)
{
    uint32_t more = scopes & ~by->scopes;

    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (more & (1u << i))
            return err_set(err, ERR_DENIED, "a key cannot %s the scope %s, which it does not have", verb,
                           scope_name(i));
    return 0;
}

/* Scopes that cannot be parsed count as all scopes. */
static uint32_t auth_key_row_scopes(const struct store_key *row)
{
    uint32_t scopes = SCOPE_ALL;

    return scope_parse_list(row->scopes ? row->scopes : "", &scopes, NULL) < 0 ? SCOPE_ALL : scopes;
}

/* Refuses scopes and an expiry beyond those of `by`. */
static int auth_key_check_rights(const struct principal *by, uint32_t scopes, uint64_t expires_ms, struct err *err)
{
    if (auth_key_check_scopes(by, scopes, "give", err) < 0)
        return -1;
    if (by->expires_ms && (!expires_ms || expires_ms > by->expires_ms))
        return err_set(err, ERR_DENIED, "a key cannot outlive the key that creates it");
    return 0;
}

/* create */

static void auth_key_on_inserted(void *arg, const struct err *err)
{
    auth_key_op_finish(arg, err);
}

static void auth_key_insert(struct auth_key_op *k)
{
    id_new("ky", k->row.id);
    apikey_new(&k->key);
    memcpy(k->row.hash, k->key.hash, STORE_HASH_LEN);
    strcpy(k->row.prefix, k->key.prefix);
    k->row.created_ms = k->now_ms;
    k->op.call = store_key_insert(k->op.auth->store, &k->row, k->only_first, auth_key_on_inserted, k);
}

/* Selects the user of the new key. A key for another user, or for no user, could hide its real user
 * and outlive the creator's access. */
static int auth_key_choose_user(const struct principal *by, const struct auth_key_spec *spec, const char *owner,
                                const char **ret, struct err *err)
{
    const char *own = str_eq(owner, by->owner) ? by->user : "", *user = spec->user ? spec->user : own;

    if (!str_eq(user, own) && !principal_has_scopes(by, SCOPE_BIT(TENANT)))
        return err_set(err, ERR_DENIED, "this key lacks the scope %s: it can create keys only for its own user",
                       scope_name(SCOPE_TENANT));
    if (*user && !id_valid(user, "us"))
        return err_set(err, ERR_MISSING, "there is no such user");
    if (*user && (spec->scopes & ROLE_OPERATOR_SCOPES))
        return err_set(err, ERR_DENIED, "the scope %s is reserved for the operator; a user's key cannot have it",
                       scope_name(spec->scopes & SCOPE_BIT(ADMIN) ? SCOPE_ADMIN : SCOPE_METRICS));
    *ret = user;
    return 0;
}

static int auth_key_check_spec(const struct principal *by, const struct auth_key_spec *spec, uint64_t now_ms,
                               struct err *err)
{
    const char *owner = spec->owner ? spec->owner : by->owner, *user;

    if (principal_require(by, SCOPE_BIT(KEYS), err) < 0)
        return -1;
    if (!str_eq(owner, by->owner) && !principal_has_scopes(by, SCOPE_BIT(ADMIN)))
        return err_set(err, ERR_DENIED, "only an admin can create keys for another owner");
    if (auth_key_choose_user(by, spec, owner, &user, err) < 0)
        return -1;
    if ((spec->scopes == 0 && !*user) || (spec->scopes & ~SCOPE_ALL))
        return err_set(err, ERR_INVALID, "a key needs at least one scope");
    if (spec->name && strlen(spec->name) > AUTH_NAME_MAX)
        return err_set(err, ERR_INVALID, "name: longer than %u bytes", AUTH_NAME_MAX);
    if (spec->expires_ms && spec->expires_ms <= now_ms)
        return err_set(err, ERR_INVALID, "the key would already be expired");
    if (!store_owner_valid(owner))
        return err_set(err, ERR_INVALID, "owner: must have 1 to %u letters, digits, '-', '_' or '.'", STORE_OWNER_MAX);
    return auth_key_check_rights(by, spec->scopes, spec->expires_ms, err);
}

static void auth_key_fill_row(struct auth_key_op *k, const struct auth_key_spec *spec)
{
    const char *owner = spec->owner ? spec->owner : k->by.owner, *user = "";
    struct buf scopes = { 0 };

    (void)auth_key_choose_user(&k->by, spec, owner, &user,
                               /* Checked before, except for the first key, which has no user. */
                               NULL);
    scope_write_list(spec->scopes ? spec->scopes : k->by.scopes & ~ROLE_OPERATOR_SCOPES, &scopes);
    str_copy(k->row.user, sizeof(k->row.user), user);
    k->row.scopes = scopes.data;
    k->row.name = spec->name ? str_dup(spec->name) : NULL;
    k->row.expires_ms = spec->expires_ms;
    str_copy(k->row.owner, sizeof(k->row.owner), owner);
}

void auth_key_create(struct auth *a, const struct principal *by, const struct auth_key_spec *spec, uint64_t now_ms,
                     auth_key_fn *done, void *arg)
{
    struct auth_key_op *k = auth_key_op_new(a, by, now_ms, done, arg);

    if (auth_key_check_spec(by, spec, now_ms, &k->refusal) < 0) {
        auth_key_refuse_deferred(k);
        return;
    }
    auth_key_fill_row(k, spec);
    auth_key_insert(k);
}

static const struct err *auth_key_missing(struct err *err)
{
    err_set(err, ERR_MISSING, "there is no such key");
    return err;
}

/* rotate */

static void auth_key_on_rotated(void *arg, const struct err *err, const struct store_key *row)
{
    struct auth_key_op *k = arg;
    struct auth *a = k->op.auth;

    if (err) {
        auth_key_op_finish(k, err);
        return;
    }
    keycache_drop_id(a->cache, row->id);
    if (a->on_revoked)
        a->on_revoked(a->arg, row->id);
    k->done(k->arg, NULL, row, k->key.text);
    auth_op_end(&k->op);
}

static void auth_key_on_rotate_row(void *arg, const struct err *failed, const struct store_key *row)
{
    struct auth_key_op *k = arg;
    struct err err = { 0 };

    if (!failed && !auth_key_is_visible(&k->by, row))
        failed = auth_key_missing(&err);
    if (failed) {
        auth_key_op_finish(k, failed);
        return;
    }
    if (row->revoked_ms) {
        err_set(&err, ERR_EXISTS, "the key %s was revoked", row->id);
        auth_key_op_finish(k, &err);
        return;
    }
    if (auth_key_check_rights(&k->by, auth_key_row_scopes(row), row->expires_ms, &err) < 0) {
        auth_key_op_finish(k, &err);
        return;
    }
    apikey_new(&k->key);
    memcpy(k->row.hash, k->key.hash, STORE_HASH_LEN);
    strcpy(k->row.prefix, k->key.prefix);
    strcpy(k->row.id, row->id);
    k->op.call = store_key_update(k->op.auth->store, row->owner, &k->row, STORE_KEY_SET_SECRET, auth_key_on_rotated, k);
}

void auth_key_rotate(struct auth *a, const struct principal *by, const char *id, auth_key_fn *done, void *arg)
{
    struct auth_key_op *k = auth_key_op_new(a, by, 0, done, arg);

    if (principal_require(by, SCOPE_BIT(KEYS), &k->refusal) < 0)
        auth_key_refuse_deferred(k);
    else
        k->op.call = store_key_get(a->store, auth_key_visible_owner(by), id, auth_key_on_rotate_row, k);
}

/* revoke */

static void auth_key_on_revoked(void *arg, const struct err *err, const struct store_key *row)
{
    struct auth_key_op *k = arg;
    struct auth *a = k->op.auth;

    if (!err) {
        keycache_drop_id(a->cache, row->id);
        if (a->on_revoked)
            a->on_revoked(a->arg, row->id);
    }
    k->done_row(k->arg, err, row);
    auth_op_end(&k->op);
}

static void auth_key_on_revoke_row(void *arg, const struct err *failed, const struct store_key *row)
{
    struct auth_key_op *k = arg;
    struct err err = { 0 };

    if (!failed && !auth_key_is_visible(&k->by, row))
        failed = auth_key_missing(&err);
    if (!failed && !str_eq(row->id, k->by.key_id) &&
        auth_key_check_scopes(&k->by, auth_key_row_scopes(row), "take away", &err) < 0)
        failed = &err;
    if (failed) {
        k->done_row(k->arg, failed, NULL);
        auth_op_end(&k->op);
        return;
    }
    k->op.call = store_key_update(k->op.auth->store, row->owner, &k->row, STORE_KEY_SET_REVOKED, auth_key_on_revoked,
                                  k);
}

void auth_key_revoke(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_key_fn *done,
                     void *arg)
{
    struct auth_key_op *k = auth_key_op_new(a, by, now_ms, NULL, arg);

    k->done_row = done;
    k->row.revoked_ms = now_ms ? now_ms : 1;
    if (principal_require(by, SCOPE_BIT(KEYS), &k->refusal) < 0) {
        auth_key_refuse_deferred(k);
    } else if (!id_valid(id, "ky")) {
        err_set(&k->refusal, ERR_MISSING, "there is no such key");
        auth_key_refuse_deferred(k);
    } else {
        strcpy(k->row.id, id);
        k->op.call = store_key_get(a->store, auth_key_visible_owner(by), id, auth_key_on_revoke_row, k);
    }
}

/* the first key */

static const struct auth_key_spec first_key_spec = { .name = "first key", .scopes = SCOPE_ALL };
static const struct principal server_principal = { .kind = PRINCIPAL_LOCAL,
                                                   .owner = AUTH_LOCAL_OWNER,
                                                   .scopes = SCOPE_ALL };

void auth_key_create_first(struct auth *a, uint64_t now_ms, auth_key_fn *done, void *arg)
{
    struct auth_key_op *k = auth_key_op_new(a, &server_principal, now_ms, done, arg);

    auth_key_fill_row(k, &first_key_spec);
    k->only_first = true;
    auth_key_insert(k);
}
