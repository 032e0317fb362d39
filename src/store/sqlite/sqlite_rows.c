/* Rows in SQLite: the primitive statements of backend.h for every kind of row, built from the row
 * tables.
 *
 * An owner is compared in one place for lists, sql_where_owner(), and in one place for all other
 * statements, sql_where(); the contract suite runs each call with another owner's rows in the same
 * table. States are written as literals, so that SQLite uses the partial indexes that name them. */
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

int db_read_row(const struct row_table *t, sqlite3_stmt *st, struct row_list *ret, struct err *err)
{
    void *row = row_list_add(t, ret);

    for (size_t i = 0; i < t->n; i++)
        if (!db_read_column(st, (int)i, t, &t->columns[i], row)) {
            const struct row_column *key = row_column(t, t->key);

            err_set(err, ERR_STORE_CORRUPT, "the %s '%s' has a %s that cannot be read", t->display_name,
                    key->type == ROW_FIXED ? ROW_CONST_AT(char, row, key) : "?", t->columns[i].name);
            sqlite3_reset(st);
            return -1;
        }
    return 0;
}

int db_read_rows(struct sqlite_db *db, const struct row_table *t, sqlite3_stmt *st, const char *what,
                 struct row_list *ret, struct err *err)
{
    int rc;

    while ((rc = db_step(db, st, what, err)) > 0)
        if (ret && db_read_row(t, st, ret, err) < 0)
            return -1;
    return rc;
}

/* --- conditions --- */

static bool row_condition_applies(const struct row_table *t, const struct row_condition *c)
{
    if (c->test == ROW_OWNED_BY)
        return t->owned && !str_eq(c->value, STORE_ANY_OWNER);
    return c->test != ROW_STATE_IN || c->number;
}

/* The condition is written without a parameter. */
static bool row_condition_is_literal(const struct row_table *t, const struct row_condition *c)
{
    return row_column(t, c->column)->type == ROW_STATE;
}

static void sql_where(struct sql_builder *s, const struct row_query *q)
{
    static const char *const tests[] = { [ROW_IS] = "=", [ROW_IS_NOT] = "<>", [ROW_BELOW] = "<", [ROW_OWNED_BY] = "=" };
    const char *before = " WHERE ";

    for (const struct row_condition *c = q->where; c->column; c++) {
        if (!row_condition_applies(q->table, c))
            continue;
        buf_adds(&s->text, before);
        if (c->test == ROW_STATE_IN)
            sql_state_in(s, q->table, (uint32_t)c->number);
        else if (row_condition_is_literal(q->table, c))
            buf_addf(&s->text, "%s %s '%s'", c->column, tests[c->test], q->table->states[c->number]);
        else
            buf_addf(&s->text, "%s %s ?%d", c->column, tests[c->test], ++s->params);
        before = " AND ";
    }
}

static void db_bind_where(sqlite3_stmt *st, int i, const struct row_query *q)
{
    for (const struct row_condition *c = q->where; c->column; c++) {
        if (!row_condition_applies(q->table, c) || row_condition_is_literal(q->table, c))
            continue;
        switch (row_column(q->table, c->column)->type) {
        case ROW_FIXED:
        case ROW_TEXT:
            db_bind_text(st, ++i, c->value);
            break;
        case ROW_HASH:
            sqlite3_bind_blob(st, ++i, c->value, STORE_HASH_LEN, SQLITE_STATIC);
            break;
        default:
            db_bind_u64(st, ++i, c->number);
        }
    }
}

/* Takes the text of the builder. */
static sqlite3_stmt *sql_prepare(struct sqlite_db *db, struct sql_builder *s, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, s->text.data, err);

    buf_done(&s->text);
    return st;
}

/* --- insert and replace --- */

void sql_insert(struct sql_builder *s, const struct row_table *t)
{
    const char *comma = "";

    buf_addf(&s->text, "INSERT INTO %s (", t->name);
    for (size_t i = 0; i < t->n; i++)
        if (!t->columns[i].is_generated) {
            buf_adds(&s->text, comma);
            buf_adds(&s->text, t->columns[i].name);
            comma = ", ";
        }
    buf_adds(&s->text, ") VALUES (");
    comma = "";
    for (size_t i = 0; i < t->n; i++)
        if (!t->columns[i].is_generated) {
            sql_param(s, comma);
            comma = ", ";
        }
    buf_adds(&s->text, ")");
}

void db_bind_row(sqlite3_stmt *st, const struct row_table *t, const void *row)
{
    int i = 0;

    for (size_t k = 0; k < t->n; k++)
        if (!t->columns[k].is_generated)
            db_bind_column(st, ++i, t, &t->columns[k], row);
}

