/* Old rows, free space and counts in SQLite. */
#include "store/sqlite/sqlite.h"

#include "core/base/str.h"

#include <stdio.h>

#define VACUUM_PAGES 500
#define VACUUM_PAGES_FULL 100
#define OUTPUT_BYTES "out_bytes1 + out_bytes2 + out_bytes3 - dropped1 - dropped2 - dropped3"
#define EXECUTION_TIME "max(ended_ms, created_ms)"
#define USAGE_KEY "owner, hour_ms, created_by, sandbox"

/* --- retention --- */

/* The parameters are the time and the limit. */
static const char *const remove_statements[] = {
    [STORE_OLD_EXECUTIONS] =
        "DELETE FROM executions WHERE id IN (SELECT id FROM executions WHERE state IN ('ended', 'failed')"
        " AND " EXECUTION_TIME " < ?1 ORDER BY " EXECUTION_TIME " LIMIT ?2) RETURNING id, " OUTPUT_BYTES,
    [STORE_OLD_SANDBOXES] =
        "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE state = 'ended' AND ended_ms < ?1"
        " AND NOT EXISTS (SELECT 1 FROM executions WHERE sandbox = sandboxes.id) ORDER BY ended_ms LIMIT ?2)",
    [STORE_OLD_EVENTS] =
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
    [STORE_OLD_FIRST_EVENTS] =
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < ?1 ORDER BY seq LIMIT ?2)",
    [STORE_OLD_IDEMPOTENCY] = "DELETE FROM idempotency WHERE (owner, key) IN (SELECT owner, key FROM idempotency"
                              " WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
    [STORE_OLD_USAGE] = "DELETE FROM usage WHERE (" USAGE_KEY ") IN (SELECT " USAGE_KEY " FROM usage WHERE hour_ms < ?1"
                        " ORDER BY hour_ms LIMIT ?2)",
    [STORE_OLD_SANDBOX_USAGE] = "DELETE FROM usage WHERE (" USAGE_KEY ") IN (SELECT " USAGE_KEY " FROM usage"
                                " WHERE sandbox <> '' AND hour_ms < ?1 ORDER BY hour_ms, owner, created_by, sandbox"
                                " LIMIT ?2) RETURNING hour_ms, owner, created_by, sandbox, executions, failed, cpu_us,"
                                " execution_ms, output_bytes, sandbox_ms, memory_mib_ms, storage_mib_ms, memory_peak",
    [STORE_OLD_SCRIPTS] = "DELETE FROM scripts WHERE id IN (SELECT id FROM scripts WHERE last_used_ms < ?1 ORDER BY "
                          "last_used_ms LIMIT ?2)",
};

int db_remove_oldest(struct store_db *base, enum store_old kind, uint64_t before_ms, uint32_t limit,
                     struct row_list *ret, uint64_t *ret_n, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    sqlite3_stmt *st = db_statement(db, remove_statements[kind], err);

    if (!st)
        return -1;
    db_bind_u64(st, 1, before_ms);
    db_bind_u64(st, 2, limit);
    if (db_read_rows(db, kind == STORE_OLD_EXECUTIONS ? &row_removed : &row_usage, st, "removing old rows", ret, err) <
        0)
        return -1;
    *ret_n = (uint64_t)sqlite3_changes(db->h);
    return 0;
}

/* In small steps (incremental vacuum). On a full disk inserts are refused until it has space again,
 * so the caller continues until it has. */
int db_reclaim(struct store_db *base, bool *ret_more, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    char sql[64];
    uint64_t unused;

    snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%d)", db->has_reserve ? VACUUM_PAGES : VACUUM_PAGES_FULL);
    if (db_exec(db->h, sql, "returning free space", err) < 0 ||
        db_query_u64(db, "PRAGMA freelist_count", NULL, &unused, err) < 0)
        return -1;
    *ret_more = !db->has_reserve && unused > 0;
    return 0;
}

/* --- figures --- */

int db_count_by_state(struct store_db *base, const struct row_table *t, const char *owner, uint64_t *counts,
                      struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    bool any = str_eq(owner, STORE_ANY_OWNER);
    auto_free char *sql = str_printf("SELECT state, count(*) FROM %s%s GROUP BY state", t->name,
                                     any ? "" : " WHERE owner = ?1");
    sqlite3_stmt *st = db_statement(db, sql, err);
    int rc;

    if (!st)
        return -1;
    if (!any)
        db_bind_text(st, 1, owner);
    while ((rc = db_step(db, st, "counting", err)) > 0)
        for (unsigned i = 0; i < t->nstates; i++)
            if (str_eq(db_column_text(st, 0), t->states[i]))
                counts[i] = (uint64_t)sqlite3_column_int64(st, 1);
    return rc;
}

int db_output_bytes(struct store_db *base, const char *owner, uint64_t *ret, struct err *err)
{
    static const char all[] = "SELECT coalesce(sum(" OUTPUT_BYTES "), 0) FROM executions";
    static const char some[] = "SELECT coalesce(sum(" OUTPUT_BYTES "), 0) FROM executions WHERE owner = ?1";
    bool any = str_eq(owner, STORE_ANY_OWNER);

    return db_query_u64(sqlite_db_of(base), any ? all : some, any ? NULL : owner, ret, err);
}

int db_used_bytes(struct store_db *base, uint64_t *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    uint64_t pages, unused, size;

    if (db_query_u64(db, "PRAGMA page_count", NULL, &pages, err) < 0 ||
        db_query_u64(db, "PRAGMA freelist_count", NULL, &unused, err) < 0 ||
        db_query_u64(db, "PRAGMA page_size", NULL, &size, err) < 0)
        return -1;
    *ret = (pages - unused) * size;
    return 0;
}

int db_execution_ages(struct store_db *base, uint64_t now_ms, struct row_list *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    sqlite3_stmt *st = db_statement(db,
                                    "SELECT owner, max(0, ?1 - created_ms) / 60000 AS minutes, count(*) AS n"
                                    " FROM executions WHERE created_ms > ?1 - 3600000 GROUP BY owner, minutes",
                                    err);

    if (!st)
        return -1;
    db_bind_u64(st, 1, now_ms);
    return db_read_rows(db, &row_age, st, "counting executions", ret, err);
}

/* The last number outlives its row: SQLite keeps it in a separate table. */
int db_event_range(struct store_db *base, uint64_t *first, uint64_t *last, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);

    if (db_query_u64(db, "SELECT seq FROM sqlite_sequence WHERE name = 'events'", NULL, last, err) < 0)
        return -1;
    return db_query_u64(db, "SELECT coalesce(min(seq), 0) FROM events", NULL, first, err);
}
