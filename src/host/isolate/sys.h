/* sys.h - system calls that libc does not wrap, and constants that Debian's kernel headers do not
 * define yet.
 *
 * Each function returns what the kernel returns: -1 and errno on failure. Nothing here allocates,
 * so all of it may be used between clone and exec. */
#pragma once

#include "core/base/base.h"

#include <linux/mount.h>
#include <sched.h>
#include <sys/resource.h>

struct sys_clone {
    uint64_t flags;
    int *pidfd; /* result; used if flags has CLONE_PIDFD */
    int cgroup; /* directory descriptor; used if flags has CLONE_INTO_CGROUP */
};

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ull
#endif

pid_t sys_clone3(const struct sys_clone *args); /* like fork: 0 in the child */
int sys_open_tree(int dirfd, const char *path, unsigned flags);
int sys_fsopen(const char *type);
int sys_fsconfig_str(int fs, const char *key, const char *value);
int sys_fsconfig_flag(int fs, const char *key);
int sys_fsconfig_fd(int fs, const char *key, int fd);
int sys_fsconfig_create(int fs);
int sys_fsmount(int fs, unsigned attrs);
int sys_pivot_root(const char *new_root, const char *put_old);
int sys_pidfd_send_signal(int pidfd, int signo);
int sys_new_keyring(void); /* joins a new session keyring */
/* Limits of the calling process. C libraries disagree on the type of the first argument of
 * prlimit. */
int sys_prlimit(int what, const struct rlimit *next, struct rlimit *now);
/* Drops inherited advantages over other processes: a negative nice value, a real-time policy, a
 * negative out-of-memory score. A sandbox would inherit all of them and must not have them. */
int sys_reset_priorities(void);

/* The kernel clears the parent-death signal whenever the identity of a process changes, even
 * briefly. Save it before such a change and restore it afterwards. */
struct sys_parent_death {
    int signo;
    pid_t parent;
};
void sys_parent_death_save(struct sys_parent_death *b);
void sys_parent_death_restore(const struct sys_parent_death *b);
