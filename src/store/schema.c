/* The version is SQLite's own user_version, which is stored in the file's header and is part of
 * the transaction that changes it. There are no downgrades: a database that a newer cove wrote
 * is refused; restore the backup that was made before the upgrade.
 *
 * STRICT keeps text out of number columns, and the CHECKs keep unknown states out of the tables,
 * so that a bug is an error at the time of writing and not a puzzle at the time of reading. An
 * empty `sandbox` of an event is NULL, because it is a foreign key. */
#include "store/schema.h"

#include "store/sqlite/sqlite.h"

#include <stdio.h>

static const char *const schema_steps[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE sandboxes ("
    " id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('creating', 'running', 'paused', 'ended')),"
    " name TEXT, template TEXT, runtime TEXT, level TEXT, spec_json TEXT,"
    " metadata_json TEXT,"
    " created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " ended_by TEXT, why_json TEXT, receipt_json TEXT,"
    " generation INTEGER NOT NULL DEFAULT 1) STRICT;"
    "CREATE INDEX sandboxes_by_owner ON sandboxes (owner, created_ms, id);"
    "CREATE INDEX sandboxes_by_time ON sandboxes (created_ms, id);"
    "CREATE INDEX sandboxes_live ON sandboxes (owner) WHERE state <> 'ended';"
    "CREATE INDEX sandboxes_old ON sandboxes (ended_ms) WHERE state = 'ended';"

    "CREATE TABLE executions ("
    " id TEXT PRIMARY KEY, sandbox TEXT NOT NULL REFERENCES sandboxes (id), owner TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'ended', 'failed')),"
    " request_json TEXT, background INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " out_bytes1 INTEGER NOT NULL, out_bytes2 INTEGER NOT NULL, dropped1 INTEGER NOT NULL, dropped2 INTEGER NOT NULL,"
    " exit_code INTEGER, signal INTEGER NOT NULL, ended_by TEXT, receipt_json TEXT, error_json TEXT,"
    " idempotency TEXT) STRICT;"
    "CREATE INDEX executions_by_owner ON executions (owner, created_ms, id);"
    "CREATE INDEX executions_by_sandbox ON executions (sandbox, created_ms, id);"
    "CREATE INDEX executions_by_time ON executions (created_ms, id);"
    "CREATE INDEX executions_old ON executions (max(ended_ms, created_ms)) WHERE state IN ('ended', 'failed');"
    "CREATE INDEX executions_live ON executions (owner) WHERE state IN ('starting', 'running');"

    "CREATE TABLE keys ("
    " id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT, prefix TEXT NOT NULL,"
    " hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), scopes TEXT,"
    " created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL,"
    " revoked_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX keys_by_owner ON keys (owner, created_ms, id);"

    "CREATE TABLE templates ("
    " name TEXT PRIMARY KEY, spec_json TEXT, generation INTEGER NOT NULL DEFAULT 1,"
    " created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL) STRICT;"

    "CREATE TABLE events ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, owner TEXT NOT NULL,"
    " sandbox TEXT REFERENCES sandboxes (id) ON DELETE CASCADE, kind TEXT, body_json TEXT) STRICT;"
    "CREATE INDEX events_by_owner ON events (owner, seq);"
    "CREATE INDEX events_by_sandbox ON events (sandbox, seq);"
    "CREATE INDEX events_by_time ON events (at_ms);"

    "CREATE TABLE idempotency ("
    " owner TEXT NOT NULL, key TEXT NOT NULL, request_hash BLOB NOT NULL, resource TEXT,"
    " status INTEGER NOT NULL, body TEXT, at_ms INTEGER NOT NULL,"
    " PRIMARY KEY (owner, key)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX idempotency_by_time ON idempotency (at_ms);",

    /* Owners were free text before tenants existed: each becomes a tenant. */
    "CREATE TABLE tenants ("
    " name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, suspended_ms INTEGER NOT NULL, removed_ms INTEGER NOT NULL,"
    " max_sandboxes INTEGER NOT NULL, max_cpu_millis INTEGER NOT NULL, max_memory_bytes INTEGER NOT NULL,"
    " max_storage_bytes INTEGER NOT NULL, max_executions INTEGER NOT NULL) STRICT;"
    "INSERT INTO tenants SELECT owner, min(created_ms), 0, 0, 0, 0, 0, 0, 0 FROM ("
    " SELECT 'local' AS owner, CAST(unixepoch() AS INTEGER) * 1000 AS created_ms"
    " UNION ALL SELECT owner, created_ms FROM keys UNION ALL SELECT owner, created_ms FROM sandboxes"
    " UNION ALL SELECT owner, created_ms FROM executions) GROUP BY owner;"
    "CREATE TABLE users ("
    " id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, role TEXT NOT NULL,"
    " disabled INTEGER NOT NULL, created_ms INTEGER NOT NULL, UNIQUE (owner, name)) STRICT;"
    "CREATE INDEX users_by_owner ON users (owner, created_ms, id);"
    "CREATE TABLE roles ("
    " owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, permissions TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;"
    "ALTER TABLE keys ADD COLUMN user TEXT;"
    "CREATE INDEX keys_by_user ON keys (user) WHERE user IS NOT NULL;"
    "ALTER TABLE sandboxes ADD COLUMN created_by TEXT;"
    "ALTER TABLE executions ADD COLUMN created_by TEXT;",

    "ALTER TABLE sandboxes ADD COLUMN cpu_us INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE usage ("
    " owner TEXT NOT NULL, hour_ms INTEGER NOT NULL, created_by TEXT NOT NULL, sandbox TEXT NOT NULL,"
    " executions INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, cpu_us INTEGER NOT NULL DEFAULT 0,"
    " execution_ms INTEGER NOT NULL DEFAULT 0, output_bytes INTEGER NOT NULL DEFAULT 0,"
    " sandbox_ms INTEGER NOT NULL DEFAULT 0, memory_mib_ms INTEGER NOT NULL DEFAULT 0,"
    " storage_mib_ms INTEGER NOT NULL DEFAULT 0, memory_peak INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (owner, hour_ms, created_by, sandbox)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX usage_by_hour ON usage (hour_ms);"
    "CREATE INDEX usage_of_sandboxes ON usage (hour_ms) WHERE sandbox <> '';"
    "CREATE TABLE budgets ("
    " owner TEXT PRIMARY KEY, day_cpu_ms INTEGER NOT NULL, day_sandbox_ms INTEGER NOT NULL,"
    " day_executions INTEGER NOT NULL, month_cpu_ms INTEGER NOT NULL, month_sandbox_ms INTEGER NOT NULL,"
    " month_executions INTEGER NOT NULL, updated_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;",

    /* A removed user stays removed, even if an identity provider vouches for them, until an
     * admin adds them again. */
    "CREATE TABLE removed_users ("
    " owner TEXT NOT NULL REFERENCES tenants (name), name TEXT NOT NULL, removed_ms INTEGER NOT NULL,"
    " PRIMARY KEY (owner, name)) STRICT, WITHOUT ROWID;",

    /* A template may be built into the server, so its name is not a foreign key. */
    "CREATE TABLE pools ("
    " name TEXT PRIMARY KEY, template TEXT NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL,"
    " ttl_ms INTEGER NOT NULL, max_age_ms INTEGER NOT NULL, autoscale INTEGER NOT NULL,"
    " hit_permille INTEGER NOT NULL, scale_down_ms INTEGER NOT NULL,"
    " zygote_max_age_ms INTEGER NOT NULL, zygote_max_members INTEGER NOT NULL, recycle INTEGER NOT NULL,"
    " generation INTEGER NOT NULL DEFAULT 1,"
    " created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, CHECK (min <= max)) STRICT;"
    "CREATE INDEX pools_by_template ON pools (template);",

    /* Events of contexts. */
    ("ALTER TABLE executions ADD COLUMN out_bytes3 INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE executions ADD COLUMN dropped3 INTEGER NOT NULL DEFAULT 0;"),

    /* Terminal flag and context of an execution; both were members of request_json before. */
    ("ALTER TABLE executions ADD COLUMN tty INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE executions ADD COLUMN context TEXT;"
     "UPDATE executions SET tty = json_type(request_json, '$.tty') IS 'true',"
     " context = CASE WHEN json_type(request_json, '$.context') IS 'text'"
     " AND length(json_extract(request_json, '$.context')) = 22 THEN json_extract(request_json, '$.context') END"
     " WHERE json_valid(request_json);"),

    /* A name is free again when its sandbox has ended. */
    ("CREATE UNIQUE INDEX sandboxes_living_names ON sandboxes (owner, name) WHERE state <> 'ended';"
     "CREATE INDEX sandboxes_by_name ON sandboxes (owner, name, created_ms, id) WHERE name IS NOT NULL;"),

    /* The CASE is outcome_of() of policy/outcome.c. */
    ("ALTER TABLE executions ADD COLUMN outcome TEXT"
     " CHECK (outcome IN ('success', 'error', 'timeout', 'out_of_memory', 'killed', 'lost'));"
     "UPDATE executions SET outcome = CASE"
     " WHEN ended_by = 'exit' AND exit_code = 0 AND error_json IS NULL THEN 'success'"
     " WHEN ended_by IN ('lifetime', 'idle', 'timeout', 'cpu') THEN 'timeout'"
     " WHEN ended_by = 'memory' THEN 'out_of_memory'"
     " WHEN ended_by IN ('killed', 'budget') THEN 'killed'"
     " WHEN ended_by = 'lost' THEN 'lost' ELSE 'error' END WHERE state IN ('ended', 'failed');"
     "CREATE INDEX executions_by_phase ON executions (owner, coalesce(outcome, state), created_ms, id);"
     "CREATE INDEX executions_by_phase_of_all ON executions (coalesce(outcome, state), created_ms, id);"),
};

const struct schema schema_current = { schema_steps, ARRAY_LEN(schema_steps) };

static int schema_read_int(sqlite3 *db, const char *sql, int *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    if (rc != SQLITE_ROW) {
        db_set_error(db, rc, "opening", err);
        return -1;
    }
    return 0;
}

int schema_check_version(sqlite3 *db, const struct schema *s, int *ret_version, struct err *err)
{
    int version = 0, application = 0, objects = 0;

    if (schema_read_int(db, "PRAGMA user_version", &version, err) < 0 ||
        schema_read_int(db, "PRAGMA application_id", &application, err) < 0 ||
        schema_read_int(db, "SELECT count(*) FROM sqlite_schema", &objects, err) < 0)
        return -1;
    if (application != SCHEMA_APPLICATION && (application != 0 || version != 0 || objects != 0))
        return err_set(err, ERR_STORE_CORRUPT, "the file is the database of another program");
    if (version > s->n)
        return err_set(err, ERR_STORE_NEWER, "the database has version %d, this cove knows versions up to %d", version,
                       s->n);
    *ret_version = version;
    return 0;
}

static int schema_apply_step(sqlite3 *db, const struct schema *s, int version, struct err *err)
{
    char mark[96];

    snprintf(mark, sizeof(mark), "PRAGMA user_version = %d; PRAGMA application_id = %d", version + 1,
             SCHEMA_APPLICATION);
    if (db_exec(db, "BEGIN IMMEDIATE", "migrating", err) < 0)
        return -1;
    if (db_exec(db, s->steps[version], "migrating", err) < 0 || db_exec(db, mark, "migrating", err) < 0 ||
        db_exec(db, "COMMIT", "migrating", err) < 0) {
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return err_wrap(err, "version %d to %d", version, version + 1);
    }
    return 0;
}

int schema_migrate(sqlite3 *db, const struct schema *s, struct err *err)
{
    int version = 0;

    if (schema_check_version(db, s, &version, err) < 0)
        return -1;
    for (; version < s->n; version++)
        if (schema_apply_step(db, s, version, err) < 0)
            return -1;
    return 0;
}
