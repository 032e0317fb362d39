/* sandbox_mounts.h - the writable file systems of one sandbox, and the directories lent to it.
 *
 * The caller is in a copy of the template's mounts that belongs to the sandbox alone, has the
 * sandbox's uid, which will own the new file systems, and still has the right to mount. */
#pragma once

#include "host/isolate/native.h"

/* /dev/pts, /dev/shm, /tmp, and /workspace unless a directory is lent for it. */
int sandbox_mounts_add_scratch(const struct native_spec *spec, struct err *err);
int sandbox_mounts_attach_lent(const struct native_spec *spec, struct err *err);
