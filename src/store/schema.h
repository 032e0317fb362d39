/* schema.h - the tables in SQLite, and the way from any older form of them to this one. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sqlite3.h>

#define SCHEMA_APPLICATION 0x636f7665 /* "cove", in the header of every database file of ours */

/* One step takes a database from version i to i + 1. A step that was released is never changed again. */
struct schema {
    const char *const *steps;
    int n;
};
extern const struct schema schema_current;

/* Brings the database to the last version. Each step is one transaction together with its number, so a process that is
 * killed leaves either the old form or the new one. Refuses a newer database, and a file that is another program's. */
int schema_migrate(sqlite3 *db, const struct schema *s, struct err *err);
/* Whether this file could be migrated, without changing it. */
int schema_check_version(sqlite3 *db, const struct schema *s, int *ret_version, struct err *err);
