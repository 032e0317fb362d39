/* runtime_boot.h - the walls that PID 1 raises itself, under a driver that leaves them to it. */
#pragma once

#include "core/base/err.h"

/* Mounts /proc, checks that the process is in none of the namespaces of its maker, attaches the
 * lent mounts at `targets`, which ends with NULL, gives up every capability and installs the
 * system call filter of BOOT_FILE_FD; sends the listener of the filter to the monitor under the
 * sandbox's id, and closes every descriptor but the control socket. Call it before the first frame
 * is read. If it fails, the process must end. */
int runtime_boot(const char *id, char *const *targets, struct err *err);
