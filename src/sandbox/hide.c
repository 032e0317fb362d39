/* An empty file and an empty directory, in a directory of the caller: Linux cannot mount an
 * object without a name. The path to hide is resolved on the host, because the system
 * directories of a sandbox are those of the host, and a workspace is a directory of the host, or
 * memory that is empty at the start. */
#include "sandbox/hide.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define WORKSPACE "/workspace/"

static bool hide_made_or_exists(int rc)
{
    return rc == 0 || errno == EEXIST;
}

/* Only cove itself can put something into its own empty directory, so checking the owner is
 * enough. */
static int hide_open_empty(int dir, bool directory, int *ret, struct err *err)
{
    struct stat st;
    int fd = -1;

    auto_fd int place = hide_made_or_exists(mkdirat(dir, "hidden", 0755))
                            ? openat(dir, "hidden", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                            : -1;
    if (place >= 0 && directory && hide_made_or_exists(mkdirat(place, "dir", 0555)))
        fd = openat(place, "dir", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    else if (place >= 0 && !directory)
        fd = openat(place, "file", O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "creating an empty object to hide a path with, in the state directory");
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (!directory && st.st_size != 0)) {
        close(fd);
        return err_set(err, ERR_DENIED, "'hidden' in the state directory: changed by another program; remove it");
    }
    *ret = fd;
    return 0;
}

/* Writes the path on the host, or returns false. */
static bool hide_resolve_host_path(const char *workspace, const char *dst, char host[PATH_MAX], size_t *root)
{
    char dir[PATH_MAX];

    *root = 0;
    if (!str_starts(dst, WORKSPACE))
        return realpath(dst, host) != NULL;
    if (!workspace || !realpath(workspace, dir))
        return false;
    auto_free char *path = str_printf("%s/%s", dir, dst + strlen(WORKSPACE));
    *root = strlen(dir);
    return realpath(path, host) && strncmp(host, dir, *root) == 0 && host[*root] == '/';
}

int hide_open(int dir, const char *workspace, const char *dst, char real[POLICY_TARGET_TEXT + 1], int *ret,
              struct err *err)
{
    char host[PATH_MAX];
    struct stat st;
    size_t root;

    *ret = -1;
    if (!hide_resolve_host_path(workspace, dst, host, &root) || stat(host, &st) < 0)
        return 0;
    int n = snprintf(real, POLICY_TARGET_TEXT + 1, "%s%s", root ? "/workspace" : "", host + root);
    if (n < 0 || n > POLICY_TARGET_TEXT)
        return err_set(err, ERR_BIND_TARGET, "%.100s: its resolved path is too long to be hidden", dst);
    return hide_open_empty(dir, S_ISDIR(st.st_mode), ret, err);
}
