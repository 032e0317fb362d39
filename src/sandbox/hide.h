/* hide.h - empty files and directories to mount over the paths that a policy hides. */
#pragma once

#include "core/base/err.h"
#include "policy/policy.h"

/* Opens an empty file or directory to be bound over `dst`, and writes the mount target to
 * `real`: links are followed, so that the object itself is hidden and not one of its names. *ret
 * is -1 when there is nothing to hide. `dir`: a directory of the caller in which the empty
 * objects may be kept. `workspace`: the directory that is mounted as /workspace, or NULL. */
int hide_open(int dir, const char *workspace, const char *dst, char real[POLICY_TARGET_TEXT + 1], int *ret,
              struct err *err);
