/* Compares the compiled filter with the reference evaluator, for every number and for arguments at
 * every boundary of every rule; then with the kernel. */
#include "bpf.h"

#include "core/base/str.h"
#include "policy/syscall_table.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sock_filter prog[FILTER_MAX];
static size_t prog_len;
static uint8_t seen[FILTER_MAX];

static bool notify; /* which of the two programs is under test */

static void build_spec(const struct filter_spec *s)
{
    struct err err = { 0 };

    if (filter_build(s, notify, prog, &prog_len, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(prog_len > 0 && prog_len <= FILTER_MAX);
}

static void build(enum profile p)
{
    const struct filter_spec s = { .profile = p };

    build_spec(&s);
}

/* Converts the return value of the program to that of syscall_verdict(). */
static int verdict_of(uint32_t value)
{
    if (value == SECCOMP_RET_ALLOW)
        return 0;
    if (value == SECCOMP_RET_KILL_PROCESS)
        return -1;
    if (notify && value == SECCOMP_RET_USER_NOTIF)
        return EPERM; /* the errno that the listener will return */
    assert_false(notify && value == (SECCOMP_RET_ERRNO | EPERM));
    assert_int_equal(value & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
    assert_true((value & SECCOMP_RET_DATA) > 0);
    return (int)(value & SECCOMP_RET_DATA);
}

static void compare(const struct filter_spec *s, uint32_t arch, uint32_t nr, const uint64_t args[6])
{
    struct seccomp_data data = { .nr = (int)nr, .arch = arch };

    memcpy(data.args, args, sizeof(data.args));
    int got = verdict_of(bpf_run(prog, prog_len, &data, seen, NULL));
    int want = filter_verdict(s, arch, nr, args);
    if (got != want)
        fail_msg("profile %s, grants %#x, arch %#x, call %u (%s), args %#" PRIx64 " %#" PRIx64 " %#" PRIx64
                 ": filter %d, table %d",
                 profile_name(s->profile), s->grants, arch, nr, syscall_name(nr) ? syscall_name(nr) : "unknown",
                 args[0], args[1], args[2], got, want);
}

/* Every value at, just below and just above a boundary of a test, alone and combined with the
 * boundaries of each other argument. */
#define EDGES_MAX 1024
static uint64_t edges[4][EDGES_MAX];
static size_t nedges[4];

static void add_edge(unsigned arg, uint64_t v)
{
    for (size_t i = 0; i < nedges[arg]; i++)
        if (edges[arg][i] == v)
            return;
    assert_true(nedges[arg] < EDGES_MAX);
    edges[arg][nedges[arg]++] = v;
}

static void collect_edges(int action, unsigned depth)
{
    for (size_t i = 0; action < 0 && i < arg_test_count; i++) {
        const struct arg_test *t = &arg_tests[i];

        if (t->rule != ACTION_RULE(action))
            continue;
        assert_true(t->arg < ARRAY_LEN(edges) && depth < 4);
        for (int d = -1; d <= 1; d++) {
            add_edge(t->arg, (uint32_t)(t->from + (uint32_t)d));
            add_edge(t->arg, (uint32_t)(t->to + (uint32_t)d));
            add_edge(t->arg, (uint32_t)(t->to + (uint32_t)d) | ~t->mask); /* bits outside the mask must not matter */
        }
        for (unsigned bit = 0; bit < 32; bit++)
            if (t->mask >> bit & 1 && t->mask != ALL_BITS)
                add_edge(t->arg, 1u << bit);
        collect_edges(t->then, depth + 1);
    }
}

static void compare_edges(const struct filter_spec *s, uint32_t nr, int action)
{
    static const uint64_t always[] = { 0, 1, 2, 3, 5, 6, 10, 16, 17, 0x80000000, 0xffffffff, 0x100000000, UINT64_MAX };

    memset(nedges, 0, sizeof(nedges));
    for (unsigned a = 0; a < 3; a++)
        for (size_t i = 0; i < ARRAY_LEN(always); i++)
            add_edge(a, always[i]);
    add_edge(3, 0); /* few rules test the fourth argument */
    collect_edges(action, 0);
    for (size_t i = 0; i < nedges[0]; i++)
        for (size_t k = 0; k < nedges[1]; k++)
            for (size_t l = 0; l < nedges[2]; l++)
                for (size_t m = 0; m < nedges[3]; m++) {
                    uint64_t args[6] = { edges[0][i], edges[1][k], edges[2][l], edges[3][m], 0, 0 };

                    compare(s, AUDIT_ARCH_X86_64, nr, args);
                    args[0] |= 0xabcdull << 32; /* the kernel drops the upper half, so the filter must too */
                    compare(s, AUDIT_ARCH_X86_64, nr, args);
                }
}

static void compare_all(const struct filter_spec *s)
{
    static const uint32_t archs[] = { AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 0, 0xffffffff };
    static const uint32_t odd[] = { 0x3fffffff,       0x40000000, 0x40000000 + 1, 0x40000000 + 56,
                                    0x40000000 + 520, 0x7fffffff, 0x80000000,     0xffffffff };
    const uint64_t none[6] = { 0 }, all[6] = { ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull };

    memset(seen, 0, sizeof(seen));
    build_spec(s);
    for (uint32_t nr = 0; nr < 1024; nr++) {
        compare(s, AUDIT_ARCH_X86_64, nr, none);
        compare(s, AUDIT_ARCH_X86_64, nr, all);
        for (size_t i = 0; i < ARRAY_LEN(archs); i++)
            compare(s, archs[i], nr, none);
        compare(s, AUDIT_ARCH_X86_64, nr | 0x40000000, none);
    }
    for (size_t i = 0; i < ARRAY_LEN(odd); i++)
        compare(s, AUDIT_ARCH_X86_64, odd[i], none);
    for (size_t i = 0; i < syscall_row_count; i++)
        if (syscall_rows[i].action[s->profile] < 0)
            compare_edges(s, syscall_rows[i].nr, syscall_rows[i].action[s->profile]);
    for (size_t i = 0; s->grants && i < grant_row_count; i++)
        compare_edges(s, grant_rows[i].nr, grant_rows[i].action);
}

static void assert_all_seen(void)
{
    for (size_t i = 0; i < prog_len; i++) {
        bool conditional = BPF_CLASS(prog[i].code) == BPF_JMP && BPF_OP(prog[i].code) != BPF_JA;

        if (!seen[i] || (conditional && seen[i] != (BPF_SEEN | BPF_SEEN_TRUE | BPF_SEEN_FALSE)))
            fail_msg("instruction %zu of %zu (code %#x, k %#x) has marks %#x", i, prog_len, prog[i].code, prog[i].k,
                     seen[i]);
    }
}

TEST(filter_agrees_with_the_table_on_every_call_and_has_no_dead_branch)
{
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        const struct filter_spec s = { .profile = (enum profile)p };

        compare_all(&s);
        assert_all_seen();
    }
}

TEST(filter_agrees_with_the_table_when_calls_are_granted_and_denied)
{
    struct filter_spec s = { .profile = PROFILE_PYTHON, .grants = GRANTS_ALL };

    compare_all(&s);
    s.deny[101 / 64] |= 1ull << 101 % 64; /* granted and denied: denied */
    s.deny[41 / 64] |= 1ull << 41 % 64;   /* socket, which has a rule */
    s.deny[165 / 64] |= 1ull << 165 % 64; /* mount, which is refused anyway */
    compare_all(&s);
    memset(s.deny, 0xff, sizeof(s.deny));
    compare_all(&s);
    assert_int_equal(filter_allowed_count(&s), 0);
    s = (struct filter_spec){ .profile = PROFILE_NODE };
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if (!syscall_is_needed(nr))
            s.deny[nr / 64] |= 1ull << nr % 64;
    compare_all(&s);
}

TEST(with_notify_only_eperm_goes_to_the_listener)
{
    notify = true;
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        const struct filter_spec s = { .profile = (enum profile)p };

        compare_all(&s);
        assert_all_seen();
    }
    notify = false;
}

TEST(building_a_filter_is_deterministic)
{
    static struct sock_filter first[FILTER_MAX];

    build(PROFILE_NODE);
    size_t len = prog_len;
    memcpy(first, prog, len * sizeof(*prog));
    memset(prog, 0xff, sizeof(prog));
    build(PROFILE_NODE);
    assert_int_equal(prog_len, len);
    assert_memory_equal(first, prog, len * sizeof(*prog));
}

/* The kernel runs the filter for each number when it is installed; this measures the cost. */
TEST(the_mean_path_over_all_numbers_stays_short)
{
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        uint64_t steps = 0;

        build((enum profile)p);
        for (int nr = 0; nr < 471; nr++) {
            struct seccomp_data data = { .nr = nr, .arch = AUDIT_ARCH_X86_64 };

            if (syscall_rule((enum profile)p, (unsigned)nr) != SC_ARGS)
                bpf_run(prog, prog_len, &data, NULL, &steps);
        }
        print_message("# %s: %zu instructions, mean path %.1f\n", profile_name((enum profile)p), prog_len,
                      (double)steps / 471);
        assert_true(steps < 471 * 12);
    }
}

