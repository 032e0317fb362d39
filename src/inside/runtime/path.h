/* path.h - opening what a request names, without ever following a magic link.
 *
 * Paths are absolute inside the sandbox and are resolved below the root's descriptor, so "..", absolute links and links
 * to links stay inside; /proc/PID/fd, /proc/PID/root and their like lead nowhere. */
#pragma once

#include "core/base/err.h"

#include <sys/stat.h>

#define PATH_NAME_SIZE 256 /* one component with its NUL */

struct paths {
    int root; /* O_PATH descriptor of / */
};

int paths_init(struct paths *p, struct err *err);
void paths_done(struct paths *p);

int path_check(const char *path, struct err *err); /* absolute and not too long */
/* A descriptor, or -1 with the error that fits errno. Links inside are followed unless flags say O_NOFOLLOW. */
int path_open(const struct paths *p, const char *path, int flags, struct err *err);
/* The directory that holds the last component, whose name is copied to leaf. Fails on paths that end in nothing to name
 * ("/", "/a/.."). With `make`, missing directories on the way are made. */
int path_parent(const struct paths *p, const char *path, bool make, char leaf[PATH_NAME_SIZE], struct err *err);
/* Below any directory, for archives and walks: no link of any kind is followed, nothing leaves `dirfd`; with
 * `one_mount`, no mount is crossed either. -1 with errno. */
int path_beneath(int dirfd, const char *path, int flags, bool one_mount);

/* The mode of a directory that was just made, whatever our umask is; a link in its place is not followed. -1 with
 * errno. */
int path_set_mode(int dirfd, const char *name, mode_t mode);

/* Sets the error that fits errno: "what path: reason". Returns -1. */
int path_fail(struct err *err, const char *what, const char *path);
char path_kind(mode_t mode); /* as in struct rt_entry */
/* A name that nobody uses, for a file that is being written. */
void path_temp_name(char out[PATH_NAME_SIZE]);
