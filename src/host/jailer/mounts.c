/* A caller's files belong to the caller's uid; the sandbox runs under its own unique uid. An
 * idmapped mount joins the two without changing the files: files of the owner appear inside as the
 * sandbox's own, and files that the sandbox makes belong to the owner on disk. The map is the user
 * namespace of a short-lived process.
 *
 * A map applies to one mount, and a lent directory may have other mounts below it. A workspace is
 * lent with all of them mapped, or the request fails: through an unmapped mount, files of an
 * unknown uid would appear in the caller's directory. A read-only bind is lent with all of them
 * mapped; if that fails, without the mounts below it; if that fails, unmapped, with its files
 * readable as for any other user. Kernel file systems (/proc, /sys and similar) are never lent; "/"
 * would include them. */
#include "host/jailer/mounts.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/isolate/mountinfo.h"
#include "host/isolate/sys.h"
#include "inside/confine/mount_calls.h"
#include "host/jailer/cow.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define MOUNT_GUARD_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static int mounts_write_id_map(int proc, const char *file, uint32_t disk, uint32_t host)
{
    char map[64];

    snprintf(map, sizeof(map), "%u %u 1\n", disk, host);
    return fd_put_at(proc, file, map);
}

/* Makes a user namespace that maps the ids `uid` and `gid` on disk to the id `host`. */
static int mounts_make_idmap(uid_t uid, gid_t gid, uid_t host, int *ret, struct err *err)
{
    auto_fd int pidfd = -1;
    struct sys_clone args = { .flags = CLONE_NEWUSER | CLONE_PIDFD, .pidfd = &pidfd, .cgroup = -1 };
    char path[32];
    int bad = -1;

    pid_t jailer = getpid();
    pid_t pid = sys_clone3(&args);
    if (pid == 0) { /* the child holds all our descriptors, locks included, so it must not outlive us */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != jailer)
            _exit(125);
        for (;;)
            pause();
    }
    if (pid < 0)
        return err_sys(err, ERR_NO_NAMESPACES, "cannot make a user namespace for an id map");
    snprintf(path, sizeof(path), "/proc/%d", pid);
    auto_fd int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc >= 0 && mounts_write_id_map(proc, "uid_map", uid, host) == 0 &&
        mounts_write_id_map(proc, "gid_map", gid, host) == 0)
        *ret = bad = openat(proc, "ns/user", O_RDONLY | O_CLOEXEC);
    if (bad < 0)
        err_sys(err, ERR_SYS, "cannot write the id map");
    (void)sys_pidfd_send_signal(pidfd, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return bad < 0 ? -1 : 0;
}

/* A rootless jailer has its own mount namespace, and the kernel clones only mounts of that
 * namespace. The lender's descriptor is therefore opened again by its path. Both processes belong
 * to the same user, and the result must be the same inode. */
static int mounts_reopen_source(int fd, struct err *err)
{
    char link[32], path[4096];
    struct stat lent, found;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return err_sys(err, ERR_BIND_SOURCE, "cannot read the path of the source");
    path[n] = '\0';
    auto_fd int again = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (again < 0 || fstat(again, &found) < 0 || fstat(fd, &lent) < 0)
        return err_sys(err, ERR_BIND_SOURCE, "%.120s", path);
    if (found.st_dev != lent.st_dev || found.st_ino != lent.st_ino)
        return err_set(err, ERR_BIND_SOURCE, "%.120s changed while it was being bound", path);
    return take_fd(&again);
}

/* The kernel reports which mount a descriptor belongs to, and the type of that mount, without
 * asking the file system. A mount that is not in our list belongs to another namespace and could
 * not be lent anyway. This is an allowlist of types that always respond, so unknown types are
 * refused. */
int mounts_check_local_filesystem(int fd, struct err *err)
{
    static const char *const prompt[] = { "bcachefs", "btrfs",   "erofs", "exfat", "ext2",    "ext3",  "ext4",
                                          "f2fs",     "iso9660", "jfs",   "ntfs3", "overlay", "ramfs", "squashfs",
                                          "tmpfs",    "udf",     "vfat",  "xfs",   "zfs" };
    char path[48], info[512];
    uint32_t id = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    if (fd_get_at(AT_FDCWD, path, info, sizeof(info)) < 0)
        return err_sys(err, ERR_BIND_SOURCE, "cannot examine the source");
    const char *at = strstr(info, "mnt_id:\t");
    if (!at || !str_eat(&at, "mnt_id:\t") || !str_eat_u32(&at, UINT32_MAX, &id))
        return err_set(err, ERR_BIND_SOURCE, "the kernel does not report the mount of the source");
    auto_free char *text = mountinfo_read();
    const char *rest = text;
    struct mountinfo m;
    while (mountinfo_next(&rest, &m)) {
        if (m.id != id)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(prompt); i++)
            if (str_eq(m.type, prompt[i]))
                return 0;
        return err_set(
            err, ERR_BIND_SOURCE,
            "it is on %s, which can block forever and so stop every sandbox of this host; use a local directory",
            m.type);
    }
    return err_set(err, ERR_BIND_SOURCE, "its mount is not visible on this host");
}

static bool mounts_is_same_file(const char *path, const struct stat *st)
{
    struct stat there;

    return stat(path, &there) == 0 && there.st_dev == st->st_dev && there.st_ino == st->st_ino;
}

