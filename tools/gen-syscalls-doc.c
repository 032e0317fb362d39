/* gen-syscalls-doc - writes docs/syscalls.md from the tables of src/policy to standard output.
 *
 * The page is committed, and a test compares it with what this prints, so that the policy people read is the policy
 * that runs. */
#include "policy/syscall_table.h"

#include <ctype.h>
#include <stdio.h>

static const char *errno_name(int action)
{
    switch (action) {
    case ACTION_EPERM:
        return "EPERM";
    case ACTION_ENOSYS:
        return "ENOSYS";
    case ACTION_EINVAL:
        return "EINVAL";
    case ACTION_ENOTTY:
        return "ENOTTY";
    case ACTION_EAFNOSUPPORT:
        return "EAFNOSUPPORT";
    case ACTION_ESOCKTNOSUPPORT:
        return "ESOCKTNOSUPPORT";
    case ACTION_EPROTONOSUPPORT:
        return "EPROTONOSUPPORT";
    default:
        return "?";
    }
}

static const char *rule_name(enum arg_rule r)
{
    static const char *const names[RULE_COUNT] = {
#define RULE(id, meaning) [RULE_##id] = #id,
#define IF(rule, arg, mask, from, to, then)
#define ELSE(rule, then)
#include "policy/syscall_args.def"
#undef RULE
#undef IF
#undef ELSE
    };

    return names[r];
}

static void print_lower(const char *s)
{
    for (; *s; s++)
        putchar(tolower((unsigned char)*s));
}

static void print_action(int action)
{
    if (action == ACTION_ALLOW)
        printf("allowed");
    else if (action > 0)
        printf("%s", errno_name(action));
    else {
        printf("[");
        print_lower(rule_name(ACTION_RULE(action)));
        printf("](#");
        print_lower(rule_name(ACTION_RULE(action)));
        printf(")");
    }
}

static bool group_is_allowed(unsigned group)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        if (syscall_rows[i].group == group && syscall_rows[i].action[PROFILE_BASE] <= 0)
            return true;
    return false;
}

static bool same_everywhere(const struct syscall_row *row)
{
    for (unsigned p = 1; p < PROFILE_COUNT; p++)
        if (row->action[p] != row->action[0])
            return false;
    return true;
}

/* The calls of a group with one kind of answer, on one line; nothing when there are none. */
static void print_calls(unsigned group, const char *lead, bool (*wanted)(int action))
{
    bool any = false;

    for (size_t i = 0; i < syscall_row_count; i++) {
        const struct syscall_row *row = &syscall_rows[i];
        int action = row->action[PROFILE_BASE];

        if (row->group != group || !wanted(action))
            continue;
        if (any)
            printf(", ");
        else
            printf("- %s: ", lead);
        any = true;
        if (action >= 0) {
            printf("`%s`", row->name);
        } else {
            printf("[`%s`](#", row->name);
            print_lower(rule_name(ACTION_RULE(action)));
            printf(")");
        }
    }
    if (any)
        printf("\n");
}

static bool is_allowed(int action)
{
    return action == ACTION_ALLOW;
}

static bool is_by_rule(int action)
{
    return action < 0;
}

static bool is_eperm(int action)
{
    return action == ACTION_EPERM;
}

static bool is_enosys(int action)
{
    return action == ACTION_ENOSYS;
}

static void print_groups(bool allowed)
{
    for (unsigned g = 0; g < GROUP_COUNT; g++) {
        if (group_is_allowed(g) != allowed)
            continue;
        printf("**");
        print_lower(syscall_group_name((enum syscall_group)g));
        printf("**: %s.\n\n", syscall_group_why((enum syscall_group)g));
        print_calls(g, "allowed", is_allowed);
        print_calls(g, "allowed with some arguments", is_by_rule);
        print_calls(g, "EPERM", is_eperm);
        print_calls(g, "ENOSYS", is_enosys);
        printf("\n");
    }
}

static void print_differences(void)
{
    printf("| call |");
    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        printf(" %s |", profile_name((enum profile)p));
    printf("\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < syscall_row_count; i++) {
        if (same_everywhere(&syscall_rows[i]))
            continue;
        printf("| `%s` |", syscall_rows[i].name);
        for (unsigned p = 0; p < PROFILE_COUNT; p++) {
            printf(" ");
            print_action(syscall_rows[i].action[p]);
            printf(" |");
        }
        printf("\n");
    }
    printf("\n");
}

