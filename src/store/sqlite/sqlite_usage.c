/* Usage in SQLite. The rules are at the top of usage.h; this is how they are implemented.
 *
 * 1. An end is counted by the statement that makes it: the update must find the row live, or the
 *    insert must be of a row that has already ended. The statement and its usage are in one
 *    savepoint, so there is never one without the other.
 * 2. `sandboxes.cpu_us` is the part of a sandbox's counter that is contained in `usage`. It only
 *    grows, and each increase is added to `usage`.
 * 3. The hours of a sandbox are computed by one recursive query, both for a tombstone and for a
 *    live sandbox in a report; so the final record of a sandbox agrees with the reports made
 *    while it lived. */
#include "store/sqlite/sqlite.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#include <stdio.h>

#define HOUR "3600000"
#define USAGE_SPAN_MAX_MS "31622400000" /* 366 days: a wall clock that was set ahead must not fill the table */

#define SUMS "executions, failed, cpu_us, execution_ms, output_bytes, sandbox_ms, memory_mib_ms, storage_mib_ms"
#define NSUMS 8
#define ADD(c) c " = " c " + excluded." c
#define MERGE                                                                                                                             \
    " ON CONFLICT (owner, hour_ms, created_by, sandbox) DO UPDATE SET " ADD("executions") ", " ADD("failed") ", " ADD("cpu_us") ", " ADD( \
        "execution_ms") ", " ADD("output_bytes") ", " ADD("sandbox_ms") ", " ADD("memory_mib_ms") ", " ADD("storage_"                     \
                                                                                                           "mib_ms") ", memory_peak = max(memory_peak, excluded.memory_peak)"

#define BY "substr(coalesce(created_by, ''), 1, 64)"
#define MIB_OF(column) column " / 1048576"
/* One row for each hour from a to b of the sandboxes that `which` selects. */
#define HOURS(a, b, which)                                                                                      \
    "WITH RECURSIVE lived(owner, whose, id, a, b, mem, sto) AS (SELECT owner, " BY ", id, " a ", min(" b ", " a \
    " + " USAGE_SPAN_MAX_MS "), " MIB_OF("memory_bytes") ", " MIB_OF(                                           \
        "storage_bytes") " FROM sandboxes WHERE " which "),"                                                    \
                         " span(owner, whose, id, a, b, mem, sto, hour) AS (SELECT *, a / " HOUR " * " HOUR     \
                         " FROM lived WHERE a < b"                                                              \
                         " UNION ALL SELECT owner, whose, id, a, b, mem, sto, hour + " HOUR                     \
                         " FROM span WHERE hour + " HOUR " < b),"                                               \
                         " hours AS (SELECT *, min(b, hour + " HOUR ") - max(a, hour) AS ms FROM span) "

/* --- adding --- */

static int db_usage_add_row(struct sqlite_db *db, const struct store_usage *u, struct err *err)
{
    const uint64_t sums[NSUMS + 1] = { u->executions,    u->failed,         u->cpu_us,
                                       u->execution_ms,  u->output_bytes,   u->sandbox_ms,
                                       u->memory_mib_ms, u->storage_mib_ms, u->memory_peak };
    sqlite3_stmt *st = db_statement(
        db,
        "INSERT INTO usage (owner, hour_ms, created_by, sandbox, " SUMS ", memory_peak)"
        " VALUES (?1, ?2, substr(?3, 1, 64), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)" MERGE,
        err);

    if (!st)
        return -1;
    db_bind_text(st, 1, u->owner);
    db_bind_u64(st, 2, u->hour_ms / STORE_HOUR_MS * STORE_HOUR_MS);
    db_bind_text(st, 3, u->created_by);
    db_bind_text(st, 4, u->sandbox);
    for (int i = 0; i <= NSUMS; i++)
        db_bind_u64(st, 5 + i, min_u64(sums[i], INT64_MAX / 2));
    return db_step(db, st, "counting usage", err);
}

/* Sets u->cpu_us to the part of the counter above the highest value so far; 0 if the sandbox
 * does not exist, or has ended and `ended` is false. Sets u->owner, and u->created_by unless it
 * is set. */
