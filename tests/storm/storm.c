/* storm.c - makes system calls from inside a sandbox, as many and as unusual as it can: `storm
 * SEED MS`.
 *
 * Bursts of calls run in children, because most calls that succeed sooner or later harm the
 * caller. A burst depends only on the seed and its number, so that a failure can be repeated.
 * Half of the arguments are made to fit (descriptors of many kinds, interesting paths, structs,
 * flags), since random ones rarely pass the first check. Calls that the filter refuses outright
 * are rare in the mix: each waits for the monitor, which is slow.
 *
 * `storm --steady` is the neighbour: it works until its input ends and reports whether anything
 * that it relies on changed. */
#include "core/base/base.h"
#include "core/base/clock.h"
#include "policy/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBERS 600
#define BURST_CALLS 400
#define BURST_MS 150
#define WORKERS 2
#define ARENA 65536

/* Kinds of arguments: d descriptor, p path, s struct, b bytes, n size, f flags, i id, x
 * anything. */
static const struct {
    int nr;
    const char *takes;
} shapes[] = {
    { SYS_openat, "dpff" },
    { SYS_open, "pff" },
    { SYS_mount, "pppfp" },
    { SYS_umount2, "pf" },
    { SYS_pivot_root, "pp" },
    { SYS_chroot, "p" },
    { SYS_unshare, "f" },
    { SYS_setns, "df" },
    { SYS_clone, "fsssx" },
    { SYS_mkdirat, "dpf" },
    { SYS_mknodat, "dpff" },
    { SYS_mknod, "pff" },
    { SYS_unlinkat, "dpf" },
    { SYS_renameat2, "dpdpf" },
    { SYS_linkat, "dpdpf" },
    { SYS_symlinkat, "pdp" },
    { SYS_fchmodat, "dpf" },
    { SYS_chmod, "pf" },
    { SYS_fchownat, "dpiif" },
    { SYS_utimensat, "dpsf" },
    { SYS_readlinkat, "dpbn" },
    { SYS_newfstatat, "dpsf" },
    { SYS_statx, "dpffs" },
    { SYS_setxattr, "ppbnf" },
    { SYS_fsetxattr, "dpbnf" },
    { SYS_getxattr, "ppbn" },
    { SYS_truncate, "pn" },
    { SYS_fallocate, "dfnn" },
    { SYS_getdents64, "dbn" },
    { SYS_read, "dbn" },
    { SYS_write, "dbn" },
    { SYS_pwrite64, "dbnn" },
    { SYS_writev, "dsn" },
    { SYS_splice, "dsdsnf" },
    { SYS_sendfile, "ddsn" },
    { SYS_copy_file_range, "dsdsnf" },
    { SYS_fcntl, "dfx" },
    { SYS_ioctl, "dfs" },
    { SYS_flock, "df" },
    { SYS_dup3, "ddf" },
    { SYS_bpf, "fsn" },
    { SYS_perf_event_open, "siidf" },
    { SYS_ptrace, "fixx" },
    { SYS_process_vm_writev, "isnsnf" },
    { SYS_kcmp, "iifdd" },
    { SYS_socket, "fff" },
    { SYS_socketpair, "fffs" },
    { SYS_bind, "dsn" },
    { SYS_connect, "dsn" },
    { SYS_listen, "dn" },
    { SYS_sendto, "dbnfsn" },
    { SYS_sendmsg, "dsf" },
    { SYS_recvmsg, "dsf" },
    { SYS_setsockopt, "dffbn" },
    { SYS_getsockopt, "dffbs" },
    { SYS_prctl, "fxxxx" },
    { SYS_arch_prctl, "fs" },
    { SYS_seccomp, "ffs" },
    { SYS_keyctl, "fiixx" },
    { SYS_add_key, "ppbni" },
    { SYS_mmap, "xnffdx" },
    { SYS_mprotect, "xnf" },
    { SYS_mremap, "xnnfx" },
    { SYS_madvise, "xnf" },
    { SYS_mlock2, "xnf" },
    { SYS_memfd_create, "pf" },
    { SYS_execve, "pss" },
    { SYS_execveat, "dpssf" },
    { SYS_pidfd_open, "if" },
    { SYS_pidfd_getfd, "ddf" },
    { SYS_pidfd_send_signal, "dfsf" },
    { SYS_kill, "if" },
    { SYS_tgkill, "iif" },
    { SYS_rt_sigqueueinfo, "ifs" },
    { SYS_sched_setaffinity, "ins" },
    { SYS_sched_setscheduler, "ifs" },
    { SYS_setpriority, "fii" },
    { SYS_ioprio_set, "fif" },
    { SYS_prlimit64, "ifss" },
    { SYS_sethostname, "bn" },
    { SYS_setdomainname, "bn" },
    { SYS_clock_settime, "fs" },
    { SYS_settimeofday, "ss" },
    { SYS_adjtimex, "s" },
    { SYS_syslog, "fbn" },
    { SYS_setresuid, "iii" },
    { SYS_setresgid, "iii" },
    { SYS_setgroups, "ns" },
    { SYS_capset, "ss" },
    { SYS_personality, "f" },
    { SYS_set_mempolicy, "fsn" },
    { SYS_move_pages, "insssf" },
    { SYS_shmget, "xnf" },
    { SYS_shmat, "ixf" },
    { SYS_semget, "xnf" },
    { SYS_msgget, "xf" },
    { SYS_mq_open, "pffs" },
    { SYS_timer_create, "fss" },
    { SYS_epoll_ctl, "dfds" },
    { SYS_inotify_add_watch, "dpf" },
    { SYS_fanotify_init, "ff" },
    { SYS_userfaultfd, "f" },
    { SYS_io_setup, "ns" },
    { SYS_name_to_handle_at, "dpssf" },
    { SYS_open_by_handle_at, "dsf" },
    { SYS_membarrier, "ffx" },
    { SYS_rseq, "snfx" },
    { SYS_futex, "sfnsxn" },
    { 425 /* io_uring_setup */, "ns" },
    { 428 /* open_tree */, "dpf" },
    { 429 /* move_mount */, "dpdpf" },
    { 430 /* fsopen */, "pf" },
    { 431 /* fsconfig */, "dfppd" },
    { 435 /* clone3 */, "sn" },
    { 437 /* openat2 */, "dpsn" },
    { 439 /* faccessat2 */, "dpff" },
    { 442 /* mount_setattr */, "dpfsn" },
    { 444 /* landlock_create_ruleset */, "snf" },
    { 445 /* landlock_add_rule */, "dfsf" },
    { 446 /* landlock_restrict_self */, "df" },
    { 448 /* process_mrelease */, "df" },
    { 452 /* fchmodat2 */, "dpff" },
};

