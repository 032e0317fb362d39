#include "host/isolate/sys.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define FSCONFIG_FLAG 0u
#define FSCONFIG_STRING 1u
#define FSCONFIG_FD 5u
#define FSCONFIG_CREATE 6u
#define FSOPEN_CLOEXEC_ 1u
#define FSMOUNT_CLOEXEC_ 1u
#define JOIN_SESSION_KEYRING 1

pid_t sys_clone3(const struct sys_clone *args)
{
    struct clone_args a = {
        .flags = args->flags,
        .exit_signal = SIGCHLD,
        .pidfd = (uint64_t)(uintptr_t)args->pidfd,
        .cgroup = (uint64_t)(unsigned)args->cgroup,
    };

    if (!(args->flags & CLONE_INTO_CGROUP))
        a.cgroup = 0;
    return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dirfd, path, flags | OPEN_TREE_CLOEXEC);
}

int sys_fsopen(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC_);
}

int sys_fsconfig_str(int fs, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_STRING, key, value, 0);
}

int sys_fsconfig_flag(int fs, const char *key)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_FLAG, key, NULL, 0);
}

int sys_fsconfig_fd(int fs, const char *key, int fd)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_FD, key, NULL, fd);
}

int sys_fsconfig_create(int fs)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_CREATE, NULL, NULL, 0);
}

int sys_fsmount(int fs, unsigned attrs)
{
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC_, attrs);
}

int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

int sys_pidfd_send_signal(int pidfd, int signo)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0);
}

int sys_new_keyring(void)
{
    return (int)syscall(SYS_keyctl, JOIN_SESSION_KEYRING, NULL);
}

int sys_prlimit(int what, const struct rlimit *next, struct rlimit *now)
{
    return (int)syscall(SYS_prlimit64, 0, what, next, now);
}

#define IOPRIO_CLASS(value) ((value) >> 13)
#define IOPRIO_REALTIME 1
#define IOPRIO_NONE 0

static int sys_reset_oom_score(void)
{
    auto_fd int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (read(fd, text, sizeof(text) - 1) < 0)
        return -1;
    return text[0] == '-' && write(fd, "0", 1) != 1 ? -1 : 0;
}

int sys_reset_priorities(void)
{
    const struct sched_param none = { 0 };
    long policy = syscall(SYS_sched_getscheduler, 0);

    if (policy < 0)
        return -1;
    bool realtime = policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE;
    if (realtime && syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none) < 0)
        return -1;
    if (getpriority(PRIO_PROCESS, 0) < 0 && setpriority(PRIO_PROCESS, 0, 0) < 0)
        return -1;
    if (IOPRIO_CLASS(syscall(SYS_ioprio_get, 1, 0)) == IOPRIO_REALTIME &&
        syscall(SYS_ioprio_set, 1, 0, IOPRIO_NONE) < 0)
        return -1;
    return sys_reset_oom_score();
}

void sys_parent_death_save(struct sys_parent_death *b)
{
    *b = (struct sys_parent_death){ 0 };
    if (prctl(PR_GET_PDEATHSIG, &b->signo, 0, 0, 0) < 0)
        b->signo = 0;
    b->parent = getppid();
}

void sys_parent_death_restore(const struct sys_parent_death *b)
{
    if (b->signo && prctl(PR_SET_PDEATHSIG, b->signo, 0, 0, 0) == 0 && getppid() != b->parent)
        raise(b->signo); /* the parent died in between */
}
