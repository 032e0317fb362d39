/* hide.h - something empty to lie over what a policy hides. */
#pragma once

#include "core/base/err.h"
#include "policy/policy.h"

/* Opens an empty file or directory to be bound over `dst`, and writes where it has to go: links are followed, so that
 * the thing itself is hidden and not one of its names. *ret is -1 when there is nothing to hide. `dir`: a directory of
 * ours that may keep the empty things. `workspace`: the directory that is lent as /workspace, or NULL. */
int hide_open(int dir, const char *workspace, const char *dst, char real[POLICY_TARGET_TEXT + 1], int *ret,
              struct err *err);