static int mounts_check_source(int fd, bool whole_system, struct err *err)
{
    static const long kernels[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC,       CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                    DEBUGFS_MAGIC,    TRACEFS_MAGIC,     SECURITYFS_MAGIC,   BPF_FS_MAGIC,
                                    NSFS_MAGIC,       DEVPTS_SUPER_MAGIC };
    struct statfs fs;
    struct stat st;

    if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
        return err_sys(err, ERR_BIND_SOURCE, "cannot examine the source");
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++)
        if ((long)fs.f_type == kernels[i])
            return err_set(err, ERR_BIND_REFUSED, "it is in a kernel file system, which is never lent");
    if (mounts_is_same_file("/run", &st)) /* a read-only mount still allows connections to sockets */
        return err_set(err, ERR_BIND_REFUSED, "it holds the sockets of the host's services; name a directory below it");
    if (!whole_system && mounts_is_same_file("/", &st))
        return err_set(err, ERR_BIND_REFUSED, "it is the root of the host; name a directory below it");
    return 0;
}

static int mounts_clone_tree(int lent, bool rootless, bool all, struct err *err)
{
    auto_fd int again = rootless ? mounts_reopen_source(lent, err) : -1;

    if (rootless && again < 0)
        return -1;
    int tree = sys_open_tree(rootless ? again : lent, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | (all ? AT_RECURSIVE : 0u));
    if (tree < 0)
        return err_sys(err, ERR_BIND_SOURCE, "cannot clone the mount");
    return tree;
}

static int mounts_set_attr(int tree, uint64_t set, int idmap, struct err *err)
{
    struct mount_attr attr = { .attr_set = set, .propagation = MS_PRIVATE };

    if (mount_call_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot restrict the mount");
    if (idmap < 0)
        return 0;
    attr = (struct mount_attr){ .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)(unsigned)idmap };
    if (mount_call_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED, "cannot idmap this file system and all mounts below it");
    return 0;
}

static int mounts_bind_tree(int fd, bool rootless, bool all, uint64_t set, int idmap, int *ret, struct err *err)
{
    auto_fd int tree = mounts_clone_tree(fd, rootless, all, err);

    if (tree < 0 || mounts_set_attr(tree, set, idmap, err) < 0)
        return -1;
    *ret = take_fd(&tree);
    return 0;
}

/* A rootless clone must include all mounts below: the kernel does not reveal files that a mount
 * covers. */
static int mounts_bind_ro(int fd, bool rootless, int idmap, int *ret, struct err *err)
{
    const uint64_t set = MOUNT_GUARD_ATTRS | MOUNT_ATTR_RDONLY;

    if (mounts_check_source(fd, !rootless, err) < 0)
        return -1;
    if (mounts_bind_tree(fd, rootless, true, set, idmap, ret, err) == 0)
        return 0;
    if (rootless)
        return -1;
    return mounts_bind_tree(fd, rootless, false, set, idmap, ret, err) == 0
               ? 0
               : mounts_bind_tree(fd, rootless, false, set, -1, ret, err);
}

static int mounts_bind_workspace(int fd, bool rootless, int idmap, uint64_t more, int *ret, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_WORKSPACE_REFUSED, "the workspace is not a directory");
    if (mounts_check_source(fd, false, err) < 0)
        return -1;
    return mounts_bind_tree(fd, rootless, true, MOUNT_GUARD_ATTRS | more, idmap, ret, err);
}

/* The caller's directory is the lower layer; changes exist only as long as the sandbox. */
static int mounts_bind_cow(int fd, bool rootless, int idmap, uid_t host, const struct limits *lim, int *ret,
                           struct err *err)
{
    auto_fd int lower = -1;

    if (mounts_bind_workspace(fd, rootless, idmap, MOUNT_ATTR_RDONLY, &lower, err) < 0)
        return -1;
    return cow_mount(lower, rootless, host, lim, ret, err);
}

int mounts_prepare(const struct jail_create *req, const int *fds, size_t nfds, bool rootless, uid_t host_uid,
                   const struct limits *limits, struct native_mount *ret, struct err *err)
{
    auto_fd int idmap = -1;
    bool workspace = false;
    size_t i = 0;

    if (req->nmounts && !rootless && mounts_make_idmap(req->owner_uid, req->owner_gid, host_uid, &idmap, err) < 0)
        return -1;
    for (i = 0; i < req->nmounts; i++) {
        const struct jail_mount *m = &req->mounts[i];
        int bad = -1;

        ret[i] = (struct native_mount){ .kind = NATIVE_WORKSPACE, .fd = -1 };
        if (m->fd >= nfds) {
            err_set(err, ERR_INVALID, "mount %zu: its descriptor is missing from the request", i);
        } else if (m->kind == JAIL_BIND_RO) {
            ret[i].kind = NATIVE_BIND;
            if (native_check_target(m->dst, err) == 0 && str_copy(ret[i].dst, sizeof(ret[i].dst), m->dst))
                bad = mounts_bind_ro(fds[m->fd], rootless, idmap, &ret[i].fd, err);
        } else if (workspace) {
            err_set(err, ERR_INVALID, "more than one workspace");
        } else if (m->kind == JAIL_WORKSPACE) {
            bad = mounts_bind_workspace(fds[m->fd], rootless, idmap, 0, &ret[i].fd, err);
        } else if (m->kind == JAIL_WORKSPACE_COW) {
            bad = mounts_bind_cow(fds[m->fd], rootless, idmap, host_uid, limits, &ret[i].fd, err);
        } else {
            err_set(err, ERR_INVALID, "mount %zu: unknown kind", i);
        }
        workspace = workspace || m->kind != JAIL_BIND_RO;
        if (bad < 0) {
            mounts_close(ret, i);
            return err_wrap(err, "%s", m->kind == JAIL_BIND_RO ? m->dst : "/workspace");
        }
    }
    return 0;
}

void mounts_close(struct native_mount *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fd_close(&m[i].fd);
}