int db_insert(struct store_db *base, const struct row_table *t, const void *row, uint64_t *ret_seq, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };
    char what[48];

    sql_insert(&s, t);
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_row(st, t, row);
    snprintf(what, sizeof(what), "writing the %s", t->display_name);
    if (db_step(db, st, what, err) < 0)
        return -1;
    if (ret_seq)
        *ret_seq = (uint64_t)sqlite3_last_insert_rowid(db->h);
    return 0;
}

static const char *row_primary_key(const struct row_table *t)
{
    return t->primary_key ? t->primary_key : t->key;
}

int db_insert_missing(struct store_db *base, const struct row_table *t, const void *row, bool *ret_inserted,
                      struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };

    sql_insert(&s, t);
    buf_addf(&s.text, " ON CONFLICT (%s) DO NOTHING", row_primary_key(t));
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_row(st, t, row);
    if (db_step(db, st, "storing a key", err) < 0)
        return -1;
    *ret_inserted = sqlite3_changes(db->h) > 0;
    return 0;
}

/* Columns that a replacement keeps: the name, the creation time, and generated columns. */
static bool db_column_survives_replace(const struct row_table *t, const struct row_column *c)
{
    return c->is_generated || str_eq(c->name, t->key) || str_eq(c->name, "created_ms");
}

int db_replace(struct store_db *base, const struct row_table *t, const void *row, struct row_list *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };
    const char *comma = "";

    sql_insert(&s, t);
    buf_addf(&s.text, " ON CONFLICT (%s) DO UPDATE SET ", row_primary_key(t));
    if (row_column(t, "generation")) {
        buf_adds(&s.text, "generation = generation + 1");
        comma = ", ";
    }
    for (size_t i = 0; i < t->n; i++)
        if (!db_column_survives_replace(t, &t->columns[i])) {
            buf_addf(&s.text, "%s%s = excluded.%s", comma, t->columns[i].name, t->columns[i].name);
            comma = ", ";
        }
    if (ret) {
        buf_adds(&s.text, " RETURNING ");
        sql_columns(&s, t);
    }
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_row(st, t, row);
    return db_read_rows(db, t, st, "writing", ret, err);
}

/* --- select, count, update, remove --- */

int db_select(struct store_db *base, const struct row_query *q, struct row_list *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };

    buf_adds(&s.text, "SELECT ");
    sql_columns(&s, q->table);
    buf_addf(&s.text, " FROM %s", q->table->name);
    sql_where(&s, q);
    if (q->ordered)
        buf_addf(&s.text, " ORDER BY %s", q->table->key);
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_where(st, 0, q);
    return db_read_rows(db, q->table, st, "reading", ret, err);
}

int db_count(struct store_db *base, const struct row_query *q, uint64_t *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };

    buf_addf(&s.text, "SELECT count(*) FROM %s", q->table->name);
    sql_where(&s, q);
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_where(st, 0, q);
    if (db_step(db, st, "counting", err) < 0)
        return -1;
    *ret = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return 0;
}

int db_update(struct store_db *base, const struct row_query *q, const void *row, uint32_t set, struct row_list *ret,
              uint64_t *ret_n, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    const struct row_table *t = q->table;
    struct sql_builder s = { 0 };
    const char *comma = "";
    int i = 0;

    buf_addf(&s.text, "UPDATE %s SET ", t->name);
    for (size_t k = 0; k < t->n; k++)
        if (t->columns[k].set & set) {
            buf_addf(&s.text, "%s%s", comma, t->columns[k].name);
            sql_param(&s, " = ");
            comma = ", ";
        }
    if (t->has_generation)
        buf_addf(&s.text, "%sgeneration = generation + 1", comma);
    sql_where(&s, q);
    if (ret) {
        buf_adds(&s.text, " RETURNING ");
        sql_columns(&s, t);
    }
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    for (size_t k = 0; k < t->n; k++)
        if (t->columns[k].set & set)
            db_bind_column(st, ++i, t, &t->columns[k], row);
    db_bind_where(st, i, q);
    if (db_read_rows(db, t, st, "writing", ret, err) < 0)
        return -1;
    *ret_n = (uint64_t)sqlite3_changes(db->h);
    return 0;
}

int db_remove(struct store_db *base, const struct row_query *q, uint64_t *ret_n, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    struct sql_builder s = { 0 };

    buf_addf(&s.text, "DELETE FROM %s", q->table->name);
    sql_where(&s, q);
    sqlite3_stmt *st = sql_prepare(db, &s, err);
    if (!st)
        return -1;
    db_bind_where(st, 0, q);
    if (db_step(db, st, "removing", err) < 0)
        return -1;
    *ret_n = (uint64_t)sqlite3_changes(db->h);
    return 0;
}
