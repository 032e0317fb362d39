/* Bubblewrap is not set-uid here and needs no privilege: its child has the sandbox's own uid, which
 * no other process of the host has, and no capability. For a plain user it has the user's uid.
 *
 * Bubblewrap and its libraries are files of the host, read from the template's root. A bind may lie
 * over any of them, so it is attached by the runtime, after Bubblewrap: the detached mounts are
 * descriptors that Bubblewrap leaves open. Only /workspace, from which nothing is loaded, is
 * attached before.
 *
 * Between clone and exec only system calls are made, as in host/isolate/sandbox_child.c, and a step
 * that fails ends the child. Bubblewrap stays as the parent of PID 1: if it is killed, PID 1 is
 * killed too (--die-with-parent), so the jailer may treat it as the sandbox. It is in the cgroup,
 * where it counts as one process. */
#include "host/bwrap/bwrap.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "core/wire/boot_file.h"
#include "host/bwrap/bwrap_args.h"
#include "host/isolate/rlimits_seccomp.h"
#include "host/isolate/sandbox_mounts.h"
#include "host/isolate/sys.h"
#include "inside/confine/caps.h"
#include "policy/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct bwrap_args bwrap_next_args; /* touched memory costs no page fault */

int bwrap_set_template(struct native_template *t, struct err *err)
{
    _Static_assert(ROOT_MASKS_MAX <= BOOT_MASKS_MAX, "every mask fits");
    _Static_assert(NATIVE_MOUNTS <= BOOT_BINDS_MAX, "every bind fits");
    static struct native_filter plain;
    struct boot_file_header head = { .nmasks = (uint32_t)t->root.nmasks };

    if (access(DRIVER_BWRAP_PROGRAM, X_OK) < 0)
        return err_set(err, ERR_DRIVER_UNAVAILABLE,
                       "driver bwrap: " DRIVER_BWRAP_PROGRAM ": %s; apt install bubblewrap, or use driver native",
                       strerror(errno));
    if (filter_build(&t->calls, false, plain.prog, &plain.len, err) < 0)
        return -1;
    if (boot_namespaces_get(t->root.proc, &head.made_by, err) < 0)
        return -1;
    head.notify = t->monitor >= 0 ? (uint32_t)t->filter.len : 0;
    head.plain = (uint32_t)plain.len;
    for (size_t i = 0; i < t->root.nmasks; i++) {
        head.masks[i].is_dir = t->root.masks[i].is_dir;
        (void)str_copy(head.masks[i].name, sizeof(head.masks[i].name), t->root.masks[i].name);
    }
    t->boot_file = boot_file_make(&head, t->filter.prog, plain.prog, err);
    return t->boot_file < 0 ? -1 : 0;
}

/* --- in the child --- */

static int bwrap_join_cgroups(const struct native_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->cgroup.nprocs && !wall_is_mutated("cgroup"); i++)
        if (write(spec->cgroup.procs[i], "0", 1) != 1)
            return err_sys(err, ERR_WALL_MISSING, "join a cgroup");
    return 0;
}

static int bwrap_reset_process(struct err *err)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    return setsid() < 0 ? err_sys(err, ERR_SYS, "session") : 0;
}

/* The securebits of the spawner let the child keep its capabilities, for the mounts. A plain user
 * has no second uid: the child stays what the spawner is, root of a user namespace in which 0 is
 * the user. */
static int bwrap_take_uid(const struct native_template *t, const struct native_spec *spec, struct err *err)
{
    uid_t uid = spec->host_uid;

    if (!t->rootless && ((!wall_is_mutated("groups") && setgroups(0, NULL) < 0) || setresgid(uid, uid, uid) < 0 ||
                         setresuid(uid, uid, uid) < 0))
        return err_sys(err, ERR_WALL_MISSING, "cannot become the sandbox's user");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "death signal");
    if (!wall_is_mutated("keyring") && sys_new_keyring() < 0 && errno != ENOSYS)
        return err_sys(err, ERR_WALL_MISSING, "session keyring");
    return 0;
}

