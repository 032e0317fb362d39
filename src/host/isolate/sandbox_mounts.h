/* sandbox_mounts.h - the writable file systems of one sandbox, and the directories lent to it.
 *
 * The caller is in a copy of the template's mounts that belongs to the sandbox alone, has the
 * sandbox's uid, which will own the new file systems, and still has the right to mount. */
#pragma once

#include "host/isolate/native.h"
#include "inside/confine/binds.h"

/* /dev/pts, /dev/shm, /tmp, and /workspace unless a directory is lent for it. */
int sandbox_mounts_add_scratch(const struct native_spec *spec, struct err *err);
/* The directory that is lent for /workspace, if there is one. */
int sandbox_mounts_attach_workspace(const struct native_spec *spec, struct err *err);
/* The other lent mounts, for binds_attach. Returns their number. */
size_t sandbox_mounts_get_binds(const struct native_spec *spec, struct lent_bind ret[NATIVE_MOUNTS]);
