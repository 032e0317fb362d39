/* All texts come from the table, so a receipt cannot claim a rule that the filter does not have.
 * Only two facts are added here: which arguments of a completely refused call are worth reporting,
 * and which groups are refused permanently, because allowing one of their calls would remove a
 * wall. */
#include "policy/denial.h"

#include "core/base/str.h"
#include "policy/syscall_table.h"

#include <linux/audit.h>
#include <stdio.h>
#include <sys/syscall.h>

static const struct {
    unsigned nr;
    uint8_t args;
} denial_extra_args[] = {
    { SYS_unshare, 1 << 0 },    { SYS_setns, 1 << 1 },       { SYS_ptrace, 1 << 0 }, { SYS_keyctl, 1 << 0 },
    { SYS_bpf, 1 << 0 },        { SYS_quotactl, 1 << 0 },    { SYS_reboot, 1 << 2 }, { SYS_clock_settime, 1 << 0 },
    { SYS_ioprio_set, 1 << 0 }, { SYS_userfaultfd, 1 << 0 },
};

static const struct syscall_row *denial_find_row(unsigned nr)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        if (syscall_rows[i].nr == nr)
            return &syscall_rows[i];
    return NULL;
}

/* The arguments that a rule tests, directly or in the rules it refers to. */
static uint8_t denial_rule_args(int action)
{
    uint8_t args = 0;

    for (size_t i = 0; action < 0 && i < arg_test_count; i++)
        if (arg_tests[i].rule == ACTION_RULE(action)) {
            args |= arg_tests[i].mask ? (uint8_t)(1u << arg_tests[i].arg) : 0;
            args |= denial_rule_args(arg_tests[i].then);
        }
    return args;
}

uint8_t denial_significant_args(unsigned nr)
{
    const struct syscall_row *row = denial_find_row(nr);
    uint8_t args = 0;

    for (size_t i = 0; i < ARRAY_LEN(denial_extra_args); i++)
        if (denial_extra_args[i].nr == nr)
            return denial_extra_args[i].args;
    for (unsigned p = 0; row && p < PROFILE_COUNT; p++)
        args |= denial_rule_args(row->action[p]);
    for (size_t i = 0; i < grant_row_count; i++)
        args |= grant_rows[i].nr == nr ? denial_rule_args(grant_rows[i].action) : 0;
    return args;
}

static void denial_describe_call(const char *name, uint8_t noted, const uint64_t args[6], char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s(", name);

    for (unsigned i = 0; i < 6 && noted >> i && n < cap; i++) {
        uint32_t v = (uint32_t)args[i];
        const char *comma = i > 0 ? ", " : "";

        if (!(noted >> i & 1))
            n += (size_t)snprintf(out + n, cap - n, "%s...", comma);
        else
            n += (size_t)snprintf(out + n, cap - n, v > 255 ? "%s%#x" : "%s%u", comma, v);
    }
    if (n < cap)
        snprintf(out + n, cap - n, "%s)", noted ? "" : "...");
}

/* The rule that denied the call: the last one in the chain of rules. */
static enum arg_rule denial_deciding_rule(enum arg_rule rule, const uint64_t args[6])
{
    for (size_t i = 0; i < arg_test_count; i++) {
        const struct arg_test *t = &arg_tests[i];
        uint32_t v = (uint32_t)args[t->arg] & t->mask;

        if (t->rule == rule && v >= t->from && v <= t->to)
            return t->then < 0 ? denial_deciding_rule(ACTION_RULE(t->then), args) : rule;
    }
    return rule;
}

static bool denial_is_permanent(enum syscall_group g)
{
    return g == GROUP_MOUNT || g == GROUP_NAMESPACE || g == GROUP_HOST || g == GROUP_KEYS || g == GROUP_ESCAPE;
}

/* The grant that would allow the call and that this filter lacks, or NULL. */
static const struct grant_row *denial_missing_grant(const struct filter_spec *s, unsigned nr)
{
    for (size_t i = 0; i < grant_row_count; i++)
        if (grant_rows[i].nr == nr && !(s->grants >> grant_rows[i].grant & 1))
            return &grant_rows[i];
    return NULL;
}

static int denial_granted_action(const struct filter_spec *s, const struct syscall_row *row)
{
    int action = row->action[s->profile];

    for (size_t i = 0; i < grant_row_count; i++)
        if (grant_rows[i].nr == row->nr && s->grants >> grant_rows[i].grant & 1)
            action = grant_rows[i].action;
    return action;
}

/* Whether the grant would have allowed this call with these arguments. */
static bool denial_grant_would_allow(const struct filter_spec *s, const struct grant_row *g, const uint64_t args[6])
{
    struct filter_spec with = { .profile = s->profile, .grants = s->grants | 1u << g->grant };

    return filter_verdict(&with, AUDIT_ARCH_X86_64, g->nr, args) == 0;
}

/* Lists the profiles that do not refuse the call. */
static size_t denial_allowing_profiles(const struct syscall_row *row, char *out, size_t cap)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        if (row->action[p] <= 0 && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " or " : "", profile_name((enum profile)p));
    return n;
}

static void denial_describe_fix(const struct filter_spec *s, const struct syscall_row *row, int action,
                                const uint64_t args[6], char *out, size_t cap)
{
    const struct grant_row *g = denial_missing_grant(s, row->nr);
    char others[64];

    if (g && denial_grant_would_allow(s, g, args))
        snprintf(out, cap, "allow with --policy %s", grant_name((enum grant)g->grant));
    else if (action < 0)
        snprintf(out, cap, "the call is allowed, but not with these arguments");
    else if (denial_allowing_profiles(row, others, sizeof(others)))
        snprintf(out, cap, "allowed in profile %s; the program that is run determines the profile", others);
    else if (denial_is_permanent((enum syscall_group)row->group))
        snprintf(out, cap, "there is no way to allow it");
    else
        snprintf(out, cap, "no policy of this version allows it");
}

void denial_describe(const struct filter_spec *s, unsigned nr, const uint64_t args[6], struct denial *ret)
{
    const struct syscall_row *row = denial_find_row(nr);

    *ret = (struct denial){ 0 };
    if (!row) {
        snprintf(ret->name, sizeof(ret->name), "call %u", nr);
        snprintf(ret->call, sizeof(ret->call), "call %u(...)", nr);
        snprintf(ret->rule, sizeof(ret->rule), "not in the table of system calls");
        snprintf(ret->fix, sizeof(ret->fix), "there is no way to allow it");
        return;
    }
    int action = denial_granted_action(s, row);
    snprintf(ret->name, sizeof(ret->name), "%s", row->name);
    denial_describe_call(row->name, denial_significant_args(nr), args, ret->call, sizeof(ret->call));
    if (action <= 0 && s->deny[nr >> 6] >> (nr & 63) & 1) {
        snprintf(ret->rule, sizeof(ret->rule), "not allowed (policy): the policy denies this call");
        snprintf(ret->fix, sizeof(ret->fix), "remove %s from the system calls that the policy denies", row->name);
        return;
    }
    snprintf(ret->rule, sizeof(ret->rule), "not allowed (profile %s): %s", profile_name(s->profile),
             action < 0 ? arg_rule_meaning(denial_deciding_rule(ACTION_RULE(action), args))
                        : syscall_group_why((enum syscall_group)row->group));
    denial_describe_fix(s, row, action, args, ret->fix, sizeof(ret->fix));
}