static int db_usage_advance_cpu(struct sqlite_db *db, const char *sandbox, uint64_t cpu_us, bool ended,
                                struct store_usage *u, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, "SELECT cpu_us, owner, " BY ", state = 'ended' FROM sandboxes WHERE id = ?1",
                                    err);
    bool gone = true;
    uint64_t before = 0;

    if (!st || cpu_us == 0)
        return st ? 0 : -1;
    db_bind_text(st, 1, sandbox);
    int rc = db_step(db, st, "reading a counter", err);
    if (rc <= 0)
        return rc;
    before = (uint64_t)sqlite3_column_int64(st, 0);
    (void)str_copy(u->owner, sizeof(u->owner), db_column_text(st, 1));
    if (!u->created_by[0])
        (void)str_copy(u->created_by, sizeof(u->created_by), db_column_text(st, 2));
    gone = sqlite3_column_int(st, 3) != 0;
    sqlite3_reset(st);
    cpu_us = min_u64(cpu_us, INT64_MAX / 2);
    if (cpu_us <= before || (gone && !ended))
        return 0;
    st = db_statement(db, "UPDATE sandboxes SET cpu_us = ?2 WHERE id = ?1", err);
    if (!st)
        return -1;
    db_bind_text(st, 1, sandbox);
    db_bind_u64(st, 2, cpu_us);
    u->cpu_us = cpu_us - before;
    return db_step(db, st, "writing a counter", err);
}

static int db_usage_count_execution(struct sqlite_db *db, const struct store_execution *row,
                                    const struct store_execution *said, struct err *err)
{
    struct store_usage u = { .hour_ms = row->ended_ms,
                             .executions = 1,
                             .failed = row->state == STORE_EXECUTION_FAILED };

    memcpy(u.owner, row->owner, sizeof(u.owner));
    memcpy(u.sandbox, row->sandbox, sizeof(u.sandbox));
    snprintf(u.created_by, sizeof(u.created_by), "%.64s", row->created_by ? row->created_by : "");
    for (int i = 0; i < 3; i++)
        u.output_bytes += row->out_bytes[i] - min_u64(row->dropped[i], row->out_bytes[i]);
    if (row->started_ms && row->ended_ms > row->started_ms)
        u.execution_ms = row->ended_ms - row->started_ms;
    if (db_usage_advance_cpu(db, row->sandbox, said->usage_cpu_us, true, &u, err) < 0)
        return -1;
    memcpy(u.owner, row->owner, sizeof(u.owner));
    return db_usage_add_row(db, &u, err);
}

/* A sandbox whose creation failed has no lifetime and no endedBy. */
static int db_usage_count_sandbox(struct sqlite_db *db, const struct store_sandbox *row,
                                  const struct store_sandbox *said, struct err *err)
{
    struct store_usage u = { .hour_ms = row->ended_ms, .memory_peak = said->usage_memory_peak };
    sqlite3_stmt *st;

    memcpy(u.owner, row->owner, sizeof(u.owner));
    memcpy(u.sandbox, row->id, sizeof(u.sandbox));
    snprintf(u.created_by, sizeof(u.created_by), "%.64s", row->created_by ? row->created_by : "");
    if (db_usage_advance_cpu(db, row->id, said->cpu_us, true, &u, err) < 0)
        return -1;
    if ((u.cpu_us || u.memory_peak) && db_usage_add_row(db, &u, err) < 0)
        return -1;
    st = db_statement(
        db,
        "INSERT INTO usage (owner, hour_ms, created_by, sandbox, sandbox_ms, memory_mib_ms,"
        " storage_mib_ms) " HOURS("created_ms", "ended_ms",
                                  "id = ?1 AND ended_by IS NOT NULL") "SELECT owner, hour, whose, id, ms, ms * mem, ms "
                                                                      "* sto FROM hours WHERE ms > 0" MERGE,
        err);
    if (!st)
        return -1;
    db_bind_text(st, 1, row->id);
    return db_step(db, st, "counting the time of a sandbox", err);
}

/* --- ends --- */

