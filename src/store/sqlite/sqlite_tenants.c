/* Tenants, users and roles in SQLite: rules that involve more than one row.
 *
 * Whether a tenant keeps an admin, whether a role is in use, whether a new row refers to
 * existing rows: each is checked in the transaction of the change, so two requests cannot both
 * pass the check and break the rule. */
#include "store/sqlite/sqlite.h"

#include "core/base/buf.h"
#include "core/base/str.h"
#include "store/tenants.h"

#include <assert.h>
#include <stdio.h>

/* Reads one number, with up to three texts as parameters. */
static int db_query_u64_texts(struct sqlite_db *db, const char *sql, const char *const *texts, uint64_t *ret,
                              struct err *err)
{
    sqlite3_stmt *st = db_statement(db, sql, err);

    if (!st)
        return -1;
    for (int i = 0; texts[i]; i++)
        db_bind_text(st, i + 1, texts[i]);
    int rc = db_step(db, st, "counting", err);
    if (rc < 0)
        return -1;
    *ret = rc ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    sqlite3_reset(st);
    return 0;
}

static int db_exec_texts(struct sqlite_db *db, const char *sql, const char *const *texts, uint64_t at_ms,
                         const char *what, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, sql, err);
    int i = 0;

    if (!st)
        return -1;
    for (; texts[i]; i++)
        db_bind_text(st, i + 1, texts[i]);
    if (at_ms)
        db_bind_u64(st, i + 1, at_ms);
    return db_step(db, st, what, err) < 0 ? -1 : 0;
}

#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* --- references of a new row --- */

