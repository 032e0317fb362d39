/* Scripts in SQLite: how much a tenant keeps, and which script is evicted. */
#include "store/sqlite/sqlite.h"

#include "core/base/str.h"

#define SUM "SELECT count(*), coalesce(sum(size_bytes), 0) FROM scripts"

int db_sum_scripts(struct store_db *base, const char *owner, uint64_t *ret_count, uint64_t *ret_bytes, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    bool any = str_eq(owner, STORE_ANY_OWNER);
    sqlite3_stmt *st = db_statement(db, any ? SUM : SUM " WHERE owner = ?1", err);

    if (!st)
        return -1;
    if (!any)
        db_bind_text(st, 1, owner);
    if (db_step(db, st, "counting scripts", err) < 0)
        return -1;
    *ret_count = (uint64_t)sqlite3_column_int64(st, 0);
    *ret_bytes = (uint64_t)sqlite3_column_int64(st, 1);
    sqlite3_reset(st);
    return 0;
}

int db_remove_unused_script(struct store_db *base, const char *owner, const char *keep, uint64_t *ret_bytes,
                            uint64_t *ret_n, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    sqlite3_stmt *st = db_statement(db,
                                    "DELETE FROM scripts WHERE id = (SELECT id FROM scripts WHERE owner = ?1"
                                    " AND id <> ?2 ORDER BY last_used_ms, size_bytes LIMIT 1) RETURNING size_bytes",
                                    err);
    int rc;

    if (!st)
        return -1;
    *ret_n = *ret_bytes = 0;
    db_bind_text(st, 1, owner);
    db_bind_text(st, 2, keep);
    while ((rc = db_step(db, st, "removing a script", err)) > 0) {
        *ret_bytes = (uint64_t)sqlite3_column_int64(st, 0);
        *ret_n = 1;
    }
    return rc;
}
