/* Called between clone and exec: only system calls, no allocation. */
#include "host/isolate/sandbox_mounts.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

static int sandbox_mounts_add_tmpfs(const char *where, uint64_t bytes, uint64_t inodes, const char *mode,
                                    unsigned long flags, struct err *err)
{
    char options[128];

    snprintf(options, sizeof(options), "size=%" PRIu64 ",nr_inodes=%" PRIu64 ",mode=%s", bytes, inodes, mode);
    if (wall_is_mutated("disk"))
        snprintf(options, sizeof(options), "mode=%s", mode);
    if (mount("tmpfs", where, "tmpfs", (wall_is_mutated("nosuid") ? 0 : MS_NOSUID | MS_NODEV) | flags, options) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount %s", where);
    return 0;
}

static bool sandbox_mounts_has_workspace(const struct native_spec *spec)
{
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE)
            return true;
    return false;
}

int sandbox_mounts_add_scratch(const struct native_spec *spec, struct err *err)
{
    const uint64_t *v = spec->limits.v;

    /* The host has a few thousand terminals for all sandboxes together; one sandbox must not
     * exhaust them. */
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /dev/pts");
    if (sandbox_mounts_add_tmpfs("/dev/shm", v[LIMIT_SHM], v[LIMIT_TMP_INODES], "1777", MS_NOEXEC, err) < 0 ||
        sandbox_mounts_add_tmpfs("/tmp", v[LIMIT_TMP], v[LIMIT_TMP_INODES], "1777", 0, err) < 0)
        return -1;
    if (sandbox_mounts_has_workspace(spec))
        return 0;
    return sandbox_mounts_add_tmpfs("/workspace", v[LIMIT_WORKSPACE], v[LIMIT_WORKSPACE_INODES], "0755", 0, err);
}

/* Makes the missing components of `path`, which is below /mnt or /workspace; the last one is a file
 * if `file` is set. */
static int sandbox_mounts_make_target(const char *path, bool file, struct err *err)
{
    char part[256];
    auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (const char *p = strchr(path + 1, '/'); root >= 0; p = strchr(p + 1, '/')) {
        size_t n = p ? (size_t)(p - path - 1) : strlen(path) - 1;

        memcpy(part, path + 1, n);
        part[n] = '\0';
        auto_fd int there = sys_open_beneath(root, part, O_PATH, 0);
        if (there >= 0) {
            if (!p)
                return 0;
            continue;
        }
        char *name = strrchr(part, '/');
        if (errno != ENOENT || !name)
            break;
        *name++ = '\0';
        auto_fd int parent = sys_open_beneath(root, part, O_PATH | O_DIRECTORY, 0);
        if (parent < 0)
            break;
        if (p || !file) {
            if (mkdirat(parent, name, 0755) < 0)
                break;
        } else {
            auto_fd int made = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

            if (made < 0)
                break;
        }
        if (!p)
            return 0;
    }
    return err_sys(err, ERR_BIND_TARGET, "%s", path);
}

static int sandbox_mounts_attach(const struct native_mount *m, const char *dst, struct err *err)
{
    auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_fd int to = sys_open_beneath(root, dst + 1, O_PATH, 0);

    if (to < 0 && errno == ENOENT)
        return err_set(
            err, ERR_BIND_TARGET,
            "%s: does not exist in the sandbox and cannot be created there; use a path below /mnt or /workspace", dst);
    if (to < 0)
        return err_sys(err, ERR_BIND_TARGET, "%s", dst);
    if (sys_move_mount(m->fd, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(err, errno == ENOTDIR || errno == EINVAL ? ERR_BIND_TARGET : ERR_WALL_MISSING, "mount %s", dst);
    return 0;
}

int sandbox_mounts_attach_lent(const struct native_spec *spec, struct err *err)
{
    struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
    bool mnt = false;

    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE && sandbox_mounts_attach(&spec->mounts[i], "/workspace", err) < 0)
            return -1;
    for (size_t i = 0; i < spec->nmounts; i++) {
        const struct native_mount *m = &spec->mounts[i];
        struct stat st;

        if (m->kind != NATIVE_BIND)
            continue;
        if (!mnt && str_starts(m->dst, "/mnt/")) {
            if (sandbox_mounts_add_tmpfs("/mnt", 64 * KIB, 256, "0755", 0, err) < 0)
                return -1;
            mnt = true;
        }
        if (fstat(m->fd, &st) < 0)
            return err_sys(err, ERR_BIND_SOURCE, "%s", m->dst);
        if ((str_starts(m->dst, "/mnt/") || str_starts(m->dst, "/workspace/")) &&
            sandbox_mounts_make_target(m->dst, !S_ISDIR(st.st_mode), err) < 0)
            return -1;
        if (sandbox_mounts_attach(m, m->dst, err) < 0)
            return -1;
    }
    if (mnt && sys_mount_setattr(AT_FDCWD, "/mnt", 0, &ro) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /mnt read-only");
    return 0;
}
