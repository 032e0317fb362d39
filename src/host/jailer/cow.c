/* Since Linux 6.13 an overlay takes its layers as descriptors, which may be detached mounts. Before, it knows paths
 * alone, and only of mounts in the namespace of whoever makes it. Ours is the host's, where nothing of a sandbox may
 * show, so a child with a mount namespace of its own attaches the layers, makes the overlay in the context that we
 * opened, and goes. The overlay keeps copies of its layers' mounts, so that namespace is not missed. */
#include "host/jailer/cow.h"

#include "core/base/fd.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MOUNT_GUARD_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define COW_STAGE_DIR "/tmp" /* of the child: any directory that every host has */

/* An empty tmpfs with `upper` and `work` in it, within the sandbox's disk limits. */
static int cow_make_scratch_layer(uid_t host, const struct limits *lim, int *ret, struct err *err)
{
    static const char *const dirs[] = { "upper", "work" };
    char size[32], inodes[32];
    auto_fd int fs = sys_fsopen("tmpfs");

    snprintf(size, sizeof(size), "%" PRIu64, lim->v[LIMIT_WORKSPACE]);
    snprintf(inodes, sizeof(inodes), "%" PRIu64, lim->v[LIMIT_WORKSPACE_INODES] + 8); /* overlay keeps a few itself */
    if (fs < 0 || sys_fsconfig_str(fs, "size", size) < 0 || sys_fsconfig_str(fs, "nr_inodes", inodes) < 0 ||
        sys_fsconfig_str(fs, "mode", "0700") < 0 || sys_fsconfig_create(fs) < 0)
        return err_sys(err, ERR_SYS, "tmpfs of the workspace");
    auto_fd int mnt = sys_fsmount(fs, MOUNT_GUARD_ATTRS);
    if (mnt < 0)
        return err_sys(err, ERR_SYS, "tmpfs of the workspace");
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(mnt, dirs[i], 0755) < 0 || fchownat(mnt, dirs[i], host, host, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, ERR_SYS, "layer of the workspace");
    *ret = take_fd(&mnt);
    return 0;
}

static int cow_create_overlay(int fs, bool rootless)
{
    if ((rootless ? sys_fsconfig_flag(fs, "userxattr") : sys_fsconfig_str(fs, "redirect_dir", "on")) < 0)
        return -1;
    return sys_fsconfig_create(fs);
}

static int cow_overlay_from_fds(int fs, int lower, int scratch, bool rootless)
{
    auto_fd int upper = openat(scratch, "upper", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_fd int work = openat(scratch, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (upper < 0 || work < 0 || sys_fsconfig_fd(fs, "lowerdir+", lower) < 0 ||
        sys_fsconfig_fd(fs, "upperdir", upper) < 0 || sys_fsconfig_fd(fs, "workdir", work) < 0)
        return -1;
    return cow_create_overlay(fs, rootless);
}

/* --- the old way --- */

static int cow_attach_layer(int tree, const char *path)
{
    return mkdir(path, 0700) < 0 ? -1 : sys_move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

static int cow_overlay_in_stage(int fs, int lower, int scratch, bool rootless)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", COW_STAGE_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700") < 0 ||
        cow_attach_layer(lower, COW_STAGE_DIR "/lower") < 0 || cow_attach_layer(scratch, COW_STAGE_DIR "/scratch") < 0)
        return -1;
    if (sys_fsconfig_str(fs, "lowerdir", COW_STAGE_DIR "/lower") < 0 ||
        sys_fsconfig_str(fs, "upperdir", COW_STAGE_DIR "/scratch/upper") < 0 ||
        sys_fsconfig_str(fs, "workdir", COW_STAGE_DIR "/scratch/work") < 0)
        return -1;
    return cow_create_overlay(fs, rootless);
}

static int cow_overlay_from_paths(int fs, int lower, int scratch, bool rootless)
{
    struct sys_clone args = { .flags = CLONE_NEWNS, .cgroup = -1 };
    pid_t jailer = getpid();
    int status = 0;

    pid_t pid = sys_clone3(&args);
    if (pid == 0) { /* it holds all our descriptors, locks among them, so it must not outlive us */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != jailer)
            _exit(EIO);
        _exit(cow_overlay_in_stage(fs, lower, scratch, rootless) < 0 ? errno : 0);
    }
    if (pid < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return errno ? -1 : 0;
}

int cow_mount(int lower, bool rootless, uid_t host, const struct limits *lim, int *ret, struct err *err)
{
    auto_fd int scratch = -1;
    auto_fd int fs = sys_fsopen("overlay");

    if (fs < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED, "this kernel has no overlay file system");
    if (cow_make_scratch_layer(host, lim, &scratch, err) < 0)
        return -1;
    if (cow_overlay_from_fds(fs, lower, scratch, rootless) < 0) {
        fd_close(&fs); /* what it was told so far cannot be taken back */
        fs = sys_fsopen("overlay");
        if (fs < 0 || cow_overlay_from_paths(fs, lower, scratch, rootless) < 0)
            return err_sys(err, ERR_WORKSPACE_REFUSED, "copy-on-write workspace");
    }
    auto_fd int mnt = sys_fsmount(fs, MOUNT_GUARD_ATTRS);
    if (mnt < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED, "overlay");
    /* When the kernel could not prepare `work` it mounts read-only and says so only in its log. */
    auto_fd int probe = openat(mnt, ".cove-probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (probe < 0 || unlinkat(mnt, ".cove-probe", 0) < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED, "copy-on-write workspace is not writable");
    *ret = take_fd(&mnt);
    return 0;
}