static bool db_usage_is_end(const struct row_table *t, const void *row)
{
    if (t == &row_sandbox)
        return ((const struct store_sandbox *)row)->state == STORE_SANDBOX_ENDED;
    return t == &row_execution && !(STORE_BIT(((const struct store_execution *)row)->state) & STORE_EXECUTION_LIVE);
}

/* An update that ends a row. */
static bool db_usage_update_is_end(const struct store_request *c)
{
    uint32_t bit = c->table == &row_sandbox     ? STORE_SANDBOX_SET_STATE
                   : c->table == &row_execution ? STORE_EXECUTION_SET_STATE
                                                : 0;

    return (c->set & bit) && db_usage_is_end(c->table, c->row);
}

static int db_usage_was_alive(struct sqlite_db *db, const struct store_request *c, bool *ret, struct err *err)
{
    uint32_t live = c->table == &row_sandbox ? STORE_SANDBOX_LIVE : STORE_EXECUTION_LIVE;
    uint64_t n = 0;

    if (c->condition.states && !(c->condition.states & ~live)) {
        *ret = true; /* the update itself ensures it */
        return 0;
    }
    if (db_query_u64(db,
                     c->table == &row_sandbox
                         ? "SELECT count(*) FROM sandboxes WHERE id = ?1 AND state <> 'ended'"
                         : "SELECT count(*) FROM executions WHERE id = ?1 AND state IN ('starting', 'running')",
                     c->id, &n, err) < 0)
        return -1;
    *ret = n > 0;
    return 0;
}

static int db_usage_count_end(struct sqlite_db *db, const struct store_request *c, const void *row, struct err *err)
{
    if (c->table == &row_sandbox)
        return db_usage_count_sandbox(db, row, c->row, err);
    return db_usage_count_execution(db, row, c->row, err);
}

static int db_usage_write_counted(struct sqlite_db *db, struct store_request *c,
                                  int (*fn)(struct sqlite_db *, struct store_request *, struct err *), bool alive,
                                  struct err *err)
{
    if (db_exec(db->h, "SAVEPOINT ending", "writing", err) < 0)
        return -1;
    if (fn(db, c, err) < 0 ||
        (alive && db_usage_count_end(db, c, c->rows.n ? (const void *)c->rows.rows : c->row, err) < 0)) {
        sqlite3_exec(db->h, "ROLLBACK TO ending; RELEASE ending", NULL, NULL, NULL);
        return -1;
    }
    return db_exec(db->h, "RELEASE ending", "writing", err);
}

int db_insert_with_usage(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    return db_usage_is_end(c->table, c->row) ? db_usage_write_counted(db, c, db_insert, true, err)
                                             : db_insert(db, c, err);
}

int db_update_with_usage(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    bool alive = false;

    if (!db_usage_update_is_end(c))
        return db_update(db, c, err);
    return db_usage_was_alive(db, c, &alive, err) < 0 ? -1 : db_usage_write_counted(db, c, db_update, alive, err);
}

int db_usage_record_cpu(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    if (db_exec(db->h, "SAVEPOINT noting", "writing", err) < 0)
        return -1;
    for (size_t i = 0; i < c->nusage; i++) {
        const struct store_cpu_reading *n = &c->cpu_readings[i];
        struct store_usage u = { .hour_ms = min_u64(n->at_ms, INT64_MAX / 2) };

        memcpy(u.sandbox, n->sandbox, sizeof(u.sandbox));
        memcpy(u.created_by, n->created_by, sizeof(u.created_by));
        if (db_usage_advance_cpu(db, n->sandbox, n->cpu_us, false, &u, err) < 0 ||
            (u.cpu_us && db_usage_add_row(db, &u, err) < 0)) {
            sqlite3_exec(db->h, "ROLLBACK TO noting; RELEASE noting", NULL, NULL, NULL);
            return -1;
        }
    }
    return db_exec(db->h, "RELEASE noting", "writing", err);
}

