/* Tenants, users, roles and keys: rules that involve more than one row.
 *
 * Whether a tenant keeps an admin, whether a role is in use, whether a new row refers to existing
 * rows: each is checked in the transaction of the change, so two requests cannot both pass the
 * check and break the rule. */
#include "store/rules/rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>

static bool role_is_builtin(const char *role)
{
    for (size_t i = 0; store_builtin_roles[i]; i++)
        if (str_eq(role, store_builtin_roles[i]))
            return true;
    return false;
}

/* --- references of a new row --- */

static int tenant_rules_check_tenant(struct store_db *db, const char *name, struct err *err)
{
    const struct row_query q = { .table = &row_tenant,
                                 .where = { { "name", ROW_IS, name, 0 }, { "removed_ms", ROW_IS, NULL, 0 } } };
    uint64_t n = 0;

    if (db->ops->count(db, &q, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no tenant '%s'", name);
}

static int tenant_rules_check_role(struct store_db *db, const char *owner, const char *role, struct err *err)
{
    const struct row_query q = { .table = &row_role,
                                 .where = { { "owner", ROW_IS, owner, 0 }, { "name", ROW_IS, role, 0 } } };
    uint64_t n = 0;

    if (role_is_builtin(role))
        return 0;
    if (db->ops->count(db, &q, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no role '%.64s'", role);
}

static int tenant_rules_check_key_user(struct store_db *db, const struct store_key *key, struct err *err)
{
    const struct row_query q = { .table = &row_user,
                                 .where = { { "id", ROW_IS, key->user, 0 }, { "owner", ROW_IS, key->owner, 0 } } };
    uint64_t n = 0;

    if (!key->user[0])
        return 0;
    if (db->ops->count(db, &q, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no user '%s'", key->user);
}

/* A removed user does not come back by itself; when an admin adds the user again, the removal is
 * lifted. */
static int tenant_rules_check_removed_user(struct store_db *db, const struct store_user *user, bool vouched,
                                           struct err *err)
{
    const struct row_query q = { .table = &row_removed_user,
                                 .where = { { "owner", ROW_IS, user->owner, 0 }, { "name", ROW_IS, user->name, 0 } } };
    uint64_t n = 0;

    if (!vouched)
        return db->ops->remove(db, &q, &n, err);
    if (db->ops->count(db, &q, &n, err) < 0)
        return -1;
    return n ? err_set(err, ERR_USER_REMOVED, "%.64s was removed from the tenant %s", user->name, user->owner) : 0;
}

static int tenant_rules_check_user(struct store_db *db, const struct store_user *user, bool vouched, struct err *err)
{
    if (tenant_rules_check_tenant(db, user->owner, err) < 0 ||
        tenant_rules_check_role(db, user->owner, user->role, err) < 0)
        return -1;
    return tenant_rules_check_removed_user(db, user, vouched, err);
}

int tenant_rules_check_insert(struct store_db *db, const struct store_request *c, struct err *err)
{
    if (c->table == &row_key) {
        const struct store_key *key = c->row;

        return tenant_rules_check_tenant(db, key->owner, err) < 0 ? -1 : tenant_rules_check_key_user(db, key, err);
    }
    if (c->table == &row_user)
        return tenant_rules_check_user(db, c->row, c->from_identity_provider, err);
    if (c->table == &row_role)
        return tenant_rules_check_tenant(db, ((const struct store_role *)c->row)->owner, err);
    return 0;
}

/* --- users --- */

bool tenant_rules_is_admin(const struct store_user *user)
{
    return !user->disabled && str_eq(user->role, store_builtin_roles[0]);
}

bool tenant_rules_stays_admin(const struct store_user *user, const struct store_user *update, uint32_t set)
{
    struct store_user after = *user;

    if (set & STORE_USER_SET_ROLE)
        memcpy(after.role, update->role, sizeof(after.role));
    if (set & STORE_USER_SET_DISABLED)
        after.disabled = update->disabled;
    return tenant_rules_is_admin(&after);
}

/* The user of a call; c->rows is left empty. */
static int tenant_rules_find_user(struct store_db *db, struct store_request *c, struct store_user *ret, struct err *err)
{
    if (row_rules_get(db, c, err) < 0)
        return -1;
    *ret = *(const struct store_user *)(const void *)c->rows.rows;
    row_list_done(c->table, &c->rows);
    return 0;
}

/* Another enabled admin remains when this user is none any more. */
static int tenant_rules_check_last_admin(struct store_db *db, const struct store_user *user, struct err *err)
{
    const struct row_query others = { .table = &row_user,
                                      .where = { { "owner", ROW_IS, user->owner, 0 },
                                                 { "id", ROW_IS_NOT, user->id, 0 },
                                                 { "role", ROW_IS, store_builtin_roles[0], 0 },
                                                 { "disabled", ROW_IS, NULL, 0 } } };
    uint64_t n = 0;

    if (!tenant_rules_is_admin(user))
        return 0;
    if (db->ops->count(db, &others, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_LAST_ADMIN, "%s is the last admin of the tenant %s", user->name, user->owner);
}

int tenant_rules_check_user_update(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_user *update = c->row;
    struct store_user was;

    assert(update); /* a call without its row was rejected before */
    if (tenant_rules_find_user(db, c, &was, err) < 0)
        return -1;
    if ((c->set & STORE_USER_SET_ROLE) && tenant_rules_check_role(db, was.owner, update->role, err) < 0)
        return -1;
    if (!c->keep_admin || tenant_rules_stays_admin(&was, update, c->set))
        return 0;
    return tenant_rules_check_last_admin(db, &was, err);
}

static int tenant_rules_revoke_keys(struct store_db *db, const char *column, const char *value, uint64_t at_ms,
                                    struct err *err)
{
    const struct row_query q = { .table = &row_key,
                                 .where = { { column, ROW_IS, value, 0 }, { "revoked_ms", ROW_IS, NULL, 0 } } };
    const struct store_key row = { .revoked_ms = at_ms };
    uint64_t n = 0;

    return db->ops->update(db, &q, &row, STORE_KEY_SET_REVOKED, NULL, &n, err);
}

static int tenant_rules_remove_user(struct store_db *db, struct store_request *c, struct err *err)
{
    struct store_removed_user removed = { .removed_ms = c->now_ms };
    struct store_user user;
    uint64_t n = 0;

    if (tenant_rules_find_user(db, c, &user, err) < 0 ||
        (c->keep_admin && tenant_rules_check_last_admin(db, &user, err) < 0) ||
        tenant_rules_revoke_keys(db, "user", user.id, c->now_ms, err) < 0)
        return -1;
    memcpy(removed.owner, user.owner, sizeof(removed.owner));
    memcpy(removed.name, user.name, sizeof(removed.name));
    const struct row_query q = { .table = &row_user, .where = { { "id", ROW_IS, user.id, 0 } } };
    if (db->ops->replace(db, &row_removed_user, &removed, NULL, err) < 0)
        return -1;
    return db->ops->remove(db, &q, &n, err);
}

/* --- roles and tenants --- */

static int tenant_rules_remove_role(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query users = { .table = &row_user,
                                     .where = { { "owner", ROW_IS, c->owner, 0 }, { "role", ROW_IS, c->id, 0 } } };
    const struct row_query role = { .table = &row_role,
                                    .where = { { "owner", ROW_IS, c->owner, 0 }, { "name", ROW_IS, c->id, 0 } } };
    uint64_t n = 0;

    if (row_rules_get(db, c, err) < 0 || db->ops->count(db, &users, &n, err) < 0)
        return -1;
    if (n)
        return err_set(err, ERR_EXISTS, "%" PRIu64 " users have the role %s; give them another first", n, c->id);
    return db->ops->remove(db, &role, &n, err);
}

/* The row stays, so that the name is never used again. */
static int tenant_rules_remove_tenant(struct store_db *db, struct store_request *c, struct err *err)
{
    static const struct row_table *const members[] = { &row_user, &row_removed_user, &row_role, &row_script_head,
                                                       &row_secret };
    const struct row_query tenant = { .table = &row_tenant, .where = { { "name", ROW_IS, c->id, 0 } } };
    const struct store_tenant removed = { .removed_ms = c->now_ms };
    uint64_t n = 0;

    if (str_eq(c->id, STORE_LOCAL_TENANT))
        return err_set(err, ERR_DENIED,
                       "the tenant " STORE_LOCAL_TENANT " belongs to the server and cannot be removed");
    if (tenant_rules_check_tenant(db, c->id, err) < 0 ||
        tenant_rules_revoke_keys(db, "owner", c->id, c->now_ms, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct row_query all = { .table = members[i], .where = { { "owner", ROW_IS, c->id, 0 } } };

        if (db->ops->remove(db, &all, &n, err) < 0)
            return -1;
    }
    return db->ops->update(db, &tenant, &removed, STORE_TENANT_SET_REMOVED, NULL, &n, err);
}

int tenant_rules_remove(struct store_db *db, struct store_request *c, struct err *err)
{
    if (c->table == &row_user)
        return tenant_rules_remove_user(db, c, err);
    return c->table == &row_role ? tenant_rules_remove_role(db, c, err) : tenant_rules_remove_tenant(db, c, err);
}

/* --- login --- */

/* Reads at most one row into *ret. */
static int tenant_rules_find(struct store_db *db, const struct row_table *t, struct row_condition a,
                             struct row_condition b, struct row_list *ret, struct err *err)
{
    const struct row_query q = { .table = t, .where = { a, b } };

    return db->ops->select(db, &q, ret, err);
}

/* Fills key: by the hash of the call, or from the user that the call names. */
static int tenant_rules_login_key(struct store_db *db, const struct store_request *c, struct store_key *key,
                                  struct err *err)
{
    const struct row_table *t = c->id ? &row_user : &row_key;
    struct row_list found = { 0 };

    if (tenant_rules_find(db, t,
                          c->id ? (struct row_condition){ "owner", ROW_IS, c->owner, 0 }
                                : (struct row_condition){ "hash", ROW_IS, c->hash, 0 },
                          c->id ? (struct row_condition){ "name", ROW_IS, c->id, 0 } : (struct row_condition){ 0 },
                          &found, err) < 0)
        return -1;
    if (found.n == 0)
        return err_set(err, ERR_MISSING, c->id ? "there is no such user" : "there is no such key");
    if (c->id) {
        const struct store_user *user = (const void *)found.rows;

        memcpy(key->owner, user->owner, sizeof(key->owner));
        memcpy(key->user, user->id, sizeof(key->user));
    } else {
        row_copy(&row_key, key, found.rows);
    }
    row_list_done(t, &found);
    return 0;
}

static int tenant_rules_login_role(struct store_db *db, struct store_login *row, struct err *err)
{
    struct row_list found = { 0 };

    if (role_is_builtin(row->role))
        return 0;
    if (tenant_rules_find(db, &row_role, (struct row_condition){ "owner", ROW_IS, row->key.owner, 0 },
                          (struct row_condition){ "name", ROW_IS, row->role, 0 }, &found, err) < 0)
        return -1;
    if (found.n)
        row->permissions = take_ptr(&((struct store_role *)(void *)found.rows)->permissions);
    row_list_done(&row_role, &found);
    return 0;
}

/* *ret_exists: the key belongs to no user, or to one that exists. */
static int tenant_rules_login_user(struct store_db *db, struct store_login *row, bool *ret_exists, struct err *err)
{
    struct row_list found = { 0 };

    *ret_exists = !row->key.user[0];
    if (*ret_exists)
        return 0;
    if (tenant_rules_find(db, &row_user, (struct row_condition){ "id", ROW_IS, row->key.user, 0 },
                          (struct row_condition){ "owner", ROW_IS, row->key.owner, 0 }, &found, err) < 0)
        return -1;
    *ret_exists = found.n > 0;
    if (found.n) {
        const struct store_user *user = (const void *)found.rows;

        memcpy(row->role, user->role, sizeof(row->role));
        row->disabled = user->disabled;
    }
    row_list_done(&row_user, &found);
    return *ret_exists ? tenant_rules_login_role(db, row, err) : 0;
}

int tenant_rules_login(struct store_db *db, struct store_request *c, struct err *err)
{
    struct store_login *row = row_list_add(c->table, &c->rows);
    struct row_list found = { 0 };
    bool exists = false;

    if (tenant_rules_login_key(db, c, &row->key, err) < 0 || tenant_rules_login_user(db, row, &exists, err) < 0 ||
        tenant_rules_find(db, &row_tenant, (struct row_condition){ "name", ROW_IS, row->key.owner, 0 },
                          (struct row_condition){ 0 }, &found, err) < 0)
        return -1;
    if (found.n) {
        const struct store_tenant *tenant = (const void *)found.rows;

        row->suspended_ms = tenant->suspended_ms;
        row->member = exists && tenant->removed_ms == 0;
    }
    row_list_done(&row_tenant, &found);
    return 0;
}
