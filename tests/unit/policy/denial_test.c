#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/denial.h"
#include "policy/syscall_table.h"

#include <sys/syscall.h>

static struct denial describe(enum profile p, unsigned nr, uint64_t a, uint64_t b, uint64_t c)
{
    struct denial d;

    const struct filter_spec s = { .profile = p };

    denial_describe(&s, nr, (uint64_t[6]){ a, b, c, 0, 0, 0 }, &d);
    return d;
}

TEST(a_denial_by_a_wall_says_that_it_is_permanent)
{
    struct denial d = describe(PROFILE_PYTHON, SYS_mount, 0x7f0012345678, 0x7f0012345678, 0);

    assert_string_equal(d.name, "mount");
    assert_string_equal(d.call, "mount(...)"); /* pointers are not shown */
    assert_string_equal(d.rule, "not allowed (profile python): mounts and roots are the walls themselves");
    assert_string_equal(d.fix, "there is no way to allow it");
}

TEST(arguments_that_identify_the_operation_are_shown)
{
    static const struct {
        unsigned nr;
        uint64_t args[3];
        const char *call;
    } cases[] = {
        { SYS_unshare, { 0x10000000, 0, 0 }, "unshare(0x10000000)" },
        { SYS_ptrace, { 16, 1, 2 }, "ptrace(16)" },
        { SYS_socket, { 2, 3, 1 }, "socket(2, 3, 1)" },
        { SYS_ioctl, { 5, 0x5412, 0x7ffc00001234 }, "ioctl(..., 0x5412)" },
        { SYS_setsockopt, { 3, 1, 26 }, "setsockopt(..., 1, 26)" },
        { SYS_keyctl, { 0xdeadbeef00000003, 9, 9 }, "keyctl(3)" }, /* the kernel drops the upper half */
        { SYS_prctl, { 35, 1, 2 }, "prctl(35)" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct denial d = describe(PROFILE_BASE, cases[i].nr, cases[i].args[0], cases[i].args[1], cases[i].args[2]);

        assert_string_equal(d.call, cases[i].call);
    }
}

TEST(the_denying_rule_is_named_and_not_its_parent)
{
    struct denial d = describe(PROFILE_SHELL, SYS_socket, 2, 3, 1);

    assert_string_equal(d.rule, "not allowed (profile shell): streams and datagrams; never raw");
    assert_string_equal(d.fix, "the call is allowed, but not with these arguments");
    d = describe(PROFILE_SHELL, SYS_setsockopt, 3, 1, 26);
    assert_string_equal(d.rule, "not allowed (profile shell): no BPF programs on sockets");
}

TEST(a_call_that_another_profile_allows_names_that_profile)
{
    struct denial d = describe(PROFILE_PYTHON, SYS_pkey_alloc, 0, 0, 0);

    assert_string_equal(d.fix, "allowed in profile base or node; the program that is run determines the profile");
}

TEST(a_grant_that_would_allow_the_call_is_the_fix)
{
    struct filter_spec debug = { .profile = PROFILE_BASE, .grants = GRANT_BIT(DEBUG) };
    struct denial d = describe(PROFILE_BASE, SYS_ptrace, 16, 0, 0);

    assert_string_equal(d.fix, "allow with --policy debug");
    d = describe(PROFILE_BASE, SYS_prctl, 0x59616d61, 0, 0); /* SET_PTRACER */
    assert_string_equal(d.fix, "allow with --policy debug");
    d = describe(PROFILE_BASE, SYS_prctl, 35, 0, 0); /* SET_MM: debug does not allow that either */
    assert_string_equal(d.fix, "the call is allowed, but not with these arguments");
    /* a grant that the filter already has is not a fix */
    denial_describe(&debug, SYS_personality, (uint64_t[6]){ 0x20 }, &d);
    assert_string_equal(d.fix, "the call is allowed, but not with these arguments");
}

TEST(a_call_denied_by_the_policy_names_the_policy)
{
    struct filter_spec s = { .profile = PROFILE_BASE };
    struct denial d;

    s.deny[SYS_socket / 64] |= 1ull << SYS_socket % 64;
    denial_describe(&s, SYS_socket, (uint64_t[6]){ 2, 1, 0 }, &d);
    assert_string_equal(d.rule, "not allowed (policy): the policy denies this call");
    assert_string_equal(d.fix, "remove socket from the system calls that the policy denies");
    s.deny[SYS_mount / 64] |= 1ull << SYS_mount % 64; /* refused without the policy as well */
    denial_describe(&s, SYS_mount, (uint64_t[6]){ 0 }, &d);
    assert_string_equal(d.fix, "there is no way to allow it");
}

TEST(an_unknown_call_is_described_by_its_number)
{
    struct denial d = describe(PROFILE_BASE, 4000, 1, 2, 3);

    assert_string_equal(d.call, "call 4000(...)");
    assert_int_equal(denial_significant_args(4000), 0);
}

/* Every denial that can reach a listener must have texts, and they must fit. */
TEST(every_refused_call_of_the_table_has_a_rule_and_a_fix)
{
    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        for (size_t i = 0; i < syscall_row_count; i++) {
            struct denial d = describe((enum profile)p, syscall_rows[i].nr, ~0ull, ~0ull, ~0ull);

            if (!str_eq(d.name, syscall_rows[i].name) || !*d.fix || d.fix[sizeof(d.fix) - 2] ||
                d.rule[sizeof(d.rule) - 2] || d.call[strlen(d.call) - 1] != ')')
                fail_msg("%s: '%s' '%s' '%s'", syscall_rows[i].name, d.call, d.rule, d.fix);
        }
}

/* With a pointer in the key, every repetition of a call would be a separate line. */
TEST(only_32_bit_arguments_are_shown)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        assert_int_equal(denial_significant_args(syscall_rows[i].nr) & ~15u, 0);
    assert_int_equal(denial_significant_args(SYS_mount), 0);
    assert_int_equal(denial_significant_args(SYS_ioctl), 2);
    assert_int_equal(denial_significant_args(SYS_socket), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_denial_by_a_wall_says_that_it_is_permanent),
        RUN(arguments_that_identify_the_operation_are_shown),
        RUN(the_denying_rule_is_named_and_not_its_parent),
        RUN(a_call_that_another_profile_allows_names_that_profile),
        RUN(a_grant_that_would_allow_the_call_is_the_fix),
        RUN(a_call_denied_by_the_policy_names_the_policy),
        RUN(an_unknown_call_is_described_by_its_number),
        RUN(every_refused_call_of_the_table_has_a_rule_and_a_fix),
        RUN(only_32_bit_arguments_are_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