static void print_test(const struct arg_test *t)
{
    if (t->mask == 0) {
        printf("| anything else | ");
    } else {
        printf("| argument %u", t->arg + 1u);
        if (t->mask != ALL_BITS)
            printf(" & %#x", t->mask);
        if (t->from == t->to)
            printf(" is %#x | ", t->from);
        else
            printf(" is %#x to %#x | ", t->from, t->to);
    }
    print_action(t->then);
    printf(" |\n");
}

static void print_rules(void)
{
    for (size_t i = 0; i < arg_test_count; i++) {
        if (i == 0 || arg_tests[i].rule != arg_tests[i - 1].rule) {
            printf("%s### ", i ? "\n" : "");
            print_lower(rule_name((enum arg_rule)arg_tests[i].rule));
            printf("\n%s.\n\n| when | answer |\n|---|---|\n", arg_rule_meaning((enum arg_rule)arg_tests[i].rule));
        }
        print_test(&arg_tests[i]);
    }
}

static void print_grants(void)
{
    for (unsigned g = 0; g < GRANT_COUNT; g++) {
        printf("**%s**: %s.\n\n", grant_name((enum grant)g), grant_why((enum grant)g));
        for (size_t i = 0; i < grant_row_count; i++) {
            if (grant_rows[i].grant != g)
                continue;
            printf("- `%s` ", grant_rows[i].name);
            if (grant_rows[i].action == ACTION_ALLOW) {
                printf("is allowed\n");
            } else {
                printf("follows [");
                print_lower(rule_name(ACTION_RULE(grant_rows[i].action)));
                printf("](#");
                print_lower(rule_name(ACTION_RULE(grant_rows[i].action)));
                printf(")\n");
            }
        }
        printf("\n");
    }
}

static void print_needed(void)
{
    unsigned n = 0;

    for (size_t i = 0; i < syscall_row_count; i++)
        if (syscall_is_needed(syscall_rows[i].nr))
            printf("%s`%s`", n++ ? ", " : "", syscall_rows[i].name);
    printf(".\n\n");
}

int main(void)
{
    printf(
        "# System calls in a sandbox\n\n"
        "<!-- Made from src/policy/syscalls.def and syscall_args.def by tools/gen-syscalls-doc; do not edit. -->\n\n"
        "A sandbox may make the system calls listed here and no others. A call that is refused by name answers EPERM,\n"
        "so that a person sees a policy; a call that this list does not know, or that programs can do without, "
        "answers\n"
        "ENOSYS, so that they go on as they would on an older kernel. The 32-bit entry ends the process; x32 numbers\n"
        "answer ENOSYS. The list is for x86-64.\n\n"
        "The filter is chosen by the runtime of an execution:");
    for (unsigned p = 0; p < PROFILE_COUNT; p++)
        printf("%s `%s` allows %u calls", p ? "," : "", profile_name((enum profile)p),
               syscall_allowed_count((enum profile)p));
    printf(".\n\n## Allowed\n\n");
    print_groups(true);
    printf("## Refused\n\n");
    print_groups(false);
    printf("## Where the profiles differ\n\n");
    print_differences();
    printf("## What a policy may open\n\n"
           "A policy names a grant; calls cannot be opened one by one.\n\n");
    print_grants();
    printf(
        "## What a policy may close\n\n"
        "`syscalls.deny` of a policy closes calls by name; they answer EPERM. The runtime and the start of any program "
        "stand on\nthese, which cannot be denied: ");
    print_needed();
    printf("## Calls that are allowed by their arguments\n\n"
           "The lines of a table are tried from the top. Only the lower 32 bits of an argument are compared, as the "
           "kernel\n"
           "uses no more of these; no rule looks at memory behind a pointer.\n\n");
    print_rules();
    printf(
        "\n## What this list does not close\n\n"
        "- Files of the system are shared read-only with the host and with other sandboxes, as inodes. Locks on them\n"
        "  (`flock`, `fcntl`) and `inotify` watches cross that border: two sandboxes that agree on it can signal to "
        "each\n"
        "  other, and one can see that somebody opened `/usr/bin/git`. Databases, package managers and development\n"
        "  servers need both calls, so they stay. Leases need the ownership of the file, which a sandbox never has "
        "there.\n"
        "- A bug in an allowed call is a bug in the shared kernel; that is what a second kernel is for.\n"
        "- Paths are memory, which another thread can change after a filter looked: files are the business of mounts "
        "and\n"
        "  Landlock, not of this list.\n");
    return 0;
}
