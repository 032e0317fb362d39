/* mount_calls.h - system calls on mounts that libc does not wrap.
 *
 * Each function returns what the kernel returns: -1 and errno on failure. Nothing here allocates,
 * so all of it may be used between clone and exec. */
#pragma once

#include "core/base/base.h"

#include <linux/mount.h>

int mount_call_move(int from, const char *from_path, int to, const char *to_path, unsigned flags);
int mount_call_setattr(int dirfd, const char *path, unsigned flags, const struct mount_attr *attr);
/* Opens `path` below dirfd without following any link and without leaving dirfd. */
int mount_call_open_beneath(int dirfd, const char *path, int flags, mode_t mode);
