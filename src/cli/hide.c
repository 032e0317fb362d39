/* An empty file and an empty directory of ours, in the state directory: the kernel does not mount what has no name.
 * What is hidden is looked up on the host, because the system directories of a sandbox are the host's and a workspace
 * is a directory of it. */
#include "cli/hide.h"

#include "cli/state.h"

#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define WORKSPACE "/workspace/"

static bool made(int rc)
{
    return rc == 0 || errno == EEXIST;
}

/* Whoever could put something into our own empty directory is ourselves, so only the owner is checked. */
static int open_empty(const struct request *r, bool directory, int *ret, struct err *err)
{
    char buf[STATE_DIR_MAX], path[PATH_MAX];
    const char *state = state_dir(r->state_dir, buf);
    struct stat st;
    int fd = -1;

    int n = snprintf(path, sizeof(path), "%s/hidden", state);
    if (n > 0 && (size_t)n < sizeof(path) - 8 && made(mkdir(state, 0700)) && made(mkdir(path, 0755))) {
        memcpy(path + n, directory ? "/dir" : "/file", directory ? 5 : 6);
        if (directory && made(mkdir(path, 0555)))
            fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        else if (!directory)
            fd = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    }
    if (fd < 0)
        return err_sys(err, ERR_SYS, "something empty in %.100s, to hide a path with", state);
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (!directory && st.st_size != 0)) {
        close(fd);
        return err_set(err, ERR_DENIED, "%.100s/hidden is not as cove made it; remove it", state);
    }
    *ret = fd;
    return 0;
}

/* The path on the host, or false. */
static bool host_place(const struct request *r, const char *dst, char host[PATH_MAX], size_t *root)
{
    char dir[PATH_MAX];

    *root = 0;
    if (!str_starts(dst, WORKSPACE))
        return realpath(dst, host) != NULL;
    if (!r->workspace || !realpath(r->workspace, dir))
        return false;
    auto_free char *path = str_printf("%s/%s", dir, dst + strlen(WORKSPACE));
    *root = strlen(dir);
    return realpath(path, host) && strncmp(host, dir, *root) == 0 && host[*root] == '/';
}

int hide_open(const struct request *r, const char *dst, char real[POLICY_TARGET_TEXT + 1], int *ret, struct err *err)
{
    char host[PATH_MAX];
    struct stat st;
    size_t root;

    *ret = -1;
    if (!host_place(r, dst, host, &root) || stat(host, &st) < 0)
        return 0;
    int n = snprintf(real, POLICY_TARGET_TEXT + 1, "%s%s", root ? "/workspace" : "", host + root);
    if (n < 0 || n > POLICY_TARGET_TEXT)
        return err_set(err, ERR_BIND_TARGET, "%.100s: what it stands for has too long a path", dst);
    return open_empty(r, S_ISDIR(st.st_mode), ret, err);
}
