/* SC: the kernel's surface. Arguments are chosen so that the kernel itself would answer
 * differently from the filter: a call that gets EINVAL or EBADF passed the filter. */
#include "probe.h"

#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>

#define POLICY EPERM, ENOSYS

static void sc01(struct outcome *o)
{
    uint32_t attr[32] = { 2 /* BPF_MAP_TYPE_ARRAY */, 4, 4, 1 };

    REFUSED(o, "bpf(MAP_CREATE)", syscall(321, 0, attr, sizeof attr), EPERM);
}

static void sc02(struct outcome *o)
{
    uint64_t attr[16] = { 1 | 128ull << 32 };

    attr[5] = 1ull << 5 | 1ull << 6; /* exclude_kernel, exclude_hv */
    REFUSED(o, "perf_event_open", syscall(298, attr, 0, -1, -1, 0), EPERM, EACCES);
}

static void sc03(struct outcome *o)
{
    REFUSED(o, "userfaultfd", syscall(323, 1 /* UFFD_USER_MODE_ONLY */), POLICY);
}

static void sc04(struct outcome *o)
{
    uint32_t params[30] = { 0 };

    REFUSED(o, "io_uring_setup", syscall(425, 4, params), ENOSYS);
    REFUSED(o, "io_uring_enter", syscall(426, -1, 0, 0, 0, 0, 0), ENOSYS);
    REFUSED(o, "io_uring_register", syscall(427, -1, 0, 0, 0), ENOSYS);
}

static void sc05(struct outcome *o)
{
    REFUSED(o, "keyctl(JOIN_SESSION)", syscall(SYS_keyctl, 1, NULL), POLICY);
    REFUSED(o, "keyctl(GET_KEYRING_ID)", syscall(SYS_keyctl, 0, -3, 1), POLICY);
}

static void sc06(struct outcome *o)
{
    REFUSED(o, "add_key", syscall(SYS_add_key, "user", "cove-probe", "x", 1, -3), POLICY);
}

static void sc07(struct outcome *o)
{
    REFUSED(o, "request_key", syscall(SYS_request_key, "user", "cove-probe", NULL, -3), POLICY);
}

static void sc08(struct outcome *o)
{
    REFUSED(o, "kexec_load", syscall(SYS_kexec_load, 0, 99, NULL, 0xffffffffu), POLICY);
}

