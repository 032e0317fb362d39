/* Rows in SQLite: one insert, get, update and list for every kind, built from the tables of
 * rows.c.
 *
 * The owner's WHERE is added in one place, `sql_where_owner`, and by every statement that reads
 * or changes owned rows; the contract suite runs each call with another owner's rows in the same
 * table. A conditional update is one statement that returns the updated row; only when it
 * returned nothing does a second statement find out why. */
#include "store/sqlite/sqlite.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

/* --- between structs and statements --- */

static void db_bind_column(sqlite3_stmt *st, int i, const struct row_table *t, const struct row_column *c,
                           const void *row)
{
    const char *fixed = ROW_CONST_AT(char, row, c);

    switch (c->type) {
    case ROW_FIXED:
        db_bind_text(st, i, c->optional && !*fixed ? NULL : fixed);
        break;
    case ROW_TEXT:
        db_bind_text(st, i, *ROW_CONST_AT(char *, row, c));
        break;
    case ROW_U64:
        db_bind_u64(st, i, *ROW_CONST_AT(uint64_t, row, c));
        break;
    case ROW_I32:
        sqlite3_bind_int(st, i, *ROW_CONST_AT(int32_t, row, c));
        break;
    case ROW_I32_OPT:
        if (*((const char *)row + c->flag_at))
            sqlite3_bind_int(st, i, *ROW_CONST_AT(int32_t, row, c));
        else
            sqlite3_bind_null(st, i);
        break;
    case ROW_BOOL:
        sqlite3_bind_int(st, i, *ROW_CONST_AT(bool, row, c));
        break;
    case ROW_STATE:
        db_bind_text(st, i, t->states[*ROW_CONST_AT(unsigned, row, c)]);
        break;
    case ROW_HASH:
        sqlite3_bind_blob(st, i, ROW_CONST_AT(uint8_t, row, c), STORE_HASH_LEN, SQLITE_STATIC);
        break;
    }
}

static bool db_read_state(const struct row_table *t, const char *word, unsigned *ret)
{
    for (unsigned i = 0; word && i < t->nstates; i++)
        if (str_eq(word, t->states[i])) {
            *ret = i;
            return true;
        }
    return false;
}

static bool db_read_column(sqlite3_stmt *st, int i, const struct row_table *t, const struct row_column *c, void *row)
{
    const char *text = c->type == ROW_FIXED || c->type == ROW_TEXT || c->type == ROW_STATE
                           ? (const char *)sqlite3_column_text(st, i)
                           : NULL;

    switch (c->type) {
    case ROW_FIXED:
        return str_copy(ROW_AT(char, row, c), c->cap, text ? text : "");
    case ROW_TEXT:
        *ROW_AT(char *, row, c) = text ? str_dup(text) : NULL;
        return true;
    case ROW_U64:
        *ROW_AT(uint64_t, row, c) = (uint64_t)sqlite3_column_int64(st, i);
        return true;
    case ROW_I32:
        *ROW_AT(int32_t, row, c) = sqlite3_column_int(st, i);
        return true;
    case ROW_I32_OPT:
        *(bool *)((char *)row + c->flag_at) = sqlite3_column_type(st, i) != SQLITE_NULL;
        *ROW_AT(int32_t, row, c) = sqlite3_column_int(st, i);
        return true;
    case ROW_BOOL:
        *ROW_AT(bool, row, c) = sqlite3_column_int(st, i) != 0;
        return true;
    case ROW_STATE:
        return db_read_state(t, text, ROW_AT(unsigned, row, c));
    case ROW_HASH:
        if (sqlite3_column_bytes(st, i) != STORE_HASH_LEN)
            return false;
        memcpy(ROW_AT(uint8_t, row, c), sqlite3_column_blob(st, i), STORE_HASH_LEN);
        return true;
    }
    return false;
}

