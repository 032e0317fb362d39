/* The steps are the files of migrations/, which tools/migrations embeds at build time.
 *
 * The version is SQLite's own user_version, which is stored in the file's header and is part of
 * the transaction that changes it. There are no downgrades: a database that a newer cove wrote
 * is refused; restore the backup that was made before the upgrade.
 *
 * STRICT keeps text out of number columns, and the CHECKs keep unknown states out of the tables,
 * so that a bug is an error at the time of writing and not a puzzle at the time of reading. An
 * empty `sandbox` of an event is NULL, because it is a foreign key. */
#include "store/sqlite/schema.h"

#include "store/sqlite/sqlite.h"

#include <stdio.h>

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