int db_usage_add(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    if (db_exec(db->h, "SAVEPOINT adding", "writing", err) < 0)
        return -1;
    for (size_t i = 0; i < c->nusage; i++)
        if (db_usage_add_row(db, &c->usage_sums[i], err) < 0) {
            sqlite3_exec(db->h, "ROLLBACK TO adding; RELEASE adding", NULL, NULL, NULL);
            return -1;
        }
    return db_exec(db->h, "RELEASE adding", "writing", err);
}

/* A server creates many sandboxes, and queries never name one that retention has removed: its
 * hours are added to those of its user. */
int db_usage_fold(struct sqlite_db *db, uint64_t before_ms, uint32_t limit, uint64_t *count, struct err *err)
{
#define OLDEST " FROM usage WHERE sandbox <> '' AND hour_ms < ?1 ORDER BY hour_ms, owner, created_by, sandbox LIMIT ?2"
    static const char *const steps[] = {
        "INSERT INTO usage (hour_ms, owner, created_by, sandbox, " SUMS ", memory_peak) SELECT hour_ms, owner,"
        " created_by, '', " SUMS ", memory_peak FROM (SELECT *" OLDEST ") WHERE true" MERGE,
        "DELETE FROM usage WHERE (owner, hour_ms, created_by, sandbox) IN (SELECT owner, hour_ms, created_by,"
        " sandbox" OLDEST ")",
    };

    for (size_t i = 0; before_ms && limit && i < ARRAY_LEN(steps); i++) {
        sqlite3_stmt *st = db_statement(db, steps[i], err);

        if (!st)
            return -1;
        db_bind_u64(st, 1, min_u64(before_ms, INT64_MAX));
        db_bind_u64(st, 2, limit);
        if (db_step(db, st, "merging old usage", err) < 0)
            return -1;
    }
    *count += before_ms && limit ? (uint64_t)sqlite3_changes(db->h) : 0;
    return 0;
}

/* --- reading --- */

static void db_usage_read_row(sqlite3_stmt *st, struct store_usage *u)
{
    uint64_t *const sums[NSUMS + 1] = { &u->executions,    &u->failed,         &u->cpu_us,
                                        &u->execution_ms,  &u->output_bytes,   &u->sandbox_ms,
                                        &u->memory_mib_ms, &u->storage_mib_ms, &u->memory_peak };

    u->hour_ms = (uint64_t)sqlite3_column_int64(st, 0);
    (void)str_copy(u->owner, sizeof(u->owner), db_column_text(st, 1));
    (void)str_copy(u->created_by, sizeof(u->created_by), db_column_text(st, 2));
    (void)str_copy(u->sandbox, sizeof(u->sandbox), db_column_text(st, 3));
    for (int i = 0; i <= NSUMS; i++)
        *sums[i] = (uint64_t)sqlite3_column_int64(st, 4 + i);
}

/* Over many years a sum may exceed an INTEGER; a REAL sum is then accurate to 15 digits, and not
 * an error. */
#define SUM(c) "CAST(total(" c ") AS INTEGER)"

static void db_usage_list_sql(const struct store_request *c, struct buf *out)
{
    static const struct {
        unsigned bit;
        const char *column, *none;
    } keys[] = { { STORE_USAGE_BY_HOUR, "hour_ms", "0" },
                 { STORE_USAGE_BY_TENANT, "owner", "''" },
                 { STORE_USAGE_BY_USER, "created_by", "''" },
                 { STORE_USAGE_BY_SANDBOX, "sandbox", "''" } };

    buf_adds(out, HOURS("max(created_ms, ?1)", "min(?3, ?2)",
                        "state <> 'ended' AND created_ms < min(?3, ?2) AND (?4 IS NULL OR owner = ?4)"
                        " AND (?5 IS NULL OR id = ?5) AND (?6 IS NULL OR " BY " = ?6)"));
    buf_adds(out, ", whole AS (SELECT hour_ms, owner, created_by, sandbox, " SUMS ", memory_peak FROM usage"
                  " WHERE hour_ms >= ?1 AND hour_ms < ?2 AND (?4 IS NULL OR owner = ?4)"
                  " AND (?5 IS NULL OR sandbox = ?5) AND (?6 IS NULL OR created_by = ?6)"
                  " UNION ALL SELECT hour, owner, whose, id, 0, 0, 0, 0, 0, ms, ms * mem, ms * sto, 0 FROM hours"
                  " WHERE ms > 0) SELECT ");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        buf_addf(out, "%s, ", c->set & keys[i].bit ? keys[i].column : keys[i].none);
    buf_adds(
        out,
        SUM("executions") ", " SUM("failed") ", " SUM("cpu_us") ", " SUM("execution_ms") ", " SUM(
            "output_bytes") ", " SUM("sandbox_ms") ", " SUM("memory_mib_ms") ", " SUM("storage_mib_ms") ","
                                                                                                        " coalesce(max("
                                                                                                        "memory_peak), "
                                                                                                        "0) FROM "
                                                                                                        "whole");
    for (size_t i = 0, n = 0; i < ARRAY_LEN(keys); i++)
        if (c->set & keys[i].bit)
            buf_addf(out, "%s%s", n++ ? ", " : " GROUP BY ", keys[i].column);
    buf_adds(out, c->set ? " ORDER BY 1, 2, 3, 4 LIMIT ?7" : " LIMIT ?7");
}

