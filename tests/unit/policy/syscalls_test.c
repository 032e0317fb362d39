/* The table itself: its form, its size, and the answers that the attack catalogue requires, by id.
 */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/syscall_table.h"

#include <linux/audit.h>
#include <stdio.h>

#define ALLOWED_MAX 250

static int verdict(enum profile p, const char *name, uint64_t a0, uint64_t a1, uint64_t a2)
{
    const uint64_t args[6] = { a0, a1, a2, 0, 0, 0 };

    for (size_t i = 0; i < syscall_row_count; i++)
        if (str_eq(syscall_rows[i].name, name))
            return syscall_verdict(p, AUDIT_ARCH_X86_64, syscall_rows[i].nr, args);
    fail_msg("the table does not know %s", name);
    return -1;
}

TEST(rows_are_sorted_and_names_are_unique)
{
    for (size_t i = 1; i < syscall_row_count; i++) {
        assert_true(syscall_rows[i].nr > syscall_rows[i - 1].nr);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(syscall_rows[i].name, syscall_rows[k].name);
    }
}

TEST(no_profile_allows_more_than_250_calls)
{
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        unsigned n = syscall_allowed_count((enum profile)p);

        print_message("# %s allows %u\n", profile_name((enum profile)p), n);
        assert_true(n > 200 && n <= ALLOWED_MAX);
    }
}

TEST(no_profile_allows_a_call_that_base_refuses)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        for (unsigned p = 0; p < PROFILE_COUNT; p++)
            if (syscall_rows[i].action[p] <= 0)
                assert_int_equal(syscall_rows[i].action[p], syscall_rows[i].action[PROFILE_BASE]);
}

TEST(every_rule_ends_with_else_and_refers_only_to_later_rules)
{
    for (size_t i = 0; i < arg_test_count; i++) {
        const struct arg_test *t = &arg_tests[i];
        bool last = i + 1 == arg_test_count || arg_tests[i + 1].rule != t->rule;

        assert_true(last == (t->mask == 0));
        assert_true(t->arg < 6 && t->from <= t->to);
        assert_int_equal(t->from & ~t->mask, 0); /* else the test could never match */
        assert_true(i == 0 || t->rule >= arg_tests[i - 1].rule);
        if (t->then < 0)
            assert_true(ACTION_RULE(t->then) > t->rule);
    }
    assert_int_equal(arg_tests[arg_test_count - 1].rule, RULE_COUNT - 1);
}

TEST(names_and_rules_can_be_looked_up)
{
    enum profile p = PROFILE_SHELL;

    for (unsigned i = 0; i < PROFILE_COUNT; i++) {
        assert_true(profile_parse(profile_name((enum profile)i), &p));
        assert_int_equal(p, i);
    }
    assert_false(profile_parse("ruby", &p));
    assert_string_equal(syscall_name(0), "read");
    assert_string_equal(syscall_name(435), "clone3");
    assert_null(syscall_name(400));
    assert_int_equal(syscall_rule(PROFILE_BASE, 0), SC_ALLOW);
    assert_int_equal(syscall_rule(PROFILE_BASE, 16), SC_ARGS);
    assert_int_equal(syscall_rule(PROFILE_BASE, 165), SC_EPERM);
    assert_int_equal(syscall_rule(PROFILE_BASE, 435), SC_ENOSYS);
    assert_int_equal(syscall_rule(PROFILE_BASE, 400), SC_ENOSYS);
}

/* Compares the numbers with the kernel headers of the build host, as far as those go. */
TEST(numbers_agree_with_the_kernel_headers)
{
    FILE *f = fopen("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "re");
    char line[200], name[100];
    unsigned nr, checked = 0;

    if (!f)
        f = fopen("/usr/include/asm/unistd_64.h", "re");
    if (!f)
        skip();
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "#define __NR_%99s %u", name, &nr) != 2)
            continue;
        if (!syscall_name(nr))
            print_message("# %s (%u) is newer than the table\n", name, nr);
        else if (!str_eq(syscall_name(nr), name))
            fail_msg("%u is %s in the headers and %s in the table", nr, name, syscall_name(nr));
        checked++;
    }
    fclose(f);
    assert_true(checked > 300);
}

