/* schema.h - the SQLite tables, and the migration from every older version of them. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sqlite3.h>

#define SCHEMA_APPLICATION 0x636f7665 /* "cove", in the header of every cove database file */

/* Step i migrates a database from version i to i + 1. A released step is never changed: a database
 * that has passed it is not migrated again. */
struct schema {
    const char *const *steps;
    int n;
};
extern const struct schema schema_current;

/* Migrates the database to the latest version. Each step and its version number are one
 * transaction, so a process that is killed leaves either the old version or the new one. Refuses
 * a newer database, and a file of another program. */
int schema_migrate(sqlite3 *db, const struct schema *s, struct err *err);
/* Whether this file can be migrated; does not change it. */
int schema_check_version(sqlite3 *db, const struct schema *s, int *ret_version, struct err *err);