int db_read_row(struct store_request *c, sqlite3_stmt *st, struct err *err)
{
    void *row = row_list_add(c->table, &c->rows);

    for (size_t i = 0; i < c->table->n; i++)
        if (!db_read_column(st, (int)i, c->table, &c->table->columns[i], row)) {
            const struct row_column *key = row_column(c->table, c->table->key);

            err_set(err, ERR_STORE_CORRUPT, "the %s '%s' has a %s that cannot be read", c->table->display_name,
                    key->type == ROW_FIXED ? ROW_CONST_AT(char, row, key) : "?", c->table->columns[i].name);
            sqlite3_reset(st);
            return -1;
        }
    return 0;
}

int db_fetch_row(struct sqlite_db *db, struct store_request *c, sqlite3_stmt *st, const char *what, struct err *err)
{
    int rc = db_step(db, st, what, err);

    if (rc <= 0)
        return rc;
    if (db_read_row(c, st, err) < 0)
        return -1;
    return db_step(db, st, what, err) < 0 ? -1 : 1; /* step to the end: only then is a change complete */
}

/* --- names of sandboxes --- */

/* The index sandboxes_living_names enforces the rule; this gives the message. It does not contain
 * the id, because the token of one sandbox may ask for the name of another. */
static int db_check_sandbox_name(struct sqlite_db *db, const struct store_request *c, const char *owner,
                                 struct err *err)
{
    const struct store_sandbox *sb = c->row;
    sqlite3_stmt *st;

    if (c->table != &row_sandbox || !sb->name || sb->state == STORE_SANDBOX_ENDED)
        return 0;
    st = db_statement(db, "SELECT id FROM sandboxes WHERE owner = ?1 AND name = ?2 AND state <> 'ended' AND id <> ?3",
                      err);
    if (!st)
        return -1;
    db_bind_text(st, 1, owner);
    db_bind_text(st, 2, sb->name);
    db_bind_text(st, 3, sb->id);
    int rc = db_step(db, st, "looking for the name", err);
    if (rc > 0)
        err_set(err, ERR_EXISTS, "name '%.63s': another living sandbox has it; choose another, or end that sandbox",
                sb->name);
    sqlite3_reset(st);
    return rc == 0 ? 0 : -1;
}

/* --- insert --- */

static int db_check_before_insert(struct sqlite_db *db, const struct store_request *c, struct err *err)
{
    uint64_t n = 0;

    if (db_check_references(db, c, err) < 0)
        return -1;
    if (c->table == &row_sandbox &&
        db_check_sandbox_name(db, c, ((const struct store_sandbox *)c->row)->owner, err) < 0)
        return -1;
    if (c->live_max) {
        const struct store_sandbox *sb = c->row;

        if (db_query_u64(db, "SELECT count(*) FROM sandboxes WHERE owner = ?1 AND state <> 'ended'", sb->owner, &n,
                         err) < 0)
            return -1;
        if (n >= c->live_max)
            return err_set(err, ERR_LIMIT, "there are %" PRIu64 " sandboxes already, and the limit is %u", n,
                           c->live_max);
    }
    if (c->only_if_no_keys) {
        if (db_query_u64(db, "SELECT count(*) FROM keys", NULL, &n, err) < 0)
            return -1;
        if (n > 0)
            return err_set(err, ERR_EXISTS, "there is a key already");
    }
    if (c->table == &row_execution) {
        const struct store_execution *ex = c->row;
        sqlite3_stmt *st = db_statement(db, "SELECT 1 FROM sandboxes WHERE id = ?1 AND owner = ?2", err);

        if (!st)
            return -1;
        db_bind_text(st, 1, ex->sandbox);
        db_bind_text(st, 2, ex->owner);
        int rc = db_step(db, st, "looking for the sandbox", err);
        sqlite3_reset(st);
        if (rc <= 0)
            return rc < 0 ? -1 : err_set(err, ERR_MISSING, "there is no sandbox %s", ex->sandbox);
    }
    return 0;
}

