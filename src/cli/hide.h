/* hide.h - something empty to lie over what a policy hides. */
#pragma once

#include "cli/request.h"

/* Opens an empty file or directory to be bound over `dst`, and writes where it has to go: links are followed, so that
 * the thing itself is hidden and not one of its names. *ret is -1 when there is nothing to hide. */
int hide_open(const struct request *r, const char *dst, char real[POLICY_TARGET_TEXT + 1], int *ret, struct err *err);