static const char *const paths[] = {
    "/",
    "/workspace",
    "/workspace/a",
    "/workspace/a/../../etc/passwd",
    "/tmp/x",
    "/tmp/y",
    "/dev/shm/z",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts/ptmx",
    "/proc/self/mem",
    "/proc/1/mem",
    "/proc/1/root",
    "/proc/1/fd/3",
    "/proc/self/ns/user",
    "/proc/self/ns/mnt",
    "/proc/self/fd/0",
    "/proc/self/oom_score_adj",
    "/proc/self/uid_map",
    "/proc/self/attr/current",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/keys",
    "/proc/sys/net/ipv4/ip_forward",
    "/sys",
    "/sys/fs/cgroup",
    "/.cove/runtime",
    "/.cove",
    "/etc/passwd",
    "/etc",
    "/usr",
    "/usr/bin/env",
    "/bin/sh",
    "/dev/kmsg",
    "/dev/mem",
    "/run",
    "..",
    ".",
    "",
    "tmpfs",
    "proc",
    "overlay",
    "cgroup2",
    "user.x",
    "security.capability",
    "trusted.overlay.opaque",
    "/mnt/storm/storm",
    "\377\376/../..",
    "socket:[1]",
};

static struct tally { /* shared with the children */
    unsigned long bursts, calls, worked, died;
} * tally;

static _Alignas(64) uint8_t arena[ARENA];
static int fds[24];
static unsigned nfds;
static uint64_t state;