static sqlite3_stmt *db_insert_statement(struct sqlite_db *db, const struct row_table *t, const void *row,
                                         const char *tail, struct err *err)
{
    struct sql_builder s = { 0 };
    const char *comma = "";
    int i = 0;

    buf_addf(&s.text, "INSERT INTO %s (", t->name);
    for (size_t k = 0; k < t->n; k++)
        if (!t->columns[k].is_generated) {
            buf_addf(&s.text, "%s%s", comma, t->columns[k].name);
            comma = ", ";
        }
    buf_adds(&s.text, ") VALUES (");
    comma = "";
    for (size_t k = 0; k < t->n; k++)
        if (!t->columns[k].is_generated) {
            sql_param(&s, comma);
            comma = ", ";
        }
    buf_addf(&s.text, ")%s", tail);
    sqlite3_stmt *st = db_statement(db, s.text.data, err);
    buf_done(&s.text);
    for (size_t k = 0; st && k < t->n; k++)
        if (!t->columns[k].is_generated)
            db_bind_column(st, ++i, t, &t->columns[k], row);
    return st;
}

int db_insert(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    char what[48];

    if (db_check_before_insert(db, c, err) < 0)
        return -1;
    sqlite3_stmt *st = db_insert_statement(db, c->table, c->row, "", err);
    snprintf(what, sizeof(what), "writing the %s", c->table->display_name);
    if (!st || db_step(db, st, what, err) < 0)
        return -1;
    c->seq = (uint64_t)sqlite3_last_insert_rowid(db->h);
    return 0;
}

/* --- get --- */

static int db_not_found_error(const struct store_request *c, struct err *err)
{
    char name[64];

    snprintf(name, sizeof(name), "%s", c->id ? c->id : "");
    str_strip_control_chars(name);
    return err_set(err, ERR_MISSING, "there is no %s '%s'", c->table->display_name, name);
}

int db_get(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct sql_builder s = { 0 };

    buf_adds(&s.text, "SELECT ");
    sql_columns(&s, c->table);
    buf_addf(&s.text, " FROM %s WHERE %s = ?%d", c->table->name, c->table->key, ++s.params);
    int owner = sql_where_owner(&s, c->table, c->owner);
    sqlite3_stmt *st = db_statement(db, s.text.data, err);
    buf_done(&s.text);
    if (!st)
        return -1;
    db_bind_text(st, 1, c->id);
    if (owner)
        db_bind_text(st, owner, c->owner);
    int rc = db_fetch_row(db, c, st, "reading", err);
    return rc == 0 ? db_not_found_error(c, err) : rc < 0 ? -1 : 0;
}

/* --- update --- */

/* Nothing was changed: either the row does not exist, or it does not meet `when`. */
static int db_unchanged_error(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    if (db_get(db, c, err) < 0)
        return -1;
    const struct row_column *state = row_column(c->table, "state");
    const char *now = state ? c->table->states[*ROW_CONST_AT(unsigned, c->rows.rows, state)] : NULL;
    if (now && c->condition.states && !(c->condition.states & STORE_BIT(*ROW_CONST_AT(unsigned, c->rows.rows, state))))
        return err_set(err, ERR_EXISTS, "the %s %s is %s", c->table->display_name, c->id, now);
    return err_set(err, ERR_EXISTS, "the %s %s was changed meanwhile; read it again", c->table->display_name, c->id);
}

static void sql_update(struct sql_builder *s, const struct store_request *c)
{
    const char *comma = "";

    buf_addf(&s->text, "UPDATE %s SET ", c->table->name);
    for (size_t i = 0; i < c->table->n; i++)
        if (c->table->columns[i].set & c->set) {
            buf_addf(&s->text, "%s%s", comma, c->table->columns[i].name);
            sql_param(s, " = ");
            comma = ", ";
        }
    if (c->table->has_generation)
        buf_addf(&s->text, "%sgeneration = generation + 1", comma);
    buf_addf(&s->text, " WHERE %s", c->table->key);
    sql_param(s, " = ");
}

