/* sqlite.h - what the files of the SQLite backend share. */
#pragma once

#include "core/base/buf.h"
#include "store/backend.h"

#include <sqlite3.h>

#define DB_STATEMENTS 48u

struct sqlite_db {
    sqlite3 *h;
    char *path;
    struct {
        char *sql;
        sqlite3_stmt *st;
    } cache[DB_STATEMENTS];
    size_t next_evict;
    char *reserve_path; /* a file that only occupies disk space */
    bool has_reserve;
};

/* Converts an error code of SQLite. `what` names the operation; it must not contain SQL or file
 * names, because clients may see it. */
int db_set_error(sqlite3 *h, int code, const char *what, struct err *err);

/* Returns a reset statement that the cache owns. NULL with err. */
sqlite3_stmt *db_statement(struct sqlite_db *db, const char *sql, struct err *err);
/* 1 for SQLITE_ROW. 0 for SQLITE_DONE, and the statement is reset. -1 with err, and the
 * statement is reset. */
int db_step(struct sqlite_db *db, sqlite3_stmt *st, const char *what, struct err *err);
int db_exec(sqlite3 *h, const char *sql, const char *what, struct err *err);
/* Reads one number. `sql` has at most one parameter, bound to text unless text is NULL. */
int db_query_u64(struct sqlite_db *db, const char *sql, const char *text, uint64_t *ret, struct err *err);

void db_bind_text(sqlite3_stmt *st, int i, const char *text);
const char *db_column_text(sqlite3_stmt *st, int i); /* "" for NULL; valid until the next step */
void db_bind_u64(sqlite3_stmt *st, int i, uint64_t v);

/* Opens and configures an existing file. */
int db_open_file(const char *path, bool sync_full, sqlite3 **ret, struct err *err);
/* Creates the file (0600) or restricts the mode of the existing one; its directory too (0700). */
int db_prepare_file(const char *path, struct err *err);
int db_sync_dir(const char *path, struct err *err); /* syncs the directory that contains path */

/* sqlite_rows.c */
int db_insert(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_get(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_update(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_read_row(struct store_request *c, sqlite3_stmt *st, struct err *err); /* appends to c->rows */
/* Reads at most one row. 1: it is in c->rows. 0: there is none. */
int db_fetch_row(struct sqlite_db *db, struct store_request *c, sqlite3_stmt *st, const char *what, struct err *err);
int db_put(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_delete(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_idem_claim(struct sqlite_db *db, struct store_request *c, struct err *err);

/* sqlite_lists.c */
struct sql_builder { /* a statement; numbers its parameters in order */
    struct buf text;
    int params;
};
void sql_columns(struct sql_builder *s, const struct row_table *t);
int sql_param(struct sql_builder *s, const char *before); /* returns the parameter's number */
/* Returns the parameter's number, or 0 for any owner. */
int sql_where_owner(struct sql_builder *s, const struct row_table *t, const char *owner);
void sql_where_states(struct sql_builder *s, const struct row_table *t, uint32_t states);
int db_list(struct sqlite_db *db, struct store_request *c, struct err *err);
/* The statement of a list, which the caller frees. *ret_owner: the number of the owner's
 * parameter; 0: any owner. */
char *db_list_sql(const struct store_request *c, int *ret_owner);

/* sqlite_tenants.c */
/* Checks the rows that a new row refers to. */
int db_check_references(struct sqlite_db *db, const struct store_request *c, struct err *err);
int db_user_update(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_remove_tenant_object(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_execution_ages(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_login(struct sqlite_db *db, struct store_request *c, struct err *err);

/* sqlite_usage.c */
int db_insert_with_usage(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_update_with_usage(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_usage_record_cpu(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_usage_add(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_usage_list(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_usage_fold(struct sqlite_db *db, uint64_t before_ms, uint32_t limit, uint64_t *count, struct err *err);
int db_budget_put(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_budget_list(struct sqlite_db *db, struct store_request *c, struct err *err);

/* sqlite_gc.c */
int db_count_all(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_gc(struct sqlite_db *db, struct store_request *c, struct err *err);

/* sqlite_backup.c */
int db_check_step(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_backup_step(struct sqlite_db *db, struct store_request *c, struct err *err);
void db_backup_abandon(struct store_request *c);
int db_restore(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err);
