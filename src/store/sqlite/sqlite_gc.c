/* Counting and retention.
 *
 * Retention removes the oldest rows first and stops after STORE_GC_BATCH rows, so other calls
 * never wait long. It runs in a savepoint: if it were interrupted, executions would be removed
 * without a report of their output files. It also returns free pages to the file system in small
 * steps (incremental vacuum). */
#include "store/sqlite/sqlite.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define VACUUM_PAGES 500
#define VACUUM_PAGES_FULL 100
#define KEPT "out_bytes1 + out_bytes2 + out_bytes3 - dropped1 - dropped2 - dropped3"
#define OLD_EXECUTIONS "state IN ('ended', 'failed')"
#define EXECUTION_TIME "max(ended_ms, created_ms)"
#define REMOVE_SANDBOXES                                                                                  \
    "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE state = 'ended' AND ended_ms < ?1" \
    " AND NOT EXISTS (SELECT 1 FROM executions WHERE sandbox = sandboxes.id) ORDER BY ended_ms LIMIT ?2)"

static int db_count_states(struct sqlite_db *db, const struct row_table *t, const char *owner, uint64_t *counts,
                           struct err *err)
{
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

static int db_count_rows(struct sqlite_db *db, const char *what, const char *from, const char *owner, uint64_t *ret,
                         struct err *err)
{
    bool any = str_eq(owner, STORE_ANY_OWNER);
    auto_free char *sql = str_printf("SELECT %s FROM %s%s", what, from, any ? "" : " AND owner = ?1");

    return db_query_u64(db, sql, any ? NULL : owner, ret, err);
}

static int db_used_bytes(struct sqlite_db *db, uint64_t *ret, struct err *err)
{
    uint64_t pages, unused, size;

    if (db_query_u64(db, "PRAGMA page_count", NULL, &pages, err) < 0 ||
        db_query_u64(db, "PRAGMA freelist_count", NULL, &unused, err) < 0 ||
        db_query_u64(db, "PRAGMA page_size", NULL, &size, err) < 0)
        return -1;
    *ret = (pages - unused) * size;
    return 0;
}

int db_count_all(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct store_counts *n = &c->counts;

    if (db_count_states(db, &row_sandbox, c->owner, n->sandboxes, err) < 0 ||
        db_count_states(db, &row_execution, c->owner, n->executions, err) < 0 ||
        db_count_rows(db, "count(*)", "keys WHERE revoked_ms = 0", c->owner, &n->keys, err) < 0 ||
        db_count_rows(db, "count(*)", "events WHERE 1", c->owner, &n->events, err) < 0 ||
        db_count_rows(db, "coalesce(sum(" KEPT "), 0)", "executions WHERE 1", c->owner, &n->output_bytes, err) < 0 ||
        db_query_u64(db, "SELECT count(*) FROM templates", NULL, &n->templates, err) < 0)
        return -1;
    return db_used_bytes(db, &n->db_bytes, err);
}

/* --- retention --- */

static uint32_t db_gc_rows_left(const struct store_request *c)
{
    uint64_t gone = c->gc.nexecutions + c->gc.sandboxes + c->gc.events + c->gc.idem + c->gc.usage;

    return gone >= c->limit ? 0 : (uint32_t)(c->limit - gone);
}

/* Runs a DELETE with the parameters time and limit, and adds the number of removed rows to
 * *count. */
static int db_gc_remove_older(struct sqlite_db *db, const char *sql, uint64_t before, uint32_t limit, uint64_t *count,
                              struct err *err)
{
    if (before == 0 || limit == 0)
        return 0;
    sqlite3_stmt *st = db_statement(db, sql, err);
    if (!st)
        return -1;
    db_bind_u64(st, 1, min_u64(before, INT64_MAX));
    db_bind_u64(st, 2, limit);
    if (db_step(db, st, "removing old rows", err) < 0)
        return -1;
    *count += (uint64_t)sqlite3_changes(db->h);
    return 0;
}

/* Removes the oldest executions that ended before a time; adds the size of their stored output
 * to *kept. */
static int db_gc_remove_executions(struct sqlite_db *db, struct store_request *c, uint64_t before, uint32_t limit,
                                   uint64_t *kept, struct err *err)
{
    sqlite3_stmt *st = db_statement(
        db,
        "DELETE FROM executions WHERE id IN (SELECT id FROM executions WHERE " OLD_EXECUTIONS " AND " EXECUTION_TIME
        " < ?1 ORDER BY " EXECUTION_TIME " LIMIT ?2) RETURNING id, " KEPT,
        err);
    int rc;

    if (!st)
        return -1;
    db_bind_u64(st, 1, min_u64(before, INT64_MAX));
    db_bind_u64(st, 2, limit);
    while ((rc = db_step(db, st, "removing old executions", err)) > 0) {
        char *id = c->removed[c->gc.nexecutions];

        if (str_copy(id, ID_SIZE, db_column_text(st, 0)))
            c->gc.nexecutions++;
        *kept += (uint64_t)sqlite3_column_int64(st, 1);
        c->gc.output_bytes += (uint64_t)sqlite3_column_int64(st, 1);
    }
    return rc;
}

static int db_gc_bound_output(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    uint64_t sum;

    if (c->retention.output_bytes_max == 0)
        return 0;
    if (db_query_u64(db, "SELECT coalesce(sum(" KEPT "), 0) FROM executions", NULL, &sum, err) < 0)
        return -1;
    while (sum > c->retention.output_bytes_max && db_gc_rows_left(c) > 0) {
        uint64_t kept = 0;
        size_t before = c->gc.nexecutions;

        if (db_gc_remove_executions(db, c, INT64_MAX, 1, &kept, err) < 0)
            return -1;
        if (c->gc.nexecutions == before)
            return 0; /* the other executions are live */
        sum -= min_u64(sum, kept);
    }
    return 0;
}

static int db_gc_bound_size(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    uint64_t used, kept = 0;

    if (c->retention.db_bytes_max == 0)
        return 0;
    while (db_gc_rows_left(c) > 0) {
        uint32_t before = db_gc_rows_left(c), some = before < 10 ? before : 10;

        if (db_used_bytes(db, &used, err) < 0)
            return -1;
        if (used <= c->retention.db_bytes_max)
            return 0;
        if (db_gc_remove_executions(db, c, INT64_MAX, some, &kept, err) < 0)
            return -1;
        if (db_gc_rows_left(c) == before &&
            db_gc_remove_older(
                db, "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < ?1 ORDER BY seq LIMIT ?2)",
                INT64_MAX, some, &c->gc.events, err) < 0)
            return -1;
        if (db_gc_rows_left(c) == before &&
            db_gc_remove_older(db, REMOVE_SANDBOXES, INT64_MAX, some, &c->gc.sandboxes, err) < 0)
            return -1;
        if (db_gc_rows_left(c) == before)
            return 0; /* the other rows are live, or needed */
    }
    return 0;
}

static int db_gc_remove(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    const struct store_retention *k = &c->retention;
    uint64_t kept = 0;

    if (k->executions_before_ms &&
        db_gc_remove_executions(db, c, k->executions_before_ms, db_gc_rows_left(c), &kept, err) < 0)
        return -1;
    if (db_gc_bound_output(db, c, err) < 0 || db_gc_bound_size(db, c, err) < 0)
        return -1;
    if (db_gc_remove_older(db, REMOVE_SANDBOXES, k->sandboxes_before_ms, db_gc_rows_left(c), &c->gc.sandboxes, err) <
            0 ||
        db_gc_remove_older(db,
                           "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at_ms < ?1 ORDER BY at_ms"
                           " LIMIT ?2)",
                           k->events_before_ms, db_gc_rows_left(c), &c->gc.events, err) < 0 ||
        db_gc_remove_older(db,
                           "DELETE FROM idempotency WHERE (owner, key) IN (SELECT owner, key FROM idempotency WHERE"
                           " at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
                           k->idem_before_ms, db_gc_rows_left(c), &c->gc.idem, err) < 0 ||
        db_gc_remove_older(db,
                           "DELETE FROM usage WHERE (owner, hour_ms, created_by, sandbox) IN (SELECT owner, hour_ms,"
                           " created_by, sandbox FROM usage WHERE hour_ms < ?1 ORDER BY hour_ms LIMIT ?2)",
                           k->usage_before_ms, db_gc_rows_left(c), &c->gc.usage, err) < 0 ||
        db_usage_fold(db, k->sandboxes_before_ms, db_gc_rows_left(c), &c->gc.usage, err) < 0)
        return -1;
    c->gc.more = db_gc_rows_left(c) == 0;
    return 0;
}

static int db_gc_vacuum(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    char sql[64];
    uint64_t unused;

    snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%d)", db->has_reserve ? VACUUM_PAGES : VACUUM_PAGES_FULL);
    if (db_exec(db->h, sql, "returning free space", err) < 0 ||
        db_query_u64(db, "PRAGMA freelist_count", NULL, &unused, err) < 0)
        return -1;
    if (!db->has_reserve && unused > 0)
        c->gc.more = true; /* inserts are refused until the disk has space again, so continue until it has */
    return 0;
}