TEST(calls_that_must_never_be_allowed_are_refused_in_every_profile)
{
    static const char *const names[] = {
        /* NS: mounts, roots and namespaces */
        "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree",
        "move_mount", "mount_setattr", "open_tree_attr", "unshare", "setns", "open_by_handle_at", "name_to_handle_at",
        /* PR: other processes */
        "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "move_pages",
        "migrate_pages",
        /* SC01-SC33 */
        "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "kexec_load", "kexec_file_load",
        "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "iopl", "ioperm", "acct",
        "syslog", "adjtimex", "clock_adjtime", "settimeofday", "clock_settime", "sethostname", "setdomainname",
        "fanotify_init", "fanotify_mark", "memfd_secret", "modify_ldt", "quotactl", "quotactl_fd", "vhangup",
        "nfsservctl", "uselib", "ustat", "sysfs", "remap_file_pages", "mbind", "setgroups"
    };

    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            if (verdict((enum profile)p, names[i], 0, 0, 0) != EPERM)
                fail_msg("%s in %s", names[i], profile_name((enum profile)p));
}

TEST(calls_with_an_older_fallback_return_enosys_rather_than_eperm)
{
    static const char *const names[] = { "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register" };
    const uint64_t none[6] = { 0 };

    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            assert_int_equal(verdict((enum profile)p, names[i], 0, 0, 0), ENOSYS);
        assert_int_equal(syscall_verdict((enum profile)p, AUDIT_ARCH_X86_64, 471, none), ENOSYS);
        assert_int_equal(syscall_verdict((enum profile)p, AUDIT_ARCH_X86_64, 0x40000000, none), ENOSYS);
        assert_int_equal(syscall_verdict((enum profile)p, AUDIT_ARCH_I386, 20, none), -1);
    }
}

TEST(calls_that_runtimes_need_are_allowed_in_every_profile)
{
    static const char *const names[] = { "openat2",
                                         "statx",
                                         "rseq",
                                         "getrandom",
                                         "close_range",
                                         "faccessat2",
                                         "pidfd_open",
                                         "pidfd_send_signal",
                                         "epoll_pwait2",
                                         "futex_waitv",
                                         "membarrier",
                                         "copy_file_range",
                                         "memfd_create",
                                         "landlock_create_ruleset",
                                         "landlock_add_rule",
                                         "landlock_restrict_self",
                                         "sched_getaffinity",
                                         "sched_yield",
                                         "getpriority",
                                         "setpriority",
                                         "getcpu",
                                         "rt_sigaction",
                                         "rt_sigreturn",
                                         "sigaltstack",
                                         "timer_create",
                                         "timerfd_create",
                                         "eventfd2",
                                         "signalfd4",
                                         "inotify_init1",
                                         "epoll_create1",
                                         "pipe2",
                                         "dup3",
                                         "flock",
                                         "fcntl",
                                         "mremap",
                                         "madvise",
                                         "mincore",
                                         "mlock",
                                         "sysinfo",
                                         "getrusage",
                                         "times",
                                         "set_robust_list",
                                         "set_tid_address",
                                         "vfork",
                                         "execve",
                                         "execveat",
                                         "wait4",
                                         "waitid",
                                         "utimensat",
                                         "renameat2",
                                         "fallocate",
                                         "sendfile",
                                         "splice",
                                         "getdents64",
                                         "statfs",
                                         "ioprio_get",
                                         "restart_syscall",
                                         "exit_group",
                                         "mmap",
                                         "mprotect",
                                         "kill",
                                         "tgkill",
                                         "fchmodat2" };

    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            if (verdict((enum profile)p, names[i], 0, 0, 0) != 0)
                fail_msg("%s in %s", names[i], profile_name((enum profile)p));
}

