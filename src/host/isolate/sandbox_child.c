/* The order in which walls are raised is critical for security, so it is one list in
 * sandbox_child_main, and each step is one function.
 *
 * Invariants
 * 1. Nothing here allocates, logs or touches memory shared with the spawner: between clone and exec
 *    only system calls are made.
 * 2. A step that fails ends the child. No step may be skipped.
 * 3. The cgroups come first and the filter last: no instruction runs outside the limits, and the
 *    filter may forbid calls that earlier steps need.
 * 4. Steps that do not need the id maps come before the wait for them, so that the child works
 *    while the spawner writes the maps. */
#include "host/isolate/sandbox_child.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "host/isolate/caps.h"
#include "host/isolate/rlimits_seccomp.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define CONTROL_FD 3
#define MONITOR_FD 4 /* closed when the filter is installed */

static int sandbox_child_join_cgroups(const struct sandbox_child *s, struct err *err)
{
    const struct cgroup_entry *c = &s->spec->cgroup;

    for (size_t i = 0; i < c->nprocs && !wall_is_mutated("cgroup"); i++)
        if (write(c->procs[i], "0", 1) != 1)
            return err_sys(err, ERR_WALL_MISSING, "join a cgroup");
    /* Must follow the joins: a cgroup namespace made by clone3 would show the spawner's path on the
     * host. */
    if (!wall_is_mutated("cgroup-namespace") && unshare(CLONE_NEWCGROUP) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cgroup namespace");
    return 0;
}

static int sandbox_child_reset_process(const struct sandbox_child *s, struct err *err)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    if (setsid() < 0)
        return err_sys(err, ERR_SYS, "session");
    if (!wall_is_mutated("keyring") && sys_new_keyring() < 0 && errno != ENOSYS)
        return err_sys(err, ERR_WALL_MISSING, "session keyring");
    if (sethostname(s->spec->hostname, strlen(s->spec->hostname)) < 0)
        return err_sys(err, ERR_WALL_MISSING, "host name");
    return 0;
}

/* A joinable sandbox has its own network namespace. */
static int sandbox_child_setup_netns(const struct sandbox_child *s, struct err *err)
{
    return s->template->joinable ? native_setup_netns(s->template, err) : 0;
}

static int sandbox_child_wait_for_id_maps(const struct sandbox_child *s, struct err *err)
{
    uint64_t go;

    if (read(s->id_maps_ready, &go, sizeof(go)) != (ssize_t)sizeof(go))
        return err_sys(err, ERR_SYS, "id maps");
    return 0;
}

