/* Entering a pid namespace takes a fork, and the process that enters must not be the parent of the
 * one that stays: a parent outside the sandbox would have to reap it instead of the sandbox's PID
 * 1. So three processes follow each other:
 *
 *     joiner       enters the namespaces; shares our memory, and we sleep until it exits
 *     first        is the first process inside; shares our memory too
 *     interpreter  is forked by `first`, and inherited by PID 1 when `first` exits
 *
 * Only the last one is a real fork, so page tables are copied once.
 *
 * Invariants
 * 1. joiner and first share our memory and run on their own stacks. They only make system calls and
 *    fork.
 * 2. The interpreter joins the cgroups, never an earlier process: a joiner in a group that is
 *    frozen or has used up its CPU time would block us, and with us every other sandbox of the
 *    template.
 * 3. The interpreter runs no untrusted code before the last step of join_raise_walls has succeeded;
 *    a failed step ends it. */
#include "host/zygote/join.h"

#include "core/base/fd.h"
#include "core/base/deny_openat2.h"
#include "core/base/mutate.h"
#include "inside/confine/caps.h"
#include "host/isolate/rlimits_seccomp.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ALL_NAMESPACES \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define CLONE_STACK_BYTES (64 * KIB)                              /* fork handlers of libraries run on the second one */
#define JOIN_ON_OWN_STACK __attribute__((no_sanitize("address"))) /* ASan would report it as corrupt */
#define KERNEL_FD 3
#define MONITOR_FD 4

static struct {
    const struct join_request *j;
    int sys;           /* errno of the joiner's failure */
    const char *where; /* failed step; NULL: none */
    jmp_buf home;
    uint8_t stacks[2][CLONE_STACK_BYTES] __attribute__((aligned(16)));
} join_shared;

/* --- interpreter --- */

static int join_enter_cgroups(const struct join_request *j, struct err *err)
{
    const struct cgroup_entry *c = &j->spec->cgroup;

    for (size_t i = 0; i < c->nprocs && !wall_is_mutated("cgroup"); i++)
        if (write(c->procs[i], "0", 1) != 1)
            return err_sys(err, ERR_WALL_MISSING, "join a cgroup");
    return 0;
}

/* Signal and umask settings of the zygote must not reach the sandbox. */
static int join_reset_process(struct err *err)
{
    stack_t off = { .ss_flags = SS_DISABLE };
    sigset_t none;

    for (int sig = 1; sig < NSIG && !wall_is_mutated("inherited-signals"); sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigemptyset(&none);
    if (!wall_is_mutated("inherited-signals"))
        sigprocmask(SIG_SETMASK, &none, NULL);
    (void)sigaltstack(&off, NULL);
    if (!wall_is_mutated("inherited-umask"))
        umask(022);
    if (setsid() < 0)
        return err_sys(err, ERR_SYS, "session");
    return 0;
}

/* Called as the sandbox's user: the kernel counts keyrings per user and allows 200, and one zygote
 * can have more interpreters. */
static int join_new_keyring(struct err *err)
{
    if (!wall_is_mutated("keyring") && sys_new_keyring() < 0 && errno != ENOSYS)
        return err_sys(err, ERR_WALL_MISSING, "session keyring");
    return 0;
}

static int join_become_user(const struct join_request *j, struct err *err)
{
    if (!j->template->rootless && !wall_is_mutated("groups") && setgroups(0, NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "drop supplementary groups");
    if (setresgid(NATIVE_UID, NATIVE_UID, NATIVE_UID) < 0 || setresuid(NATIVE_UID, NATIVE_UID, NATIVE_UID) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot become the sandbox's user");
    return 0;
}

static int join_arrange_fds(const struct join_request *j, int *kernel, struct err *err)
{
    int keep[] = { j->kernel, j->monitor };
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(j->out, STDOUT_FILENO) < 0 ||
        dup2(j->err_out, STDERR_FILENO) < 0 || fd_keep_only(keep, j->monitor >= 0 ? 2 : 1) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot arrange descriptors");
    *kernel = KERNEL_FD; /* stays close-on-exec: children of the program must not inherit it */
    return 0;
}

static int join_raise_walls(const struct join_request *j, int *kernel, struct err *err)
{
    if (join_enter_cgroups(j, err) < 0 || join_reset_process(err) < 0 || join_become_user(j, err) < 0 ||
        join_new_keyring(err) < 0 || join_arrange_fds(j, kernel, err) < 0 || rlimits_apply(j->spec, err) < 0)
        return -1;
    if (chdir("/workspace") < 0)
        return err_sys(err, ERR_SYS, "/workspace");
    if (caps_drop_all(err) < 0)
        return -1;
    /* The change of identity cleared it, and without it the program cannot read its own /proc/self.
     * No secret that other programs of the sandbox must not see is left in this process. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "dumpable");
    if (deny_openat2() < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot install the openat2 filter");
    return seccomp_install_filter(j->template, j->spec, MONITOR_FD, err);
}

static int join_become_interpreter(const struct join_request *j)
{
    struct err err = { 0 };
    int kernel = j->kernel;

    if (join_raise_walls(j, &kernel, &err) == 0)
        return 1;
    j->spec->report_failure(kernel, &err);
    _exit(125);
}

/* --- on shared memory --- */

static NORETURN JOIN_ON_OWN_STACK void join_fail(const char *where)
{
    join_shared.sys = errno;
    join_shared.where = where;
    _exit(1);
}

static JOIN_ON_OWN_STACK int join_fork_inside(void *unused UNUSED)
{
    pid_t pid = fork();

    if (pid == 0)
        longjmp(join_shared.home, 1);
    if (pid < 0)
        join_fail("cannot fork inside the sandbox");
    _exit(0);
}

static JOIN_ON_OWN_STACK int join_enter_namespaces(void *unused UNUSED)
{
    int status = -1;

    if (setns(join_shared.j->pidfd, ALL_NAMESPACES) < 0)
        join_fail("cannot enter the namespaces");
    pid_t pid = clone(join_fork_inside, join_shared.stacks[1] + CLONE_STACK_BYTES, CLONE_VM | CLONE_VFORK, NULL);
    if (pid < 0)
        join_fail("cannot enter the pid namespace");
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    _exit(status != 0);
}

int join_fork(const struct join_request *j, struct err *err)
{
    int status = -1;

    join_shared.j = j;
    join_shared.sys = 0;
    join_shared.where = NULL;
    if (setjmp(join_shared.home)) /* in the interpreter: a full copy of us, so this frame still exists */
        return join_become_interpreter(join_shared.j);
    pid_t pid = clone(join_enter_namespaces, join_shared.stacks[0] + CLONE_STACK_BYTES, CLONE_VM | CLONE_VFORK, NULL);
    if (pid < 0)
        return err_sys(err, ERR_SYS, "clone");
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    if (status == 0)
        return 0;
    errno = join_shared.sys;
    if (join_shared.where) /* ESRCH: the sandbox has ended meanwhile */
        return err_sys(err, join_shared.sys == ESRCH ? ERR_LOST : ERR_SYS, "%s", join_shared.where);
    return err_set(err, ERR_LOST, "the process that was to enter the sandbox was killed");
}