int db_update(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct sql_builder s = { 0 };
    int i = 0;

    if (!c->set)
        return err_set(err, ERR_BUG, "an update without columns");
    if (c->set & STORE_SANDBOX_SET_NAME && db_check_sandbox_name(db, c, c->owner, err) < 0)
        return -1;
    sql_update(&s, c);
    int owner = sql_where_owner(&s, c->table, c->owner);
    sql_where_states(&s, c->table, c->condition.states);
    int generation = c->condition.generation ? sql_param(&s, " AND generation = ") : 0;
    buf_adds(&s.text, " RETURNING ");
    sql_columns(&s, c->table);
    sqlite3_stmt *st = db_statement(db, s.text.data, err);
    buf_done(&s.text);
    if (!st)
        return -1;
    for (size_t k = 0; k < c->table->n; k++)
        if (c->table->columns[k].set & c->set)
            db_bind_column(st, ++i, c->table, &c->table->columns[k], c->row);
    db_bind_text(st, ++i, c->id);
    if (owner)
        db_bind_text(st, owner, c->owner);
    if (generation)
        db_bind_u64(st, generation, c->condition.generation);
    int rc = db_fetch_row(db, c, st, "writing", err);
    return rc == 0 ? db_unchanged_error(db, c, err) : rc < 0 ? -1 : 0;
}

/* Columns that a replacement keeps: the name, the creation time, and generated columns. */
static bool db_column_survives_put(const struct row_table *t, const struct row_column *c)
{
    return c->is_generated || str_eq(c->name, t->key) || str_eq(c->name, "created_ms");
}

int db_put(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct sql_builder tail = { 0 };

    free(c->id);
    c->id = str_dup(ROW_CONST_AT(char, c->row, row_column(c->table, c->table->key)));
    if (c->condition.generation) { /* the row must exist and have this generation */
        if (db_get(db, c, err) < 0)
            return -1;
        if (*ROW_CONST_AT(uint64_t, c->rows.rows, row_column(c->table, "generation")) != c->condition.generation)
            return err_set(err, ERR_EXISTS, "the %s %s was changed meanwhile; read it again", c->table->display_name,
                           c->id);
        row_list_done(c->table, &c->rows);
    }
    buf_addf(&tail.text, " ON CONFLICT (%s) DO UPDATE SET generation = generation + 1", c->table->key);
    for (size_t i = 0; i < c->table->n; i++)
        if (!db_column_survives_put(c->table, &c->table->columns[i]))
            buf_addf(&tail.text, ", %s = excluded.%s", c->table->columns[i].name, c->table->columns[i].name);
    buf_adds(&tail.text, " RETURNING ");
    sql_columns(&tail, c->table);
    sqlite3_stmt *st = db_insert_statement(db, c->table, c->row, tail.text.data, err);
    buf_done(&tail.text);
    return st && db_fetch_row(db, c, st, "writing", err) > 0 ? 0 : -1;
}

static int db_check_template_unused(struct sqlite_db *db, const char *name, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, "SELECT name FROM pools WHERE template = ?1 ORDER BY name LIMIT 1", err);

    if (!st)
        return -1;
    db_bind_text(st, 1, name);
    int rc = db_step(db, st, "looking for pools", err);
    if (rc > 0) {
        err_set(err, ERR_TEMPLATE_USED, "the template %s is used by the pool %s", name, db_column_text(st, 0));
        sqlite3_reset(st);
    }
    return rc == 0 ? 0 : -1;
}

int db_delete(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    char sql[96];

    if (c->table == &row_template && db_check_template_unused(db, c->id, err) < 0)
        return -1;
    snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s = ?1 AND (?2 = 0 OR generation = ?2)", c->table->name,
             c->table->key);
    sqlite3_stmt *st = db_statement(db, sql, err);
    if (!st)
        return -1;
    db_bind_text(st, 1, c->id);
    db_bind_u64(st, 2, c->condition.generation);
    if (db_step(db, st, "removing", err) < 0)
        return -1;
    return sqlite3_changes(db->h) > 0 ? 0 : db_unchanged_error(db, c, err);
}

/* The first row stays; a repeated request gets that row. */
int db_idem_claim(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    const struct store_idem *row = c->row;
    sqlite3_stmt *st = db_insert_statement(db, c->table, row, " ON CONFLICT (owner, key) DO NOTHING", err);

    if (!st || db_step(db, st, "storing an idempotency key", err) < 0)
        return -1;
    c->row_created = sqlite3_changes(db->h) > 0;
    free(c->id);
    c->id = str_dup(row->key);
    str_copy(c->owner, sizeof(c->owner), row->owner);
    return db_get(db, c, err);
}