static void sc09(struct outcome *o)
{
    REFUSED(o, "kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0xffu), POLICY);
}

static void sc10(struct outcome *o)
{
    REFUSED(o, "init_module", syscall(SYS_init_module, NULL, 0, ""), POLICY);
}

static void sc11(struct outcome *o)
{
    REFUSED(o, "finit_module", syscall(SYS_finit_module, -1, "", 0), POLICY);
}

static void sc12(struct outcome *o)
{
    REFUSED(o, "delete_module", syscall(SYS_delete_module, "cove_no_such", 0), POLICY);
}

static void sc13(struct outcome *o)
{
    REFUSED(o, "reboot", syscall(SYS_reboot, 1, 2, 3, NULL), EPERM);
}

static void sc14(struct outcome *o)
{
    REFUSED(o, "swapon", syscall(SYS_swapon, "/tmp/none", 0), EPERM);
}

static void sc15(struct outcome *o)
{
    REFUSED(o, "swapoff", syscall(SYS_swapoff, "/tmp/none"), EPERM);
}

static void sc16(struct outcome *o)
{
#ifdef SYS_iopl
    REFUSED(o, "iopl", syscall(SYS_iopl, 3), POLICY);
#else
    held(o, "this CPU has no iopl");
#endif
}

static void sc17(struct outcome *o)
{
#ifdef SYS_ioperm
    REFUSED(o, "ioperm", syscall(SYS_ioperm, 0x80, 1, 1), POLICY);
#else
    held(o, "this CPU has no ioperm");
#endif
}

static void sc18(struct outcome *o)
{
    REFUSED(o, "acct", syscall(SYS_acct, "/tmp/none"), EPERM);
}

static void sc19(struct outcome *o)
{
    char buf[64];

    REFUSED(o, "syslog(READ_ALL)", syscall(SYS_syslog, 3, buf, sizeof buf), EPERM);
}

static void sc20(struct outcome *o)
{
    long timex[32] = { 1 /* ADJ_OFFSET */ };

    REFUSED(o, "adjtimex", syscall(SYS_adjtimex, timex), EPERM);
    REFUSED(o, "clock_adjtime", syscall(SYS_clock_adjtime, 0, timex), EPERM);
}

static void sc21(struct outcome *o)
{
    long tv[2] = { -1, -1 };

    REFUSED(o, "settimeofday", syscall(SYS_settimeofday, tv, NULL), EPERM);
}

static void sc22(struct outcome *o)
{
    long ts[2] = { -1, -1 };

    REFUSED(o, "clock_settime", syscall(SYS_clock_settime, 0, ts), EPERM);
}

static void sc23(struct outcome *o)
{
    REFUSED(o, "sethostname", sethostname("probe", 5), EPERM);
}

static void sc24(struct outcome *o)
{
    REFUSED(o, "setdomainname", syscall(SYS_setdomainname, "probe", 5), EPERM);
}

/* The 32-bit entry has other numbers; a filter that ignores it allows mount as a harmless
 * number. */
static void sc25(struct outcome *o)
{
#ifdef __x86_64__
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        long rc = 20; /* getpid of the 32-bit table */
        __asm__ volatile("int $0x80" : "+a"(rc) : : "memory", "r8", "r9", "r10", "r11");
        _exit(rc > 0 ? 1 : 2);
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        escaped(o, "a 32-bit system call was answered");
    else if (WIFSIGNALED(status))
        held(o, "a 32-bit system call ends the process with signal %d", WTERMSIG(status));
    else
        held(o, "a 32-bit system call is refused");
#else
    skipped(o, "only x86 has this entry");
#endif
}

static void sc26(struct outcome *o)
{
#ifdef __x86_64__
    REFUSED(o, "x32 getpid", syscall(0x40000000 | SYS_getpid), ENOSYS);
    REFUSED(o, "x32 ptrace", syscall(0x40000000 | 521, 0, 0, 0, 0), ENOSYS);
#else
    skipped(o, "only x86 has this table");
#endif
}

static void sc27(struct outcome *o)
{
    REFUSED(o, "personality(ADDR_NO_RANDOMIZE)", syscall(SYS_personality, 0x0040000), EPERM);
    REFUSED(o, "personality(READ_IMPLIES_EXEC)", syscall(SYS_personality, 0x0400000), EPERM);
}

static void sc28(struct outcome *o)
{
    REFUSED(o, "fanotify_init", syscall(SYS_fanotify_init, 0x200 /* REPORT_FID */, 0), EPERM);
}

static void sc29(struct outcome *o)
{
    pid_t pid = fork();

    if (pid == 0) {
        pause();
        _exit(0);
    }
    REFUSED(o, "ptrace of an own child", ptrace(0x4206, pid, 0, 0), EPERM);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    REFUSED(o, "PTRACE_TRACEME", ptrace(PTRACE_TRACEME, 0, 0, 0), EPERM);
}

static void sc30(struct outcome *o)
{
    static const struct {
        const char *name;
        int family, type, protocol;
    } sockets[] = {
        { "AF_VSOCK", 40, SOCK_STREAM, 0 },     { "AF_ALG", 38, SOCK_SEQPACKET, 0 },
        { "AF_KEY", 15, SOCK_RAW, 2 },          { "AF_PACKET", 17, SOCK_DGRAM, 0x300 },
        { "AF_XDP", 44, SOCK_RAW, 0 },          { "AF_TIPC", 30, SOCK_SEQPACKET, 0 },
        { "AF_RDS", 21, SOCK_SEQPACKET, 0 },    { "AF_BLUETOOTH", 31, SOCK_RAW, 1 },
        { "AF_SMC", 43, SOCK_STREAM, 0 },       { "AF_PPPOX", 24, SOCK_STREAM, 0 },
        { "AF_CAN", 29, SOCK_RAW, 1 },          { "AF_QIPCRTR", 42, SOCK_DGRAM, 0 },
        { "SCTP", AF_INET, SOCK_STREAM, 132 },  { "DCCP", AF_INET, 6, 33 },
        { "MPTCP", AF_INET, SOCK_STREAM, 262 }, { "SCTP over v6", AF_INET6, SOCK_SEQPACKET, 132 },
    };

    for (size_t i = 0; i < COUNT(sockets); i++)
        REFUSED(o, sockets[i].name, socket(sockets[i].family, sockets[i].type, sockets[i].protocol), EPERM,
                EAFNOSUPPORT, EACCES, EPROTONOSUPPORT, ESOCKTNOSUPPORT);
}

static void sc31(struct outcome *o)
{
    static const int protocols[] = { NETLINK_NETFILTER, NETLINK_XFRM,    NETLINK_AUDIT, NETLINK_KOBJECT_UEVENT,
                                     NETLINK_CONNECTOR, NETLINK_GENERIC, NETLINK_CRYPTO };

    for (size_t i = 0; i < COUNT(protocols); i++)
        REFUSED(o, "netlink", socket(AF_NETLINK, SOCK_RAW, protocols[i]), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
}

static void sc32(struct outcome *o)
{
    REFUSED(o, "memfd_secret", syscall(447, 0), POLICY);
}

static void sc33(struct outcome *o)
{
#ifdef SYS_modify_ldt
    REFUSED(o, "modify_ldt", syscall(SYS_modify_ldt, 0, NULL, 0), POLICY);
#else
    held(o, "this CPU has no local descriptor table");
#endif
}

/* --- SC34: random system calls for some seconds --- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Calls that would only stop the fuzzing: they wait, end the process or destroy its own stack or
 * mappings. */
static bool pointless(long nr)
{
    static const long list[] = { SYS_exit,
                                 SYS_exit_group,
                                 SYS_rt_sigreturn,
                                 SYS_pause,
                                 SYS_rt_sigsuspend,
                                 SYS_rt_sigtimedwait,
                                 SYS_munmap,
                                 SYS_mremap,
                                 SYS_brk,
                                 SYS_mprotect,
                                 SYS_fork,
                                 SYS_vfork,
                                 SYS_clone,
                                 SYS_kill,
                                 SYS_tkill,
                                 SYS_tgkill,
                                 SYS_alarm,
                                 SYS_setitimer,
                                 SYS_select,
                                 SYS_poll,
                                 SYS_nanosleep,
                                 SYS_mmap,
                                 SYS_rt_sigprocmask,
                                 SYS_rt_sigaction,
                                 SYS_sigaltstack,
                                 SYS_set_tid_address,
                                 SYS_arch_prctl,
                                 SYS_futex,
                                 SYS_clock_nanosleep,
                                 SYS_ppoll,
                                 SYS_pselect6,
                                 SYS_epoll_wait,
                                 SYS_epoll_pwait,
                                 SYS_wait4,
                                 SYS_waitid,
                                 SYS_setrlimit,
                                 SYS_prlimit64,
                                 SYS_mlockall,
                                 SYS_sched_setaffinity };

    for (size_t i = 0; i < COUNT(list); i++)
        if (list[i] == nr)
            return true;
    return nr == 449 /* futex_waitv */ || nr == 441 /* epoll_pwait2 */ || nr == 231;
}

static uint64_t random_argument(uint64_t *state, char *page)
{
    static const uint64_t edges[] = { 0,         1,    2,           3,           UINT64_MAX, INT64_MAX,
                                      INT64_MIN, 4096, 0x80000000u, 0xffffffffu, 64,         255 };
    uint64_t r = next_random(state);

    switch (r >> 61) {
    case 0:
    case 1:
    case 2:
        return edges[r % COUNT(edges)];
    case 3:
    case 4:
        return (uint64_t)(uintptr_t)page + r % 2048;
    case 5:
        return r % 16;
    default:
        return next_random(state);
    }
}

/* One process, a burst of calls; the process may die, and the next one continues with another
 * seed. */
static void fuzz_burst(uint64_t seed, unsigned *calls)
{
    static char page[4096];
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

    alarm(2);
    for (size_t i = 0; i < sizeof page; i++)
        page[i] = (char)next_random(&state);
    strcpy(page, "/tmp/fuzzed");
    for (int i = 0; i < 4000; i++) {
        long nr = (long)(next_random(&state) % 1024);
        if (pointless(nr))
            continue;
        ++*calls;
        syscall(nr, random_argument(&state, page), random_argument(&state, page), random_argument(&state, page),
                random_argument(&state, page), random_argument(&state, page), random_argument(&state, page));
    }
}

static void sc34(struct outcome *o)
{
    unsigned *calls = calloc(1, sizeof *calls);
    unsigned total = 0, deaths = 0;
    double end = now_s() + (double)canary_number("fuzz_seconds", 2);
    int ends[2];

    if (pipe(ends) < 0 || !calls) {
        escaped(o, "no pipe for the counter");
        return;
    }
    for (uint64_t round = 1; now_s() < end; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            /* The report goes through descriptors 0 to 2; random writes there must not spoil it. */
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            fuzz_burst(round ^ (uint64_t)getppid() << 32, calls);
            if (write(ends[1], calls, sizeof *calls) < 0)
                _exit(1);
            _exit(0);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
            break;
        *calls = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            deaths++;
        else if (read(ends[0], calls, sizeof *calls) == sizeof *calls)
            total += *calls;
        *calls = 0;
    }
    held(o, "%u random calls in finished bursts, %u bursts died", total, deaths);
}

static void sc35(struct outcome *o)
{
    for (long nr = 600; nr < 1024; nr++)
        REFUSED(o, "an unknown number", syscall(nr, -1, -1, -1, -1, -1, -1), ENOSYS);
    REFUSED(o, "the largest number", syscall(0x3fffffff, 0, 0, 0, 0, 0, 0), ENOSYS);
}

static void sc36(struct outcome *o)
{
    struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog prog = { 1, allow };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    REFUSED(o, "a filter with a listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8 /* NEW_LISTENER */, &prog),
            POLICY);
    /* A filter that allows everything must not widen the existing one. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0)
        REFUSED(o, "chroot after an allowing filter", chroot("/tmp"), EPERM);
    held(o, "a filter of the program can only narrow");
}

static volatile bool flipping = true;
static char flipped[64] = "/proc";

static void *flip(void *arg)
{
    (void)arg;
    while (flipping) {
        memcpy(flipped, "/tmp\0", 6);
        memcpy(flipped, "/proc", 6);
    }
    return NULL;
}

static void sc37(struct outcome *o)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, flip, NULL) != 0) {
        escaped(o, "no second thread could be started");
        return;
    }
    for (int i = 0; i < 3000; i++)
        if (mount("none", flipped, flipped, 0, NULL) == 0 || errno != EPERM) {
            escaped(o, "mount answered %s while its strings changed", strerror(errno));
            break;
        }
    flipping = false;
    pthread_join(thread, NULL);
    held(o, "a refusal does not depend on the memory that pointers point to");
}

/* The pattern of CVE-2022-0847: a pipe buffer with the flag "may be merged" receives a page of a
 * read-only file. */
static void sc38(struct outcome *o)
{
    char path[600], before[64] = "", after[64] = "", fill[4096];
    int ends[2];

    snprintf(path, sizeof path, "%s", canary("readonly_file"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pipe(ends) < 0) {
        skipped(o, "no read-only file was planted");
        return;
    }
    if (pread(fd, before, sizeof before - 1, 0) <= 0) {
        skipped(o, "the planted file is empty");
        return;
    }
    memset(fill, 'A', sizeof fill);
    for (int i = 0; i < 16; i++)
        if (write(ends[1], fill, sizeof fill) < 0)
            break;
    for (int i = 0; i < 16; i++)
        if (read(ends[0], fill, sizeof fill) < 0)
            break;
    loff_t offset = 0;
    long spliced = splice(fd, &offset, ends[1], NULL, 1, 0);
    bool wrote = write(ends[1], "OVERWRITTEN", 11) == 11;
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0 || pread(again, after, sizeof after - 1, 0) < 0 || strcmp(before, after) != 0)
        escaped(o, "a read-only file changed: %.20s", after);
    held(o, "the read-only file is unchanged (splice %ld, write %d)", spliced, wrote);
}

const struct probe_case sc_cases[] = {
    { "SC01", sc01 }, { "SC02", sc02 }, { "SC03", sc03 }, { "SC04", sc04 }, { "SC05", sc05 }, { "SC06", sc06 },
    { "SC07", sc07 }, { "SC08", sc08 }, { "SC09", sc09 }, { "SC10", sc10 }, { "SC11", sc11 }, { "SC12", sc12 },
    { "SC13", sc13 }, { "SC14", sc14 }, { "SC15", sc15 }, { "SC16", sc16 }, { "SC17", sc17 }, { "SC18", sc18 },
    { "SC19", sc19 }, { "SC20", sc20 }, { "SC21", sc21 }, { "SC22", sc22 }, { "SC23", sc23 }, { "SC24", sc24 },
    { "SC25", sc25 }, { "SC26", sc26 }, { "SC27", sc27 }, { "SC28", sc28 }, { "SC29", sc29 }, { "SC30", sc30 },
    { "SC31", sc31 }, { "SC32", sc32 }, { "SC33", sc33 }, { "SC34", sc34 }, { "SC35", sc35 }, { "SC36", sc36 },
    { "SC37", sc37 }, { "SC38", sc38 }, { NULL, NULL },
};
