/* cow.h - a copy-on-write view of a directory: an overlay whose upper layer is a tmpfs of its own. */
#pragma once

#include "core/base/err.h"
#include "policy/limits.h"

/* `lower` is a detached read-only mount, and may be attached elsewhere meanwhile: the caller only closes it afterwards.
 * The upper layer belongs to `host` and has the size of a workspace. *ret is a detached mount. */
int cow_mount(int lower, bool rootless, uid_t host, const struct limits *lim, int *ret, struct err *err);
