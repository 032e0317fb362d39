/* TABLE: the live filter against the table from which it was made.
 *
 * Every call number from 0 to 600 is tried, each in its own process. A call that the table
 * refuses must answer exactly as the table says. A call that the table allows must not look
 * refused: with arguments that no call accepts, the kernel returns another error, and the few
 * numbers for which that error is EPERM or ENOSYS are listed with the reason. Calls with rules
 * about their arguments are tried with many values, and each answer is compared. */
#include "probe.h"

#include "policy/syscalls.h"

#include <linux/audit.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#define NUMBERS 601

struct answer {
    long rc;
    int err;
    bool came; /* the call returned */
    int signal;
};

static struct answer *shared;

/* These calls return no result to check, or return twice; every program here uses all of them. */
static bool not_callable(unsigned nr)
{
    static const long list[] = { SYS_exit,  SYS_exit_group, SYS_rt_sigreturn,   SYS_pause,
                                 SYS_vfork, SYS_fork,       SYS_restart_syscall };

    for (size_t i = 0; i < COUNT(list); i++)
        if (list[i] == (long)nr)
            return true;
    return false;
}

/* The table contains calls that this kernel may be too old for. */
static bool too_new(unsigned nr)
{
    static const struct {
        unsigned first, last, major, minor;
    } since[] = { { 335, 335, 6, 11 }, { 336, 336, 6, 18 }, { 451, 451, 6, 5 },  { 452, 453, 6, 6 },
                  { 454, 456, 6, 7 },  { 457, 461, 6, 8 },  { 462, 462, 6, 10 }, { 463, 466, 6, 13 },
                  { 467, 467, 6, 15 }, { 468, 469, 6, 17 } };
    struct utsname u;
    unsigned major, minor;

    if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
        return false;
    for (size_t i = 0; i < COUNT(since); i++)
        if (nr >= since[i].first && nr <= since[i].last)
            return major < since[i].major || (major == since[i].major && minor < since[i].minor);
    return false;
}

/* Allowed calls that the kernel itself answers with EPERM or ENOSYS for invalid arguments here. */
static bool kernel_refuses(unsigned nr, int err)
{
    static const long eperm[] = { SYS_setpgid,    SYS_setsid,   SYS_setpriority, SYS_tkill,
                                  SYS_ioprio_set, SYS_fchownat, SYS_setrlimit };
    static const long enosys[] = { SYS_futex /* an unknown operation */,
                                   453 /* map_shadow_stack, on a CPU without it */,
                                   437 /* openat2: the table is for PID 1 as well, which keeps the call for itself */ };

    for (size_t i = 0; err == EPERM && i < COUNT(eperm); i++)
        if (eperm[i] == (long)nr)
            return true;
    if (err == ENOSYS && too_new(nr))
        return true;
    for (size_t i = 0; err == ENOSYS && i < COUNT(enosys); i++)
        if (enosys[i] == (long)nr)
            return true;
    return false;
}

static struct answer ask(unsigned nr, const uint64_t a[6])
{
    int status = 0;

    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t self = getpid();
        alarm(3 * (unsigned)canary_number("slow", 1));
        errno = 0;
        long rc = syscall((long)nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        int err = errno;
        if (getpid() != self)
            _exit(0); /* the child of a clone */
        shared->rc = rc;
        shared->err = rc < 0 ? err : 0;
        shared->came = true;
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    shared->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return *shared;
}

static void compare(struct outcome *o, enum profile p, unsigned nr, const uint64_t args[6], bool also_allowed)
{
    int verdict = syscall_verdict(p, AUDIT_ARCH_X86_64, nr, args);
    const char *name = syscall_name(nr) ? syscall_name(nr) : "?";

    if (verdict == 0 && !also_allowed)
        return;
    struct answer a = ask(nr, args);
    if (verdict < 0) {
        if (a.came || a.signal != SIGSYS)
            escaped(o, "%u (%s): the table kills, but the call returned %ld", nr, name, a.rc);
    } else if (verdict > 0) {
        if (!a.came || a.rc >= 0 || a.err != verdict)
            escaped(o, "%u (%s)(0x%llx, 0x%llx, 0x%llx): the table says %s, the kernel returned %s", nr, name,
                    (unsigned long long)args[0], (unsigned long long)args[1], (unsigned long long)args[2],
                    strerror(verdict), a.came ? (a.rc >= 0 ? "yes" : strerror(a.err)) : "nothing");
    } else if (a.signal == SIGSYS || (a.came && (a.err == EPERM || a.err == ENOSYS) && !kernel_refuses(nr, a.err))) {
        escaped(o, "%u (%s): the table allows it, the answer was %s", nr, name, a.came ? strerror(a.err) : "SIGSYS");
    }
}

static enum profile live_profile(void)
{
    enum profile p = PROFILE_BASE;

    if (*canary("profile"))
        profile_parse(canary("profile"), &p);
    return p;
}

static void table_sweep(struct outcome *o)
{
    static const uint64_t nonsense[6] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    enum profile p = live_profile();
    unsigned denied = 0, missing = 0, allowed = 0;

    alarm(0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned nr = 0; nr < NUMBERS; nr++) {
        if (not_callable(nr))
            continue;
        compare(o, p, nr, nonsense, true);
        enum syscall_rule rule = syscall_rule(p, nr);
        denied += rule == SC_EPERM;
        missing += rule == SC_ENOSYS;
        allowed += rule == SC_ALLOW || rule == SC_ARGS;
    }
    held(o, "profile %s: %u allowed, %u EPERM, %u ENOSYS, each as the table says", profile_name(p), allowed, denied,
         missing);
}

static void table_arguments(struct outcome *o)
{
    static const uint64_t values[] = { 0,          1,       2,          3,          4,          10,
                                       15,         16,      17,         22,         23,         24,
                                       38,         40,      44,         0x5412,     0x541c,     0x5423,
                                       0x20000,    0x80,    262,        0x7e020000, 0x10000000, 0x20000000,
                                       0x40000000, 0x80000, 0x53564d41, UINT64_MAX, UINT32_MAX, 1ull << 32 | 0x5412,
                                       1ull << 32, 0x1000,  0x2000,     0x6000,     04755,      0x400040 | 02000 };
    enum profile p = live_profile();
    unsigned rules = 0, tried = 0;

    alarm(0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned nr = 0; nr < NUMBERS; nr++) {
        if (syscall_rule(p, nr) != SC_ARGS || not_callable(nr))
            continue;
        rules++;
        for (unsigned position = 0; position < 3; position++)
            for (size_t v = 0; v < COUNT(values); v++) {
                uint64_t args[6] = { 0 };
                if (position == 2)
                    args[0] = args[1] = 2; /* so that socket reaches its rule about protocols */
                if (position == 1)
                    args[0] = 2;
                args[position] = values[v];
                compare(o, p, nr, args, false);
                tried++;
            }
    }
    held(o, "profile %s: %u calls with rules, %u sets of arguments, each refusal as the table says", profile_name(p),
         rules, tried);
}

const struct probe_case table_cases[] = {
    { "TABLE-sweep", table_sweep },
    { "TABLE-arguments", table_arguments },
    { NULL, NULL },
};