static uint64_t roll(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void keep(int fd)
{
    if (fd >= 0 && nfds < ARRAY_LEN(fds))
        fds[nfds++] = fd;
}

static void gather_descriptors(void)
{
    int pair[2];

    for (int i = 0; i < 3; i++) /* output of a burst must not look like our report */
        (void)!dup2(open("/dev/null", O_RDWR), i);
    keep(open("/", O_PATH | O_DIRECTORY));
    keep(open("/workspace", O_RDONLY | O_DIRECTORY));
    keep(open("/tmp/f", O_RDWR | O_CREAT, 0644));
    keep(open("/proc/self/mem", O_RDWR));
    keep(open("/proc/self/ns/user", O_RDONLY));
    keep(open("/proc/1/ns/mnt", O_RDONLY));
    keep(open("/proc/self/task", O_RDONLY | O_DIRECTORY));
    keep(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    keep(open("/dev/zero", O_RDWR));
    keep(open("/mnt/storm/storm", O_RDONLY));
    keep(socket(AF_INET, SOCK_STREAM, 0));
    keep(socket(AF_INET6, SOCK_DGRAM, 0));
    keep(socket(AF_NETLINK, SOCK_RAW, 0));
    keep(epoll_create1(0));
    keep(eventfd(1, EFD_NONBLOCK));
    keep(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    keep((int)syscall(SYS_memfd_create, "m", 3));
    keep((int)syscall(SYS_pidfd_open, getpid(), 0));
    keep((int)syscall(SYS_pidfd_open, 1, 0));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0) {
        keep(pair[0]);
        keep(pair[1]);
    }
    if (pipe2(pair, O_NONBLOCK) == 0) {
        keep(pair[0]);
        keep(pair[1]);
    }
}

static uint64_t address(size_t offset)
{
    return (uint64_t)(uintptr_t)(arena + offset % (ARENA - 4096));
}

/* A struct is random bytes whose words are, half of the time, plausible: a pointer, a length, a
 * descriptor, a flag. */
static uint64_t a_struct(void)
{
    size_t at = roll() % (ARENA - 4096) & ~(size_t)7;
    uint64_t *word = (uint64_t *)(void *)(arena + at);

    for (int i = 0; i < 16; i++)
        switch (roll() % 8) {
        case 0:
            word[i] = address(roll());
            break;
        case 1:
            word[i] = roll() % 4096;
            break;
        case 2:
            word[i] = nfds ? (uint64_t)fds[roll() % nfds] : 0;
            break;
        case 3:
            word[i] = 1ull << roll() % 64;
            break;
        case 4:
        case 5:
            word[i] = 0;
            break;
        default:
            word[i] = roll();
        }
    return (uint64_t)(uintptr_t)word;
}

static uint64_t a_flag(void)
{
    uint64_t v = 0;

    if (roll() % 3 == 0)
        return roll() % 64;
    for (uint64_t n = roll() % 5; n > 0; n--)
        v |= 1ull << roll() % 32;
    return v;
}

static uint64_t anything(void)
{
    static const uint64_t edges[] = { 0,    1,           2,           3,  UINT64_MAX, INT64_MAX, 1ull << 63,
                                      4096, 0x80000000u, 0xffffffffu, 64, 255,        1ull << 47 };
    uint64_t r = roll();

    switch (r % 4) {
    case 0:
        return edges[roll() % ARRAY_LEN(edges)];
    case 1:
        return address(roll());
    case 2:
        return roll() % 4096;
    default:
        return roll();
    }
}

static uint64_t argument(char kind)
{
    static const int64_t ids[] = { 0, 1, -1, 1000, 65534, 1900000000, INT32_MAX };

    if (roll() % 16 == 0)
        kind = 'x';
    switch (kind) {
    case 'd':
        return roll() % 8 == 0 ? (uint64_t)-100 : nfds ? (uint64_t)fds[roll() % nfds] : 3;
    case 'p':
        return (uint64_t)(uintptr_t)paths[roll() % ARRAY_LEN(paths)];
    case 's':
        return a_struct();
    case 'b':
        return address(roll());
    case 'n':
        return roll() % 4 == 0 ? roll() % (1 << 20) : roll() % 256;
    case 'f':
        return a_flag();
    case 'i':
        return roll() % 4 == 0 ? (uint64_t)getpid() : (uint64_t)ids[roll() % ARRAY_LEN(ids)];
    default:
        return anything();
    }
}

/* Calls that only end the burst, or sleep until it is killed; and a signal to every process
 * would end the storm. */
static bool pointless(long nr, const uint64_t a[6])
{
    if (nr == SYS_exit || nr == SYS_exit_group || nr == SYS_pause || nr == SYS_rt_sigsuspend || nr == SYS_vfork)
        return true;
    /* Nor signals to the parents of the bursts, which have the lowest pids. */
    return (nr == SYS_kill || nr == SYS_tkill || nr == SYS_tgkill || nr == SYS_rt_sigqueueinfo) &&
           (int)a[0] != getpid() && (int)a[0] != 1 && (int)a[0] < 1000;
}

static bool refused(long nr)
{
    return nr >= 0 && nr < NUMBERS && syscall_rule(PROFILE_PYTHON, (unsigned)nr) == SC_EPERM;
}

/* Calls that usually destroy the burst itself: allowed sometimes, not always. */
static bool ruinous(long nr)
{
    static const long list[] = { SYS_munmap,    SYS_mremap,  SYS_brk,          SYS_mprotect,  SYS_rt_sigreturn,
                                 SYS_shmdt,     SYS_execve,  SYS_arch_prctl,   SYS_execveat,  SYS_close,
                                 SYS_setrlimit, SYS_dup2,    SYS_dup3,         SYS_prlimit64, SYS_rt_sigprocmask,
                                 SYS_mmap,      SYS_seccomp, SYS_rt_sigaction, SYS_setitimer, 436 /* close_range */ };

    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i] == nr)
            return true;
    return false;
}

