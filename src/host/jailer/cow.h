/* cow.h - a copy-on-write view of a directory: an overlay whose upper layer is its own tmpfs. */
#pragma once

#include "core/base/err.h"
#include "policy/limits.h"

/* `lower` is a detached read-only mount. It may be attached elsewhere meanwhile; the caller closes
 * it after this call. `host` owns the upper layer, whose size is the workspace limit. *ret is a
 * detached mount. */
int cow_mount(int lower, bool rootless, uid_t host, const struct limits *lim, int *ret, struct err *err);
