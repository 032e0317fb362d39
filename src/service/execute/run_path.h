/* run_path.h - paths and patterns of the files of a run. Pure functions. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* Resolves a path of a request: absolute, below /workspace or /tmp; a relative path is below
 * /workspace. No part may be empty, "." or "..". `what` begins the error message. The caller frees
 * *ret. */
int run_path_resolve(const char *path, const char *what, char **ret, struct err *err);

bool run_path_has_pattern(const char *part, size_t len); /* '*', '?' or '[' */
/* Splits a path before the first part with a pattern: "/workspace/out/a*.png" gives
 * "/workspace/out" and "a*.png". False: it has no pattern. The caller frees *ret_dir. */
bool run_path_split(const char *path, char **ret_dir, const char **ret_rest);
/* Whether a name matches the first part of such a rest. *ret_left is the rest after that part, ""
 * if none. A name that begins with a dot matches only a pattern that begins with a dot. */
bool run_path_matches(const char *rest, const char *name, const char **ret_left);
