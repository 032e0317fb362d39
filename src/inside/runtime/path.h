/* path.h - opens paths that requests name, without ever following a magic link.
 *
 * Paths are absolute inside the sandbox and are resolved below the root's descriptor, so "..",
 * absolute links and links to links stay inside; /proc/PID/fd, /proc/PID/root and similar links are
 * not followed. */
#pragma once

#include "core/base/err.h"

#include <sys/stat.h>

#define PATH_NAME_SIZE 256 /* one component with its NUL */

struct paths {
    int root; /* O_PATH descriptor of / */
};

int paths_init(struct paths *p, struct err *err);
void paths_done(struct paths *p);

int path_check(const char *path, struct err *err); /* must be absolute and not too long */
/* Returns a descriptor, or -1 with the error for errno. Follows links inside the sandbox, unless
 * flags has O_NOFOLLOW. */
int path_open(const struct paths *p, const char *path, int flags, struct err *err);
/* Opens the directory of the last component and copies that component to leaf. Fails on paths
 * without one ("/", "/a/.."). With `make`, makes missing directories. */
int path_parent(const struct paths *p, const char *path, bool make, char leaf[PATH_NAME_SIZE], struct err *err);
/* Opens a path below any directory, for archives and scans: follows no link and does not leave
 * `dirfd`; with `one_mount`, it does not cross a mount either. -1 with errno. */
int path_beneath(int dirfd, const char *path, int flags, bool one_mount);

/* Sets the mode of a directory that was just made, independent of our umask; does not follow a link
 * in its place. -1 with errno. */
int path_set_mode(int dirfd, const char *name, mode_t mode);

/* Sets the error for errno: "what path: reason". Returns -1. */
int path_fail(struct err *err, const char *what, const char *path);
char path_kind(mode_t mode); /* as in struct rt_entry */
/* Makes an unused name for a file that is being written. */
void path_temp_name(char out[PATH_NAME_SIZE]);