TEST(argument_rules_give_the_answers_of_the_attack_catalogue)
{
    static const struct {
        const char *name;
        uint64_t a0, a1, a2;
        int want;
    } cases[] = {
        { "clone", 0x3d0f00, 0, 0, 0 },            /* a thread of glibc */
        { "clone", 0x1200011, 0, 0, 0 },           /* fork */
        { "clone", 0x4111, 0, 0, 0 },              /* vfork, posix_spawn */
        { "clone", 0x10000000 | 17, 0, 0, EPERM }, /* NS03: user namespace */
        { "clone", 0x00020000, 0, 0, EPERM },
        { "clone", 0x02000000, 0, 0, EPERM },
        { "clone", 0x04000000, 0, 0, EPERM },
        { "clone", 0x08000000, 0, 0, EPERM },
        { "clone", 0x20000000, 0, 0, EPERM },
        { "clone", 0x40000000, 0, 0, EPERM },
        { "clone", 0x7fffffff40000000, 0, 0, EPERM },
        { "socket", 1, 1, 0, 0 },
        { "socket", 2, 1, 0, 0 },
        { "socket", 2, 1 | 0x80800, 6, 0 },
        { "socket", 10, 2, 17, 0 },
        { "socket", 16, 3, 0, 0 },
        { "socket", 16, 3, 12, EPROTONOSUPPORT }, /* SC31: NETFILTER, XFRM, AUDIT, UEVENT */
        { "socket", 16, 3, 6, EPROTONOSUPPORT },
        { "socket", 16, 3, 9, EPROTONOSUPPORT },
        { "socket", 16, 3, 15, EPROTONOSUPPORT },
        { "socket", 2, 3, 1, EPERM }, /* raw */
        { "socket", 10, 3 | 0x80000, 58, EPERM },
        { "socket", 2, 10, 0, EPERM },            /* SOCK_PACKET */
        { "socket", 2, 1, 262, EPROTONOSUPPORT }, /* SC30: MPTCP, SCTP, DCCP, SMC by protocol, UDP-Lite, ICMP */
        { "socket", 2, 1, 132, EPROTONOSUPPORT },
        { "socket", 2, 5, 132, ESOCKTNOSUPPORT },
        { "socket", 2, 6, 33, ESOCKTNOSUPPORT },
        { "socket", 2, 1, 256, EPROTONOSUPPORT },
        { "socket", 2, 2, 136, EPROTONOSUPPORT },
        { "socket", 2, 2, 1, EPROTONOSUPPORT },
        { "socket", 40, 1, 0, EAFNOSUPPORT }, /* VSOCK, ALG, KEY, PACKET, XDP, TIPC, RDS, BLUETOOTH, SMC, PPPOX */
        { "socket", 38, 5, 0, EAFNOSUPPORT },
        { "socket", 15, 3, 2, EAFNOSUPPORT },
        { "socket", 17, 3, 0, EAFNOSUPPORT },
        { "socket", 44, 3, 0, EAFNOSUPPORT },
        { "socket", 30, 2, 0, EAFNOSUPPORT },
        { "socket", 21, 5, 0, EAFNOSUPPORT },
        { "socket", 31, 3, 0, EAFNOSUPPORT },
        { "socket", 43, 1, 0, EAFNOSUPPORT },
        { "socket", 24, 1, 0, EAFNOSUPPORT },
        { "socket", 0x1ffffffff, 1, 0, EAFNOSUPPORT },
        { "socketpair", 1, 1, 0, 0 },
        { "socketpair", 30, 1, 0, EAFNOSUPPORT },
        { "setsockopt", 3, 1, 2, 0 },
        { "setsockopt", 3, 1, 26, EPERM },
        { "setsockopt", 3, 1, 50, EPERM },
        { "setsockopt", 3, 6, 1, 0 },
        { "setsockopt", 3, 6, 31, EPERM }, /* kernel TLS */
        { "setsockopt", 3, 17, 100, EPERM },
        { "setsockopt", 3, 41, 26, 0 },
        { "ioctl", 0, 0x5401, 0, 0 },
        { "ioctl", 0, 0x5412, 0, EPERM },
        { "ioctl", 0, 0xffffffff00005412, 0, EPERM }, /* the kernel drops the upper half */
        { "ioctl", 0, 0x541c, 0, EPERM },
        { "ioctl", 0, 0x5423, 0, EPERM },
        { "ioctl", 0, 0x40086602, 0, EPERM }, /* FS21: FS_IOC_SETFLAGS */
        { "ioctl", 0, 0xc0189436, 0, EPERM }, /* FIDEDUPERANGE */
        { "ioctl", 0, 0xb701, 0, EPERM },
        { "ioctl", 0, 0xae01, 0, ENOTTY }, /* KVM_CREATE_VM */
        { "ioctl", 0, 0x8913, 0, 0 },      /* SIOCGIFFLAGS */
        { "ioctl", 0, 0x8940, 0, EPERM },  /* SIOCGIFBR loads the bridge module */
        { "ioctl", 0, 0x8941, 0, EPERM },
        { "ioctl", 0, 0x8946, 0, 0 },
        { "madvise", 0, 4096, 4, 0 },
        { "madvise", 0, 4096, 12, EINVAL }, /* MADV_MERGEABLE */
        { "madvise", 0, 4096, 1ull << 32 | 12, EINVAL },
        { "madvise", 0, 4096, 100, EPERM },
        { "prctl", 4, 0, 0, 0 },
        { "prctl", 15, 0, 0, 0 },
        { "prctl", 23, 0, 0, 0 },
        { "prctl", 38, 1, 0, 0 },
        { "prctl", 1, 9, 0, 0 },
        { "prctl", 35, 1, 0, EPERM },
        { "prctl", 0x59616d61, 1, 0, EPERM },
        { "prctl", 67, 1, 0, EPERM },
        { "prctl", 1000, 1, 0, EINVAL },
        { "arch_prctl", 0x1002, 0, 0, 0 },
        { "arch_prctl", 0x4002, 0, 0, EINVAL },
        { "prlimit64", 0, 7, 0, 0 },
        { "prlimit64", 1, 7, 0, EPERM }, /* CP14 */
        { "personality", 0, 0, 0, 0 },
        { "personality", 0xffffffff, 0, 0, 0 },
        { "personality", UINT64_MAX, 0, 0, 0 },
        { "personality", 0x0040000, 0, 0, EPERM }, /* SC27 */
        { "personality", 0x0400000, 0, 0, EPERM },
        { "mknod", 0, 0x11a4, 0, 0 },
        { "mknod", 0, 0x21b6, 0, EPERM }, /* FS09 */
        { "mknod", 0, 0x61b6, 0, EPERM }, /* FS10 */
        { "mknodat", 0, 0, 0xc1b6, 0 },
        { "mknodat", 0, 0, 0x61b6, EPERM },
        { "mknod", 0, 0x89ed, 0, EPERM }, /* CP11: a set-id file in a directory of the host */
        { "mknodat", 0, 0, 0x85ed, EPERM },
        { "chmod", 0, 01777, 0, 0 },
        { "chmod", 0, 04755, 0, EPERM },
        { "chmod", 0, 02755, 0, EPERM },
        { "chmod", 0, 1ull << 32 | 04755, 0, EPERM },
        { "fchmod", 0, 0755, 0, 0 },
        { "fchmod", 0, 06755, 0, EPERM },
        { "fchmodat", 0, 0, 04755, EPERM },
        { "fchmodat2", 0, 0, 04755, EPERM },
        { "creat", 0, 04755, 0, EPERM },
        { "open", 0, 0x40 | 2, 0644, 0 },
        { "open", 0, 0x40 | 2, 04755, EPERM },
        { "open", 0, 0x410000 | 2, 02755, EPERM }, /* O_TMPFILE */
        { "open", 0, 0, 04755, 0 },                /* the kernel ignores the mode */
        { "openat", 0, 0, 0x40 | 2, 0 },
        { "seccomp", 1, 0, 0, 0 },
        { "seccomp", 1, 1, 0, 0 },
        { "seccomp", 1, 8, 0, EPERM }, /* SC36 */
        { "seccomp", 1, 8 | 1, 0, EPERM },
        { "seccomp", 7, 0, 0, EINVAL },
        { "sched_setscheduler", 0, 0, 0, 0 },
        { "sched_setscheduler", 0, 3 | 0x40000000, 0, 0 },
        { "sched_setscheduler", 0, 1, 0, EPERM }, /* CP13 */
        { "sched_setscheduler", 0, 6, 0, EPERM },
    };

    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            int got = verdict((enum profile)p, cases[i].name, cases[i].a0, cases[i].a1, cases[i].a2);

            if (got != cases[i].want)
                fail_msg("case %zu: %s(%#" PRIx64 ", %#" PRIx64 ", %#" PRIx64 ") in %s is %d", i, cases[i].name,
                         cases[i].a0, cases[i].a1, cases[i].a2, profile_name((enum profile)p), got);
        }
}