static int db_check_tenant(struct sqlite_db *db, const char *name, struct err *err)
{
    uint64_t n = 0;

    if (db_query_u64_texts(db, "SELECT count(*) FROM tenants WHERE name = ?1 AND removed_ms = 0", TEXTS(name), &n,
                           err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no tenant '%s'", name);
}

static int db_check_role(struct sqlite_db *db, const char *owner, const char *role, struct err *err)
{
    uint64_t n = 0;

    for (size_t i = 0; store_builtin_roles[i]; i++)
        if (str_eq(role, store_builtin_roles[i]))
            return 0;
    if (db_query_u64_texts(db, "SELECT count(*) FROM roles WHERE owner = ?1 AND name = ?2", TEXTS(owner, role), &n,
                           err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no role '%.64s'", role);
}

static int db_check_user(struct sqlite_db *db, const struct store_key *key, struct err *err)
{
    uint64_t n = 0;

    if (!key->user[0])
        return 0;
    if (db_query_u64_texts(db, "SELECT count(*) FROM users WHERE id = ?1 AND owner = ?2", TEXTS(key->user, key->owner),
                           &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no user '%s'", key->user);
}

/* A removed user does not come back by itself; when an admin adds the user again, the removal is
 * lifted. */
static int db_check_removed_user(struct sqlite_db *db, const struct store_user *user, bool vouched, struct err *err)
{
    uint64_t n = 0;

    if (!vouched)
        return db_exec_texts(db, "DELETE FROM removed_users WHERE owner = ?1 AND name = ?2",
                             TEXTS(user->owner, user->name), 0, "adding a user", err);
    if (db_query_u64_texts(db, "SELECT count(*) FROM removed_users WHERE owner = ?1 AND name = ?2",
                           TEXTS(user->owner, user->name), &n, err) < 0)
        return -1;
    return n ? err_set(err, ERR_USER_REMOVED, "%.64s was removed from the tenant %s", user->name, user->owner) : 0;
}

int db_check_references(struct sqlite_db *db, const struct store_request *c, struct err *err)
{
    if (c->table == &row_key) {
        const struct store_key *key = c->row;

        return db_check_tenant(db, key->owner, err) < 0 ? -1 : db_check_user(db, key, err);
    }
    if (c->table == &row_user) {
        const struct store_user *user = c->row;

        if (db_check_tenant(db, user->owner, err) < 0 || db_check_role(db, user->owner, user->role, err) < 0)
            return -1;
        return db_check_removed_user(db, user, c->from_identity_provider, err);
    }
    if (c->table == &row_role)
        return db_check_tenant(db, ((const struct store_role *)c->row)->owner, err);
    return 0;
}

/* --- users --- */

/* The user of a call; c->rows is left empty. */
static int db_find_user(struct sqlite_db *db, struct store_request *c, struct store_user *ret, struct err *err)
{
    if (db_get(db, c, err) < 0)
        return -1;
    *ret = *(const struct store_user *)(const void *)c->rows.rows;
    row_list_done(c->table, &c->rows);
    return 0;
}

static int db_check_last_admin(struct sqlite_db *db, const struct store_user *user, struct err *err)
{
    uint64_t n = 0;

    if (user->disabled || !str_eq(user->role, store_builtin_roles[0]))
        return 0; /* the user was not an enabled admin */
    if (db_query_u64_texts(db,
                           "SELECT count(*) FROM users WHERE owner = ?1 AND id <> ?2 AND role = ?3 AND disabled = 0",
                           TEXTS(user->owner, user->id, store_builtin_roles[0]), &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_LAST_ADMIN, "%s is the last admin of the tenant %s", user->name, user->owner);
}

int db_user_update(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    const struct store_user *to = c->row;
    struct store_user was;

    assert(to); /* a call without its row was rejected before */
    if (db_find_user(db, c, &was, err) < 0)
        return -1;
    if ((c->set & STORE_USER_SET_ROLE) && db_check_role(db, was.owner, to->role, err) < 0)
        return -1;
    bool stays = (!(c->set & STORE_USER_SET_ROLE) || str_eq(to->role, store_builtin_roles[0])) &&
                 (!(c->set & STORE_USER_SET_DISABLED) || !to->disabled);
    if (c->keep_admin && !stays && db_check_last_admin(db, &was, err) < 0)
        return -1;
    return db_update(db, c, err);
}

static int db_remove_user(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct store_user user;

    if (db_find_user(db, c, &user, err) < 0 || (c->keep_admin && db_check_last_admin(db, &user, err) < 0) ||
        db_exec_texts(db, "UPDATE keys SET revoked_ms = ?2 WHERE user = ?1 AND revoked_ms = 0", TEXTS(user.id),
                      c->after, "revoking the keys of a user", err) < 0 ||
        db_exec_texts(db, "INSERT OR REPLACE INTO removed_users (owner, name, removed_ms) VALUES (?1, ?2, ?3)",
                      TEXTS(user.owner, user.name), c->after, "removing a user", err) < 0)
        return -1;
    return db_exec_texts(db, "DELETE FROM users WHERE id = ?1", TEXTS(user.id), 0, "removing a user", err);
}

/* --- roles --- */

static int db_remove_role(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    uint64_t n = 0;

    if (db_get(db, c, err) < 0 || db_query_u64_texts(db, "SELECT count(*) FROM users WHERE owner = ?1 AND role = ?2",
                                                     TEXTS(c->owner, c->id), &n, err) < 0)
        return -1;
    if (n)
        return err_set(err, ERR_EXISTS, "%" PRIu64 " users have the role %s; give them another first", n, c->id);
    return db_exec_texts(db, "DELETE FROM roles WHERE owner = ?1 AND name = ?2", TEXTS(c->owner, c->id), 0,
                         "removing a role", err);
}

/* --- tenants --- */

static int db_remove_tenant(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    if (str_eq(c->id, STORE_LOCAL_TENANT))
        return err_set(err, ERR_DENIED,
                       "the tenant " STORE_LOCAL_TENANT " belongs to the server and cannot be removed");
    if (db_check_tenant(db, c->id, err) < 0 ||
        db_exec_texts(db, "UPDATE keys SET revoked_ms = ?2 WHERE owner = ?1 AND revoked_ms = 0", TEXTS(c->id), c->after,
                      "revoking the keys of a tenant", err) < 0 ||
        db_exec_texts(db, "DELETE FROM users WHERE owner = ?1", TEXTS(c->id), 0, "removing the users of a tenant",
                      err) < 0 ||
        db_exec_texts(db, "DELETE FROM removed_users WHERE owner = ?1", TEXTS(c->id), 0,
                      "removing the users of a tenant", err) < 0 ||
        db_exec_texts(db, "DELETE FROM roles WHERE owner = ?1", TEXTS(c->id), 0, "removing the roles of a tenant",
                      err) < 0)
        return -1;
    return db_exec_texts(db, "UPDATE tenants SET removed_ms = ?2 WHERE name = ?1", TEXTS(c->id), c->after,
                         "removing a tenant", err);
}

int db_remove_tenant_object(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    if (c->table == &row_user)
        return db_remove_user(db, c, err);
    return c->table == &row_role ? db_remove_role(db, c, err) : db_remove_tenant(db, c, err);
}

/* --- counts --- */

int db_execution_ages(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    sqlite3_stmt *st = db_statement(db,
                                    "SELECT owner, max(0, ?1 - created_ms) / 60000 AS minutes, count(*) AS n"
                                    " FROM executions WHERE created_ms > ?1 - 3600000 GROUP BY owner, minutes",
                                    err);
    int rc;

    if (!st)
        return -1;
    db_bind_u64(st, 1, c->after);
    while ((rc = db_step(db, st, "counting executions", err)) > 0)
        if (db_read_row(c, st, err) < 0)
            return -1;
    return rc;
}

/* --- login --- */

#define JOINED \
    " LEFT JOIN roles r ON r.owner = k.owner AND r.name = u.role LEFT JOIN tenants t ON t.name = k.owner WHERE "

int db_login(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    auto_buf sql = { 0 };

    buf_adds(&sql, "SELECT ");
    for (size_t i = 0; i < c->table->n; i++)
        buf_addf(&sql, "%s%s", i ? ", " : "", c->table->columns[i].name);
    if (c->id) /* login by name: a user, in place of a key without other fields */
        buf_adds(&sql,
                 " FROM (SELECT NULL AS id, owner, id AS user, NULL AS name, NULL AS prefix, zeroblob(32) AS hash,"
                 " NULL AS scopes, 0 AS created_ms, 0 AS expires_ms, 0 AS last_used_ms, 0 AS revoked_ms"
                 " FROM users WHERE owner = ?1 AND name = ?2) k JOIN users u ON u.id = k.user" JOINED "1");
    else
        buf_adds(&sql, " FROM keys k LEFT JOIN users u ON u.id = k.user AND u.owner = k.owner" JOINED "k.hash = ?1");
    sqlite3_stmt *st = db_statement(db, sql.data, err);
    if (!st)
        return -1;
    if (c->id) {
        db_bind_text(st, 1, c->owner);
        db_bind_text(st, 2, c->id);
    } else {
        sqlite3_bind_blob(st, 1, c->hash, STORE_HASH_LEN, SQLITE_STATIC);
    }
    int rc = db_fetch_row(db, c, st, "reading a key", err);
    if (rc == 0)
        return err_set(err, ERR_MISSING, c->id ? "there is no such user" : "there is no such key");
    return rc < 0 ? -1 : 0;
}
