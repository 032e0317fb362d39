/* binds.h - detached mounts that were lent to a sandbox, attached at their places.
 *
 * Only files that the host has chosen may be executed or loaded before the last wall is up, so a
 * bind, which can cover any of them, comes after the last program that is not cove's own. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct lent_bind {
    int fd;          /* of a detached mount; borrowed */
    const char *dst; /* plain absolute path; below /mnt and /workspace it is made if it does not exist */
};

/* Attaches the binds in their order; if one is below /mnt, /mnt becomes a file system of its own,
 * which is read-only afterwards. The caller has CAP_SYS_ADMIN over its mount namespace. Does not
 * allocate. */
int binds_attach(const struct lent_bind *binds, size_t n, struct err *err);
/* One mount at an existing path. */
int binds_attach_one(int fd, const char *dst, struct err *err);