static int granted(const struct filter_spec *s, const char *name, uint64_t a0)
{
    const uint64_t args[6] = { a0 };

    return filter_verdict(s, AUDIT_ARCH_X86_64, (unsigned)syscall_number(name), args);
}

TEST(the_grant_debug_allows_only_tracing)
{
    const struct filter_spec debug = { .profile = PROFILE_BASE, .grants = GRANT_BIT(DEBUG) };
    static const char *const opened[] = { "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd" };
    const struct filter_spec plain = { .profile = PROFILE_BASE };

    for (size_t i = 0; i < ARRAY_LEN(opened); i++) {
        assert_int_equal(granted(&plain, opened[i], 0), EPERM);
        assert_int_equal(granted(&debug, opened[i], 0), 0);
    }
    assert_int_equal(filter_allowed_count(&debug), syscall_allowed_count(PROFILE_BASE) + ARRAY_LEN(opened));
    assert_int_equal(granted(&debug, "personality", 0x0040000), 0);
    assert_int_equal(granted(&debug, "personality", 0x0040001), EPERM);
    assert_int_equal(granted(&debug, "prctl", 0x59616d61), 0);
    assert_int_equal(granted(&debug, "prctl", 35), EPERM);
    assert_int_equal(granted(&debug, "perf_event_open", 0), EPERM);
}

