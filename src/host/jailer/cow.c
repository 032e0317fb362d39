/* Since Linux 6.13 overlayfs accepts its layers as descriptors, which may be detached mounts. Older
 * kernels accept only paths, and only paths of mounts in the mount namespace of the caller. The
 * jailer runs in the host's mount namespace, where nothing of a sandbox may appear. On an older
 * kernel, a child with its own mount namespace therefore attaches the layers, creates the overlay
 * in the file system context that the jailer opened, and exits. The overlay keeps its own
 * references to the layers' mounts, so the child's namespace is not needed afterwards. */
#include "host/jailer/cow.h"

#include "core/base/fd.h"
#include "host/isolate/sys.h"
#include "inside/confine/mount_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MOUNT_GUARD_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define COW_STAGE_DIR "/tmp" /* mount point in the child; a directory that every host has */

/* Makes an empty tmpfs with the directories `upper` and `work`, within the sandbox's disk
 * limits. */
static int cow_make_scratch_layer(uid_t host, const struct limits *lim, int *ret, struct err *err)
{
    static const char *const dirs[] = { "upper", "work" };
    char size[32], inodes[32];
    auto_fd int fs = sys_fsopen("tmpfs");

    snprintf(size, sizeof(size), "%" PRIu64, lim->v[LIMIT_WORKSPACE]);
    snprintf(inodes, sizeof(inodes), "%" PRIu64,
             lim->v[LIMIT_WORKSPACE_INODES] + 8); /* overlayfs uses a few inodes itself */
    if (fs < 0 || sys_fsconfig_str(fs, "size", size) < 0 || sys_fsconfig_str(fs, "nr_inodes", inodes) < 0 ||
        sys_fsconfig_str(fs, "mode", "0700") < 0 || sys_fsconfig_create(fs) < 0)
        return err_sys(err, ERR_SYS, "cannot mount a tmpfs for the workspace");
    auto_fd int mnt = sys_fsmount(fs, MOUNT_GUARD_ATTRS);
    if (mnt < 0)
        return err_sys(err, ERR_SYS, "cannot mount a tmpfs for the workspace");
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(mnt, dirs[i], 0755) < 0 || fchownat(mnt, dirs[i], host, host, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, ERR_SYS, "cannot make the layer directories of the workspace");
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

/* --- kernels before 6.13 --- */

static int cow_attach_layer(int tree, const char *path)
{
    return mkdir(path, 0700) < 0 ? -1 : mount_call_move(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
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
    if (pid == 0) { /* the child holds all our descriptors, locks included, so it must not outlive us */
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
        fd_close(&fs); /* options that the context already accepted cannot be undone */
        fs = sys_fsopen("overlay");
        if (fs < 0 || cow_overlay_from_paths(fs, lower, scratch, rootless) < 0)
            return err_sys(err, ERR_WORKSPACE_REFUSED, "cannot mount the copy-on-write workspace");
    }
    auto_fd int mnt = sys_fsmount(fs, MOUNT_GUARD_ATTRS);
    if (mnt < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED, "overlay");
    /* If the kernel cannot prepare `work`, it mounts read-only and reports that only in its log. */
    auto_fd int probe = openat(mnt, ".cove-probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (probe < 0 || unlinkat(mnt, ".cove-probe", 0) < 0)
        return err_sys(err, ERR_WORKSPACE_REFUSED,
                       "the copy-on-write workspace is mounted read-only; see the kernel log");
    *ret = take_fd(&mnt);
    return 0;
}