/* A dry run removes the rows and rolls back. */
static int db_gc_dry_run(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct store_gc_report sum = { 0 };
    int rc;

    if (db_exec(db->h, "SAVEPOINT gc", "counting old rows", err) < 0)
        return -1;
    do {
        c->gc = (struct store_gc_report){ 0 };
        rc = db_gc_remove(db, c, err);
        sum.nexecutions += c->gc.nexecutions;
        sum.output_bytes += c->gc.output_bytes;
        sum.sandboxes += c->gc.sandboxes;
        sum.events += c->gc.events;
        sum.idem += c->gc.idem;
        sum.usage += c->gc.usage;
    } while (rc == 0 && c->gc.more);
    c->gc = sum;
    sqlite3_exec(db->h, "ROLLBACK TO gc; RELEASE gc", NULL, NULL, NULL);
    return rc;
}

int db_gc(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    c->limit = db->has_reserve ? STORE_GC_BATCH : STORE_GC_BATCH / 10;
    c->removed = mem_alloc((size_t)STORE_GC_BATCH * ID_SIZE);
    if (c->retention.dry_run)
        return db_gc_dry_run(db, c, err);
    if (db_exec(db->h, "SAVEPOINT gc", "removing old rows", err) < 0)
        return -1;
    if (db_gc_remove(db, c, err) < 0 || db_gc_vacuum(db, c, err) < 0) {
        sqlite3_exec(db->h, "ROLLBACK TO gc; RELEASE gc", NULL, NULL, NULL);
        return -1;
    }
    return db_exec(db->h, "RELEASE gc", "removing old rows", err);
}
