/* store_url.h - the URL of a store: SCHEME:PLACE.
 *
 * The functions use no database, so the supervisor checks a URL without being linked with one. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

enum store_scheme {
    STORE_SCHEME_SQLITE, /* sqlite:PATH */
    STORE_SCHEME_COUNT,
};

struct store_url {
    enum store_scheme scheme;
    char *file; /* path of the database, for SQLite */
};

/* A relative path begins at state_dir; an empty path is cove.db. The caller ends *ret with
 * store_url_done. The message of an error begins with the name of the setting, and does not contain
 * a password of the URL. */
int store_url_parse(const char *text, const char *state_dir, struct store_url *ret, struct err *err);
void store_url_done(struct store_url *url);
