/* gen-syscalls-doc - writes docs/syscalls.md from the tables of src/policy to standard output.
 *
 * The page is committed, and a test compares it with the output of this program, so the documented
 * policy is always the policy that runs. Prose and lists of calls wrap at WRAP_COLUMNS. */
#include "policy/syscall_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WRAP_COLUMNS 100u

static unsigned column; /* characters in the current output line */

/* Writes the text, and a line break instead of each space after which the next word would not fit.
 * Later lines begin with `indent` spaces. A text that continues a line begins with a space or with
 * one punctuation mark, for which one column stays free. */
static void print_wrapped(unsigned indent, const char *text)
{
    while (*text) {
        size_t blank = *text == ' ';
        size_t word = strcspn(text + blank, " ");

        if (blank && column + 1 + word >= WRAP_COLUMNS) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (blank) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text + blank);
        column += (unsigned)word;
        text += blank + word;
    }
}

static void end_line(void)
{
    putchar('\n');
    column = 0;
}

static void end_paragraph(void)
{
    end_line();
    end_line();
}

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

static const char *lower_name(char *buffer, size_t size, const char *name)
{
    size_t n = 0;

    for (; name[n] && n + 1 < size; n++)
        buffer[n] = (char)tolower((unsigned char)name[n]);
    buffer[n] = '\0';
    return buffer;
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

/* Prints the calls of a group with one kind of answer as a list item, if there are any. */
static void print_calls(unsigned group, const char *lead, bool (*wanted)(int action))
{
    char text[160], lower[64];
    bool any = false;

    for (size_t i = 0; i < syscall_row_count; i++) {
        const struct syscall_row *row = &syscall_rows[i];
        int action = row->action[PROFILE_BASE];

        if (row->group != group || !wanted(action))
            continue;
        if (!any) {
            snprintf(text, sizeof text, "- %s:", lead);
            print_wrapped(2, text);
        } else {
            print_wrapped(2, ",");
        }
        any = true;
        if (action >= 0)
            snprintf(text, sizeof text, " `%s`", row->name);
        else
            snprintf(text, sizeof text, " [`%s`](#%s)", row->name,
                     lower_name(lower, sizeof lower, rule_name(ACTION_RULE(action))));
        print_wrapped(2, text);
    }
    if (any)
        end_line();
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
        char name[64];

        print_wrapped(0, "**");
        print_wrapped(0, lower_name(name, sizeof name, syscall_group_name((enum syscall_group)g)));
        print_wrapped(0, "**: ");
        print_wrapped(0, syscall_group_why((enum syscall_group)g));
        print_wrapped(0, ".");
        end_paragraph();
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
            printf("\n\n");
            print_wrapped(0, arg_rule_meaning((enum arg_rule)arg_tests[i].rule));
            print_wrapped(0, ".");
            end_paragraph();
            printf("| condition | result |\n|---|---|\n");
        }
        print_test(&arg_tests[i]);
    }
}

static void print_grants(void)
{
    for (unsigned g = 0; g < GRANT_COUNT; g++) {
        print_wrapped(0, "**");
        print_wrapped(0, grant_name((enum grant)g));
        print_wrapped(0, "**: ");
        print_wrapped(0, grant_why((enum grant)g));
        print_wrapped(0, ".");
        end_paragraph();
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
    char text[64];
    unsigned n = 0;

    for (size_t i = 0; i < syscall_row_count; i++) {
        if (!syscall_is_needed(syscall_rows[i].nr))
            continue;
        snprintf(text, sizeof text, "%s `%s`", n++ ? "," : "", syscall_rows[i].name);
        print_wrapped(0, text);
    }
    print_wrapped(0, ".");
    end_paragraph();
}

static void print_profiles(void)
{
    char text[64];

    print_wrapped(0, "The runtime of an execution selects the profile of the filter:");
    for (unsigned p = 0; p < PROFILE_COUNT; p++) {
        snprintf(text, sizeof text, "%s `%s` allows %u calls", p ? "," : "", profile_name((enum profile)p),
                 syscall_allowed_count((enum profile)p));
        print_wrapped(0, text);
    }
    print_wrapped(0, ".");
    end_paragraph();
}

int main(void)
{
    printf("# System calls in a sandbox\n\n"
           "<!-- Generated from src/policy/syscalls.def and syscall_args.def by tools/gen-syscalls-doc; do not edit. "
           "-->\n\n");
    print_wrapped(0, "After this page you know which system calls a program in a sandbox can make, what the others "
                     "return, and which of them a policy can allow or deny.");
    end_paragraph();
    printf("```console\n"
           "$ cove run -- unshare --user true\n"
           "unshare: unshare failed: Operation not permitted\n"
           "cove: refused: unshare(0x10000000): not allowed (profile base)...\n"
           "$ echo $?\n"
           "1\n"
           "```\n\n");
    print_wrapped(0, "A sandbox can make only the calls that this page lists as allowed. A call that is refused by "
                     "name returns EPERM, which users recognise as a policy. A call that is not in the table, or that "
                     "programs do not depend on, returns ENOSYS, so programs fall back as on an older kernel. The "
                     "32-bit entry point ends the process; x32 numbers return ENOSYS. The table is for x86-64.");
    end_paragraph();
    print_profiles();
    printf("## Allowed\n\n");
    print_groups(true);
    printf("## Refused\n\n");
    print_groups(false);
    printf("## Differences between the profiles\n\n");
    print_differences();
    printf("## Calls that a policy can allow\n\n");
    print_wrapped(0, "`syscalls.grant` of a policy names a grant; single calls cannot be allowed.");
    end_paragraph();
    print_grants();
    printf("## Calls that a policy can deny\n\n");
    print_wrapped(0, "`syscalls.deny` of a policy denies calls by name; they then return EPERM. The runtime and the "
                     "start of a program need these calls, which cannot be denied:");
    print_needed();
    printf("## Calls that are allowed by their arguments\n\n");
    print_wrapped(0, "The rows of a table are evaluated from the top. Only the lower 32 bits of an argument are "
                     "compared, because the kernel uses only these. No rule reads memory through a pointer.");
    end_paragraph();
    print_rules();
    printf("\n## What this list does not prevent\n\n");
    print_wrapped(2, "- Sandboxes and the host share the system's read-only files as inodes. Locks on them (`flock`, "
                     "`fcntl`) and `inotify` watches cross this boundary: two sandboxes that cooperate can signal to "
                     "each other, and a sandbox can observe that a process opened `/usr/bin/git`. Databases, package "
                     "managers and development servers need both calls, so they are allowed. Leases need ownership "
                     "of the file, which a sandbox never has there.");
    end_line();
    print_wrapped(2,
                  "- A bug in an allowed call is a bug in the shared kernel; only a second kernel protects from it.");
    end_line();
    print_wrapped(2, "- A path is memory that another thread can change after the filter has run, so mounts and "
                     "Landlock protect files, and not this list.");
    end_line();
    return 0;
}
