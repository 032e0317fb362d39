/* env.h - the environment of an execution: that of the claim, overridden by its own. Pure. */
#pragma once

#include "core/base/err.h"

/* Every entry must be NAME=value with a name of at least one character. */
int env_check(const char *const *env, struct err *err);
/* A NULL-terminated list, one allocation that the caller frees; the strings are borrowed from both. Within one list the
 * last entry of a name wins. */
const char **env_merge(const char *const *base, const char *const *over);
const char *env_get(const char *const *env, const char *name); /* the value, or NULL */