static long choose(const char **takes)
{
    uint64_t r = roll() % 100;

    *takes = "xxxxxx";
    if (r < 2)
        return (long)(roll() % 2 ? roll() : roll() % 1024 | 0x40000000u);
    for (int tries = 0; tries < 50; tries++) {
        size_t i = roll() % ARRAY_LEN(shapes);
        long nr = r < 70 ? shapes[i].nr : (long)(roll() % NUMBERS);

        *takes = r < 70 ? shapes[i].takes : "xxxxxx";
        if ((refused(nr) || ruinous(nr)) && roll() % 40 != 0)
            continue;
        return nr;
    }
    return SYS_getpid;
}

static void on_tick(int signo UNUSED)
{
}

/* A call that waits returns with EINTR, unless the burst has blocked the signal. */
static void tick(void)
{
    struct sigaction act = { .sa_handler = on_tick };
    struct itimerval every = { { 0, 3000 }, { 0, 3000 } };

    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

static NORETURN void burst(uint64_t seed)
{
    tick();
    state = seed;
    for (size_t i = 0; i < ARENA; i += 8) {
        uint64_t r = roll();
        memcpy(arena + i, &r, 8);
    }
    gather_descriptors();
    for (int i = 0; i < BURST_CALLS; i++) {
        uint64_t a[6] = { 0 };
        const char *takes;
        long nr = choose(&takes);

        for (size_t k = 0; k < 6 && takes[k]; k++)
            a[k] = argument(takes[k]);
        if (pointless(nr, a))
            continue;
        __atomic_add_fetch(&tally->calls, 1, __ATOMIC_RELAXED);
        long rc = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (rc >= 0)
            __atomic_add_fetch(&tally->worked, 1, __ATOMIC_RELAXED);
        if (rc > 2 && rc < 64)
            keep((int)rc); /* probably a descriptor; if not, it is as good as any number */
    }
    _exit(0);
}

/* A burst that waits is killed; processes that it started are left to the end of the sandbox. */
static void await(pid_t pid)
{
    int status = 0;

    for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms++) {
        if (ms == BURST_MS)
            kill(pid, SIGKILL);
        poll(NULL, 0, 1);
    }
    if (!WIFEXITED(status))
        __atomic_add_fetch(&tally->died, 1, __ATOMIC_RELAXED);
}

static NORETURN void work(uint64_t seed, uint64_t worker, uint64_t end)
{
    for (uint64_t n = 0; clock_mono_ns() < end; n++) {
        pid_t pid = fork();

        if (pid == 0)
            burst(seed * 0x100000001b3u + worker * 0x9e3779b9u + n);
        if (pid < 0) {
            poll(NULL, 0, 5); /* earlier bursts left processes, and the limit holds */
            continue;
        }
        __atomic_add_fetch(&tally->bursts, 1, __ATOMIC_RELAXED);
        await(pid);
    }
    _exit(0);
}

static int storm(uint64_t seed, uint64_t ms)
{
    uint64_t end = clock_mono_ns() + ms * NS_PER_MS;
    pid_t pids[WORKERS];

    tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED)
        return 1;
    for (uint64_t i = 0; i < WORKERS; i++)
        if ((pids[i] = fork()) == 0)
            work(seed, i, end);
    for (int i = 0; i < WORKERS; i++)
        if (pids[i] > 0)
            waitpid(pids[i], NULL, 0);
    printf("\nstorm: %lu bursts, %lu calls, %lu worked, %lu bursts died\n", tally->bursts, tally->calls, tally->worked,
           tally->died);
    return 0;
}

/* --- the neighbour --- */

static int steady(void)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    static uint64_t memory[1 << 16];
    struct utsname was, now;
    unsigned long rounds = 0;
    pid_t me = getpid();
    int file = open("/tmp/steady", O_RDWR | O_CREAT | O_EXCL, 0600);

    state = 1;
    for (size_t i = 0; i < ARRAY_LEN(memory); i++)
        memory[i] = roll();
    if (uname(&was) < 0 || file < 0 || write(file, memory, 4096) != 4096)
        return 2;
    while (poll(&input, 1, 10) == 0) {
        uint8_t back[4096];
        struct stat st;

        state = 1;
        for (size_t i = 0; i < ARRAY_LEN(memory); i++)
            if (memory[i] != roll())
                return 3;
        if (pread(file, back, sizeof(back), 0) != sizeof(back) || memcmp(back, memory, sizeof(back)) != 0)
            return 4;
        if (uname(&now) < 0 || memcmp(&was, &now, sizeof(was)) != 0)
            return 5;
        if (getpid() != me || fstat(file, &st) < 0 || st.st_size != 4096 || access("/tmp/x", F_OK) == 0)
            return 6;
        rounds++;
    }
    printf("steady: %lu rounds\n", rounds);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--steady") == 0)
        return steady();
    if (argc == 3)
        return storm(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    return 2;
}