/* A plain user's child is uid 0 of the spawner's user namespace. Only a process with CAP_SETFCAP
 * there may map that uid into a namespace below, which is all that Bubblewrap does with it. */
static int bwrap_drop_capabilities(const struct native_template *t, struct err *err)
{
    return t->rootless ? caps_keep_only(CAP_SETFCAP, err) : caps_drop_all(err);
}

static int bwrap_keep_fds(const struct native_template *t, const struct native_spec *spec, int messages, int *control,
                          struct err *err)
{
    struct lent_bind binds[NATIVE_MOUNTS];
    size_t nbinds = sandbox_mounts_get_binds(spec, binds), n = 0;
    int keep[3 + NATIVE_MOUNTS];

    _Static_assert(BOOT_FILE_FD == 4 && BOOT_MONITOR_FD == 5, "the order of keep");
    keep[n++] = spec->control;
    keep[n++] = t->boot_file;
    if (t->monitor >= 0)
        keep[n++] = t->monitor;
    for (size_t i = 0; i < nbinds; i++)
        keep[n++] = binds[i].fd;
    if (dup2(messages, STDERR_FILENO) < 0 || fd_keep_only(keep, n) < 0)
        return err_sys(err, ERR_WALL_MISSING, "close descriptors");
    *control = keep[0];
    for (size_t i = 0; i < n; i++)
        if (fcntl(keep[i], F_SETFD, 0) < 0)
            return err_sys(err, ERR_SYS, "descriptors of the runtime");
    return 0;
}

static NORETURN void bwrap_child_main(const struct native_template *t, const struct native_spec *spec, int messages)
{
    struct err err = { 0 };
    int control = spec->control;

    if (bwrap_join_cgroups(spec, &err) < 0 || bwrap_reset_process(&err) < 0 || bwrap_take_uid(t, spec, &err) < 0 ||
        sandbox_mounts_add_scratch(spec, &err) < 0 || sandbox_mounts_attach_workspace(spec, &err) < 0 ||
        bwrap_keep_fds(t, spec, messages, &control, &err) < 0 || rlimits_apply(spec, &err) < 0 ||
        bwrap_drop_capabilities(t, &err) < 0)
        goto failed;
    execve(DRIVER_BWRAP_PROGRAM, (char *const *)(uintptr_t)bwrap_next_args.argv, mutated_environment());
    err_sys(&err, ERR_DRIVER_UNAVAILABLE, "cannot start " DRIVER_BWRAP_PROGRAM);
failed:
    spec->report_failure(control, &err);
    _exit(125);
}

/* --- in the spawner --- */

int bwrap_spawn(struct native_template *t, const struct native_spec *spec, struct native_process *ret, struct err *err)
{
    auto_fd int pidfd = -1;
    struct sys_clone args = { .flags = CLONE_NEWNS | CLONE_PIDFD, .pidfd = &pidfd, .cgroup = spec->cgroup.v2_dir };
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    auto_fd int messages = ends[0], said = ends[1];
    if (native_prepare_netns(t, err) < 0)
        return -1;
    if (args.cgroup >= 0)
        args.flags |= CLONE_INTO_CGROUP;
    bwrap_args_build(&bwrap_next_args, spec);
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        bwrap_child_main(t, spec, said);
    if (pid < 0)
        return native_clone_failed(err);
    t->net_ready = false;
    *ret = (struct native_process){ .pid = pid, .pidfd = take_fd(&pidfd), .messages = take_fd(&messages) };
    return 0;
}

int bwrap_wait_status(int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    return code > 128 ? code - 128 : status; /* a wait status that is a number below 128 is a signal */
}

bool bwrap_read_failure(int messages, struct err *err)
{
    char text[256];
    ssize_t n = read(messages, text, sizeof(text) - 1);

    if (n <= 0)
        return false;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    str_strip_control_chars(text);
    err_set(err, ERR_DRIVER_UNAVAILABLE, "%s", text);
    return true;
}