TEST(grants_use_the_call_numbers_of_the_table)
{
    for (size_t i = 0; i < grant_row_count; i++)
        assert_int_equal(syscall_number(grant_rows[i].name), grant_rows[i].nr);
    for (unsigned g = 0; g < GRANT_COUNT; g++) {
        enum grant back;

        assert_true(grant_parse(grant_name((enum grant)g), &back) && back == (enum grant)g);
    }
}

TEST(a_denied_call_returns_eperm_even_if_granted)
{
    struct filter_spec s = { .profile = PROFILE_BASE, .grants = GRANT_BIT(DEBUG) };

    s.deny[101 / 64] = 1ull << 101 % 64;
    assert_int_equal(granted(&s, "ptrace", 0), EPERM);
    assert_int_equal(granted(&s, "kcmp", 0), 0);
}

TEST(the_table_allows_every_needed_call)
{
#define NEEDED(name)                                                         \
    do {                                                                     \
        int nr = syscall_number(#name);                                      \
        if (nr < 0 || !syscall_is_needed((unsigned)nr))                      \
            fail_msg("%s is needed, but the table does not know it", #name); \
    } while (0);
#include "policy/needed.def"
#undef NEEDED
    assert_false(syscall_is_needed(101));
    assert_false(syscall_is_needed(511));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_grant_debug_allows_only_tracing),
        RUN(grants_use_the_call_numbers_of_the_table),
        RUN(a_denied_call_returns_eperm_even_if_granted),
        RUN(the_table_allows_every_needed_call),
        RUN(rows_are_sorted_and_names_are_unique),
        RUN(no_profile_allows_more_than_250_calls),
        RUN(no_profile_allows_a_call_that_base_refuses),
        RUN(every_rule_ends_with_else_and_refers_only_to_later_rules),
        RUN(names_and_rules_can_be_looked_up),
        RUN(numbers_agree_with_the_kernel_headers),
        RUN(calls_that_must_never_be_allowed_are_refused_in_every_profile),
        RUN(calls_with_an_older_fallback_return_enosys_rather_than_eperm),
        RUN(calls_that_runtimes_need_are_allowed_in_every_profile),
        RUN(argument_rules_give_the_answers_of_the_attack_catalogue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