static int sandbox_child_become_user(const struct sandbox_child *s, struct err *err)
{
    /* Without root the kernel forbids dropping groups, because a process could otherwise open a
     * file that denies access to a group by leaving that group. */
    if (!s->template->rootless && !wall_is_mutated("groups") && setgroups(0, NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "drop supplementary groups");
    if (setresgid(NATIVE_UID, NATIVE_UID, NATIVE_UID) < 0 || setresuid(NATIVE_UID, NATIVE_UID, NATIVE_UID) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot become the sandbox's user");
    /* The kernel clears it at every change of identity. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "death signal");
    return 0;
}

/* --- file systems --- */

static int sandbox_child_mount_tmpfs(const char *where, uint64_t bytes, uint64_t inodes, const char *mode,
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

/* Covers one entry of the fresh /proc. Uses paths and mount(2): this is the only process here, so
 * no path can change meanwhile, and the newer calls are slower because each makes a namespace for
 * the detached mount. */
static int sandbox_child_mask_proc_entry(const char *name, bool dir, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%s", name);
    if (mount(dir ? "/.cove/empty" : "/dev/null", path, NULL, MS_BIND, NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mask %s", path);
    return 0;
}

static int sandbox_child_mount_proc(const struct sandbox_child *s, struct err *err)
{
    const struct template_root *r = &s->template->root;
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

    if (wall_is_mutated("proc"))
        return 0;
    if (mount("proc", "/proc", "proc", flags, wall_is_mutated("hidepid") ? NULL : "hidepid=invisible") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /proc");
    if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND | flags | (wall_is_mutated("proc-sys") ? 0 : MS_RDONLY),
              NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /proc/sys read-only");
    for (size_t i = 0; i < r->nmasks && !wall_is_mutated("masks"); i++)
        if (sandbox_child_mask_proc_entry(r->masks[i], r->mask_is_dir[i], err) < 0)
            return -1;
    return 0;
}

static bool sandbox_child_has_workspace(const struct native_spec *spec)
{
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE)
            return true;
    return false;
}

static int sandbox_child_mount_scratch(const struct sandbox_child *s, struct err *err)
{
    const uint64_t *v = s->spec->limits.v;

    /* The host has a few thousand terminals for all sandboxes together; one sandbox must not
     * exhaust them. */
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /dev/pts");
    if (sandbox_child_mount_tmpfs("/dev/shm", v[LIMIT_SHM], v[LIMIT_TMP_INODES], "1777", MS_NOEXEC, err) < 0 ||
        sandbox_child_mount_tmpfs("/tmp", v[LIMIT_TMP], v[LIMIT_TMP_INODES], "1777", 0, err) < 0)
        return -1;
    if (sandbox_child_has_workspace(s->spec))
        return 0;
    return sandbox_child_mount_tmpfs("/workspace", v[LIMIT_WORKSPACE], v[LIMIT_WORKSPACE_INODES], "0755", 0, err);
}

/* Makes the missing components of `path`, which is below /mnt or /workspace; the last one is a file
 * if `file` is set. */
static int sandbox_child_make_mount_target(const char *path, bool file, struct err *err)
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

static int sandbox_child_attach_mount(const struct native_mount *m, const char *dst, struct err *err)
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

static int sandbox_child_mount_lent(const struct sandbox_child *s, struct err *err)
{
    const struct native_spec *spec = s->spec;
    struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
    bool mnt = false;

    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE &&
            sandbox_child_attach_mount(&spec->mounts[i], "/workspace", err) < 0)
            return -1;
    for (size_t i = 0; i < spec->nmounts; i++) {
        const struct native_mount *m = &spec->mounts[i];
        struct stat st;

        if (m->kind != NATIVE_BIND)
            continue;
        if (!mnt && str_starts(m->dst, "/mnt/")) {
            if (sandbox_child_mount_tmpfs("/mnt", 64 * KIB, 256, "0755", 0, err) < 0)
                return -1;
            mnt = true;
        }
        if (fstat(m->fd, &st) < 0)
            return err_sys(err, ERR_BIND_SOURCE, "%s", m->dst);
        if ((str_starts(m->dst, "/mnt/") || str_starts(m->dst, "/workspace/")) &&
            sandbox_child_make_mount_target(m->dst, !S_ISDIR(st.st_mode), err) < 0)
            return -1;
        if (sandbox_child_attach_mount(m, m->dst, err) < 0)
            return -1;
    }
    if (mnt && sys_mount_setattr(AT_FDCWD, "/mnt", 0, &ro) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /mnt read-only");
    return 0;
}

/* --- last steps --- */

/* Keeps the control socket, and the socket to the monitor if there is one. */
static int sandbox_child_close_other_fds(const struct sandbox_child *s, int *control, struct err *err)
{
    int keep[] = { s->spec->control, s->template->monitor };

    if (fd_keep_only(keep, s->template->monitor >= 0 ? 2 : 1) < 0)
        return err_sys(err, ERR_WALL_MISSING, "close descriptors");
    *control = CONTROL_FD;
    if (fcntl(CONTROL_FD, F_SETFD, 0) < 0)
        return err_sys(err, ERR_SYS, "control descriptor");
    return 0;
}

static int sandbox_child_exec_runtime(struct err *err)
{
    char *const argv[] = { (char *)(uintptr_t) "cove-runtime", NULL };

    execve("/.cove/runtime", argv, mutated_environment());
    return err_sys(err, ERR_SYS, "cannot start the runtime");
}

NORETURN void sandbox_child_main(const struct sandbox_child *s)
{
    struct err err = { 0 };
    int control = s->spec->control;

    if (sandbox_child_join_cgroups(s, &err) < 0 || sandbox_child_reset_process(s, &err) < 0 ||
        sandbox_child_setup_netns(s, &err) < 0 || sandbox_child_wait_for_id_maps(s, &err) < 0 ||
        sandbox_child_become_user(s, &err) < 0 || sandbox_child_mount_proc(s, &err) < 0 ||
        sandbox_child_mount_scratch(s, &err) < 0 || sandbox_child_mount_lent(s, &err) < 0 || chdir("/") < 0)
        goto failed;
    if (sandbox_child_close_other_fds(s, &control, &err) < 0 || rlimits_apply(s->spec, &err) < 0 ||
        caps_drop_all(&err) < 0 || seccomp_install_filter(s->template, s->spec, MONITOR_FD, &err) < 0)
        goto failed;
    (void)sandbox_child_exec_runtime(&err);
failed:
    if (err.id == ERR_NONE)
        err_sys(&err, ERR_SYS, "cannot enter the root");
    s->spec->report_failure(control, &err);
    _exit(125);
}