static void compile_alternating(size_t n, int other, int *ret)
{
    static struct filter_range ranges[FILTER_RANGES_MAX];
    struct err err = { 0 };

    for (size_t i = 0; i < n; i++)
        ranges[i] = (struct filter_range){ (uint32_t)i, i % 2 ? other : ACTION_ENOSYS };
    memset(seen, 0, sizeof(seen));
    *ret = filter_compile(ranges, n, false, prog, &prog_len, &err);
    if (*ret < 0)
        assert_int_equal(err.id, ERR_BUG);
}

TEST(a_table_too_large_for_short_jumps_compiles_correctly)
{
    static const int others[] = { ACTION_EPERM, ACTION_CLONE, ACTION_SOCKET };

    for (size_t o = 0; o < ARRAY_LEN(others); o++) {
        int r;

        compile_alternating(FILTER_RANGES_MAX, others[o], &r);
        assert_int_equal(r, 0);
        for (uint32_t nr = 0; nr < 1100; nr++) {
            struct seccomp_data data = { .nr = (int)nr, .arch = AUDIT_ARCH_X86_64 };
            int want = nr < 1024 && nr % 2 == 0 ? ENOSYS : others[o];

            if (want < 0)
                want = ACTION_RULE(want) == RULE_CLONE ? 0 : EAFNOSUPPORT; /* arguments are all 0 */
            assert_int_equal(verdict_of(bpf_run(prog, prog_len, &data, seen, NULL)), want);
        }
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

/* A third implementation of the rules, for tables that no profile has. */
static int walk_rules(int action, const uint64_t args[6])
{
    for (size_t i = 0; action < 0; i++) {
        const struct arg_test *t = &arg_tests[i];
        uint32_t v = (uint32_t)args[t->arg] & t->mask;

        assert_true(i < arg_test_count);
        if (t->rule == ACTION_RULE(action) && v >= t->from && v <= t->to)
            action = t->then; /* rules refer only to later rules, so one pass is enough */
    }
    return action;
}

TEST(random_tables_compile_to_programs_that_agree_with_them)
{
    static struct filter_range ranges[FILTER_RANGES_MAX];
    uint64_t seed = 20;

    for (unsigned round = 0; round < 300; round++) {
        size_t n = 1 + next_random(&seed) % (round % 10 ? 120 : 800);
        uint32_t from = 0, spread = 1 + next_random(&seed) % 9;
        struct err err = { 0 };

        for (size_t i = 0; i < n; i++) {
            uint32_t pick = next_random(&seed) % 6;

            ranges[i].from = from;
            ranges[i].action = pick < 2   ? ACTION_ALLOW
                               : pick < 4 ? ACTION_EPERM
                                          : -1 - (int)(next_random(&seed) % RULE_COUNT);
            from += 1 + next_random(&seed) % spread;
        }
        assert_int_equal(filter_compile(ranges, n, false, prog, &prog_len, &err), 0);
        for (size_t i = 0; i < n; i++) {
            uint32_t last = i + 1 < n ? ranges[i + 1].from - 1 : 0xffffffff;
            struct seccomp_data data = { .arch = AUDIT_ARCH_X86_64 };

            for (unsigned a = 0; a < 6; a++)
                data.args[a] = next_random(&seed) % 2 ? next_random(&seed) % 64 : next_random(&seed);
            int want = walk_rules(ranges[i].action, (const uint64_t *)data.args);
            data.nr = (int)ranges[i].from;
            assert_int_equal(verdict_of(bpf_run(prog, prog_len, &data, NULL, NULL)), want);
            data.nr = (int)last;
            assert_int_equal(verdict_of(bpf_run(prog, prog_len, &data, NULL, NULL)), want);
        }
    }
}

TEST(a_single_range_compiles_to_a_program)
{
    int r;
    struct seccomp_data data = { .nr = 7, .arch = AUDIT_ARCH_X86_64 };

    compile_alternating(1, 0, &r);
    assert_int_equal(r, 0);
    assert_int_equal(verdict_of(bpf_run(prog, prog_len, &data, NULL, NULL)), ENOSYS);
}

TEST(building_takes_microseconds)
{
    struct timespec a, b;
    const unsigned rounds = 1000;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (unsigned i = 0; i < rounds; i++)
        build((enum profile)(i % PROFILE_COUNT));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    double us = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / rounds;
    print_message("# one build: %.1f us of processor time\n", us);
    assert_true(us < 2000); /* a hundred times the usual duration: only a fundamental change should fail here */
}

/* The kernel. */

static int install(enum profile p)
{
    struct sock_fprog fprog;

    build(p);
    fprog = (struct sock_fprog){ (unsigned short)prog_len, prog };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog);
}

/* Runs fn under the filter in a child; its result is the exit status. */
static int under_filter(enum profile p, int (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(install(p) < 0 ? 100 : fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static bool fails_with(long r, int want)
{
    return r == -1 && errno == want;
}

static int try_calls(void)
{
    if (syscall(SYS_getpid) != getpid())
        return 1;
    if (!fails_with(syscall(SYS_unshare, 0x10000000), EPERM))
        return 2;
    if (!fails_with(syscall(435 /* clone3 */, NULL, 0), ENOSYS))
        return 3;
    if (!fails_with(syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0), EPERM))
        return 4;
    if (!fails_with(syscall(1000), ENOSYS) || !fails_with(syscall(0x40000000 | SYS_getpid), ENOSYS))
        return 5;
    if (!fails_with(socket(40 /* AF_VSOCK */, SOCK_STREAM, 0), EAFNOSUPPORT))
        return 6;
    if (!fails_with(socket(AF_INET, SOCK_RAW, 1), EPERM))
        return 7;
    if (!fails_with(socket(AF_INET, SOCK_STREAM, 262 /* MPTCP */), EPROTONOSUPPORT))
        return 8;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 9;
    pid_t pid = fork();
    if (pid == 0)
        _exit(42);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
        return 10;
    if (!fails_with(syscall(SYS_ptrace, 0, 0, 0, 0), EPERM) || !fails_with(syscall(SYS_bpf, 0, 0, 0), EPERM))
        return 11;
    if (prctl(PR_SET_NAME, "cove") < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        return 12;
    if (!fails_with(prctl(35 /* PR_SET_MM */, 1, 0, 0, 0), EPERM) || !fails_with(prctl(9999, 0, 0, 0, 0), EINVAL))
        return 13;
    return 0;
}

TEST(the_kernel_accepts_the_filter_and_agrees_with_the_table)
{
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        int status = under_filter((enum profile)p, try_calls);

        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

#if defined(__x86_64__)
static int call_32_bit(void)
{
    long r;

    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L /* getpid of i386 */) : "memory", "r8", "r9", "r10", "r11");
    return 1;
}

TEST(sc25_the_32_bit_entry_kills_the_process)
{
    int status = under_filter(PROFILE_BASE, call_32_bit);

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(filter_agrees_with_the_table_on_every_call_and_has_no_dead_branch),
        RUN(filter_agrees_with_the_table_when_calls_are_granted_and_denied),
        RUN(with_notify_only_eperm_goes_to_the_listener),
        RUN(building_a_filter_is_deterministic),
        RUN(the_mean_path_over_all_numbers_stays_short),
        RUN(a_table_too_large_for_short_jumps_compiles_correctly),
        RUN(random_tables_compile_to_programs_that_agree_with_them),
        RUN(a_single_range_compiles_to_a_program),
        RUN(building_takes_microseconds),
        RUN(the_kernel_accepts_the_filter_and_agrees_with_the_table),
#if defined(__x86_64__)
        RUN(sc25_the_32_bit_entry_kills_the_process),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