int db_usage_list(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    auto_buf sql = { 0 };
    int rc;

    db_usage_list_sql(c, &sql);
    sqlite3_stmt *st = db_statement(db, sql.data, err);
    if (!st)
        return -1;
    db_bind_u64(st, 1, c->from);
    db_bind_u64(st, 2, c->to);
    db_bind_u64(st, 3, c->now);
    db_bind_text(st, 4, str_eq(c->owner, STORE_ANY_OWNER) ? NULL : c->owner);
    db_bind_text(st, 5, c->usage_sandbox[0] ? c->usage_sandbox : NULL);
    db_bind_text(st, 6, c->usage_user[0] ? c->usage_user : NULL);
    db_bind_u64(st, 7, STORE_USAGE_MAX + 1);
    while ((rc = db_step(db, st, "reading usage", err)) > 0)
        db_usage_read_row(st, row_list_add(c->table, &c->rows));
    if (rc < 0)
        return -1;
    c->more = c->rows.n > STORE_USAGE_MAX;
    if (c->more)
        row_list_drop(c->table, &c->rows);
    return 0;
}

/* --- budgets --- */

int db_budget_put(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    const struct store_budget *row = c->row;
    const uint64_t *max = &row->max[0][0];
    bool any = false;

    for (int i = 0; i < STORE_PERIOD_COUNT * STORE_BUDGET_RESOURCES; i++)
        any = any || max[i];
    sqlite3_stmt *st = db_statement(db,
                                    any ? "INSERT OR REPLACE INTO budgets VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
                                        : "DELETE FROM budgets WHERE owner = ?1",
                                    err);
    if (!st)
        return -1;
    db_bind_text(st, 1, row->owner);
    for (int i = 0; any && i < STORE_PERIOD_COUNT * STORE_BUDGET_RESOURCES; i++)
        db_bind_u64(st, 2 + i, max[i]);
    if (any)
        db_bind_u64(st, 8, min_u64(row->updated_ms, INT64_MAX));
    return db_step(db, st, "writing a budget", err);
}

int db_budget_list(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, "SELECT * FROM budgets WHERE ?1 IS NULL OR owner = ?1 ORDER BY owner", err);
    int rc;

    if (!st)
        return -1;
    db_bind_text(st, 1, str_eq(c->owner, STORE_ANY_OWNER) ? NULL : c->owner);
    while ((rc = db_step(db, st, "reading budgets", err)) > 0) {
        struct store_budget *row = row_list_add(c->table, &c->rows);

        (void)str_copy(row->owner, sizeof(row->owner), db_column_text(st, 0));
        for (int i = 0; i < STORE_PERIOD_COUNT * STORE_BUDGET_RESOURCES; i++)
            (&row->max[0][0])[i] = (uint64_t)sqlite3_column_int64(st, 1 + i);
        row->updated_ms = (uint64_t)sqlite3_column_int64(st, 7);
    }
    return rc;
}
