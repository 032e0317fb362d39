/* run_path.h - where files of a run may lie, and which of them a pattern means. Pure. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* A path of a request as one inside the sandbox: absolute, below /workspace or /tmp; a relative one is below
 * /workspace. No part of it is empty, "." or "..". `what` begins the message. The caller frees *ret. */
int run_path_resolve(const char *path, const char *what, char **ret, struct err *err);

bool run_path_has_pattern(const char *part, size_t len); /* '*', '?' or '[' */
/* The directory that the first pattern of the path is looked for in, and that pattern with what follows it:
 * "/workspace/out/a*.png" is "/workspace/out" and "a*.png". False: there is none in it. The caller frees *ret_dir. */
bool run_path_split(const char *path, char **ret_dir, const char **ret_rest);
/* Whether a name matches the first part of such a rest, and what is left of the rest behind that part ("" is nothing).
 * Names that begin with a dot match only a pattern that does. */
bool run_path_matches(const char *rest, const char *name, const char **ret_left);
