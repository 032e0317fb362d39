/* sqlite.h - what the files of the SQLite backend share. */
#pragma once

#include "core/base/buf.h"
#include "store/backend.h"

#include <sqlite3.h>

#define DB_STATEMENTS 64u

struct sqlite_db {
    struct store_db base;
    sqlite3 *h;
    char *path;
    struct {
        char *sql;
        sqlite3_stmt *st;
    } cache[DB_STATEMENTS];
    size_t next_evict;
    char *add_usage_sql; /* built once: every end of an execution runs it */
    char *reserve_path;  /* a file that only occupies disk space */
    bool has_reserve;
};

static inline struct sqlite_db *sqlite_db_of(struct store_db *base)
{
    return (struct sqlite_db *)(void *)base;
}

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

/* sqlite_lists.c */
struct sql_builder { /* a statement; numbers its parameters in order */
    struct buf text;
    int params;
};
void sql_columns(struct sql_builder *s, const struct row_table *t);
int sql_param(struct sql_builder *s, const char *before); /* returns the parameter's number */
void sql_state_in(struct sql_builder *s, const struct row_table *t, uint32_t states);
/* The statement of a list, which the caller frees. *ret_owner: the number of the owner's
 * parameter; 0: any owner. */
char *db_list_sql(const struct row_page *page, int *ret_owner);

/* sqlite_rows.c */
void sql_insert(struct sql_builder *s, const struct row_table *t);
void db_bind_row(sqlite3_stmt *st, const struct row_table *t, const void *row); /* to the parameters of sql_insert() */
/* Appends the row that the statement is at. */
int db_read_row(const struct row_table *t, sqlite3_stmt *st, struct row_list *ret, struct err *err);
/* Steps to the end: only then is a change complete. ret NULL: the rows are not read. */
int db_read_rows(struct sqlite_db *db, const struct row_table *t, sqlite3_stmt *st, const char *what,
                 struct row_list *ret, struct err *err);

/* Statements of backend.h: rows and lists, usage, retention and figures. */
int db_insert(struct store_db *base, const struct row_table *t, const void *row, uint64_t *ret_seq, struct err *err);
int db_insert_missing(struct store_db *base, const struct row_table *t, const void *row, bool *ret_inserted,
                      struct err *err);
int db_replace(struct store_db *base, const struct row_table *t, const void *row, struct row_list *ret,
               struct err *err);
int db_select(struct store_db *base, const struct row_query *q, struct row_list *ret, struct err *err);
int db_count(struct store_db *base, const struct row_query *q, uint64_t *ret, struct err *err);
int db_update(struct store_db *base, const struct row_query *q, const void *row, uint32_t set, struct row_list *ret,
              uint64_t *ret_n, struct err *err);
int db_remove(struct store_db *base, const struct row_query *q, uint64_t *ret_n, struct err *err);
int db_list(struct store_db *base, const struct row_page *page, struct row_list *ret, struct err *err);
int db_add_usage(struct store_db *base, const struct store_usage *u, struct err *err);
int db_sum_usage(struct store_db *base, const struct usage_filter *f, uint32_t limit, struct row_list *ret,
                 struct err *err);
int db_remove_oldest(struct store_db *base, enum store_old kind, uint64_t before_ms, uint32_t limit,
                     struct row_list *ret, uint64_t *ret_n, struct err *err);
int db_reclaim(struct store_db *base, bool *ret_more, struct err *err);
int db_count_by_state(struct store_db *base, const struct row_table *t, const char *owner, uint64_t *counts,
                      struct err *err);
int db_output_bytes(struct store_db *base, const char *owner, uint64_t *ret, struct err *err);
int db_used_bytes(struct store_db *base, uint64_t *ret, struct err *err);
int db_execution_ages(struct store_db *base, uint64_t now_ms, struct row_list *ret, struct err *err);
int db_event_range(struct store_db *base, uint64_t *first, uint64_t *last, struct err *err);
int db_sum_scripts(struct store_db *base, const char *owner, uint64_t *ret_count, uint64_t *ret_bytes, struct err *err);
int db_remove_unused_script(struct store_db *base, const char *owner, const char *keep, uint64_t *ret_bytes,
                            uint64_t *ret_n, struct err *err);

/* sqlite_backup.c */
int db_check_step(struct sqlite_db *db, struct store_request *c, struct err *err);
int db_backup_step(struct sqlite_db *db, struct store_request *c, struct err *err);
void db_backup_abandon(struct store_request *c);
int db_restore(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err);
