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
#include "inside/confine/caps.h"
#include "inside/confine/proc_mount.h"
#include "host/isolate/rlimits_seccomp.h"
#include "host/isolate/sandbox_mounts.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
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

/* A joinable sandbox has its own network namespace; with egress, the spawner sets it up. */
static int sandbox_child_setup_netns(const struct sandbox_child *s, struct err *err)
{
    return s->template->joinable && !s->template->egress ? native_setup_netns(s->template, err) : 0;
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

static int sandbox_child_attach_lent(const struct sandbox_child *s, struct err *err)
{
    struct lent_bind binds[NATIVE_MOUNTS];

    if (sandbox_mounts_attach_workspace(s->spec, err) < 0)
        return -1;
    return binds_attach(binds, sandbox_mounts_get_binds(s->spec, binds), err);
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
        sandbox_child_become_user(s, &err) < 0 ||
        proc_mount(s->template->root.masks, s->template->root.nmasks, &err) < 0 ||
        sandbox_mounts_add_scratch(s->spec, &err) < 0 || sandbox_child_attach_lent(s, &err) < 0 || chdir("/") < 0)
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
