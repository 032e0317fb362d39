/* env.h - the environment of an execution: that of the claim, overridden by its own. Pure. */
#pragma once

#include "core/base/err.h"

/* Checks that every entry is NAME=value with a non-empty name. */
int env_check(const char *const *env, struct err *err);
/* Returns a NULL-terminated list in one allocation that the caller frees; the strings are borrowed
 * from both lists. Within one list the last entry of a name wins. */
const char **env_merge(const char *const *base, const char *const *over);
const char *env_get(const char *const *env, const char *name); /* the value, or NULL */
