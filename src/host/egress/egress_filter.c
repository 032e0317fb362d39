#include "host/egress/egress_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#endif

static const UNUSED unsigned short egress_calls[] = {
    __NR_accept4,
    __NR_bind,
    __NR_brk,
    __NR_clock_gettime,
    __NR_clock_nanosleep,
    __NR_close,
    __NR_connect,
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    __NR_exit,
    __NR_exit_group,
    __NR_fcntl,
    __NR_fstat,
    __NR_futex,
    __NR_getpeername,
    __NR_getpid,
    __NR_getppid,
    __NR_getrandom,
    __NR_getsockname,
    __NR_getsockopt,
    __NR_gettid,
    __NR_gettimeofday,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_listen,
    __NR_lseek,
    __NR_madvise,
    __NR_mmap,
    __NR_mprotect,
    __NR_mremap,
    __NR_munmap,
    __NR_ppoll,
    __NR_prlimit64,
    __NR_read,
    __NR_readv,
    __NR_recvfrom,
    __NR_recvmsg,
    __NR_restart_syscall,
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sched_yield,
    __NR_sendmsg,
    __NR_sendto,
    __NR_setsockopt,
    __NR_shutdown,
    __NR_sigaltstack,
    __NR_socket,
    __NR_tgkill,
    __NR_write,
    __NR_writev,
    __NR_newfstatat,
    __NR_uname,
    __NR_unlinkat,
#ifdef __NR_epoll_wait
    __NR_epoll_wait,
#endif
#ifdef __NR_poll
    __NR_poll,
#endif
#ifdef __NR_time
    __NR_time,
#endif
#ifdef __NR_unlink
    __NR_unlink, /* its own socket, at the end */
#endif
};

int egress_filter_install(void)
{
#if !defined(FILTER_ARCH) || defined(EGRESS_SANITIZED)
    return 0; /* a sanitizer needs more calls, and reads files at the end */
#else
    enum { HEAD = 8, CALLS = sizeof(egress_calls) / sizeof(egress_calls[0]) };
    struct sock_filter program[HEAD + CALLS + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])), /* little-endian: the low half */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ACCMODE | O_CREAT | O_TRUNC, CALLS, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog fprog = { .len = HEAD + CALLS + 2, .filter = program };

    _Static_assert(CALLS < 255, "a jump has 8 bits");
    for (unsigned i = 0; i < CALLS; i++)
        program[HEAD + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, egress_calls[i],
                                                         (uint8_t)(CALLS - i), 0);
    program[HEAD + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    program[HEAD + CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &fprog);
#endif
}
