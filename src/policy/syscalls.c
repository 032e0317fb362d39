/* The tables as data, and the reference evaluator, which reads them line by line, as slowly and
 * plainly as a person reading the .def files would. The compiler in filter.c must agree with it on
 * every call; so that this agreement proves something, the two share only the tables and no
 * function. */
#include "policy/syscall_table.h"

#include "core/base/str.h"

#include <linux/audit.h>

static const char *const profile_names[PROFILE_COUNT] = {
    [PROFILE_BASE] = "base",
    [PROFILE_PYTHON] = "python",
    [PROFILE_NODE] = "node",
    [PROFILE_SHELL] = "shell",
};

const struct syscall_row syscall_rows[] = {
#define GROUP(id, why)
#define SC(nr, name, base, python, node, shell, group) \
    { nr, { ACTION_##base, ACTION_##python, ACTION_##node, ACTION_##shell }, GROUP_##group, #name },
#include "policy/syscalls.def"
#undef GROUP
#undef SC
};
const size_t syscall_row_count = ARRAY_LEN(syscall_rows);

const struct arg_test arg_tests[] = {
#define RULE(id, meaning)
#define IF(rule, arg, mask, from, to, then) { RULE_##rule, arg, ACTION_##then, mask, from, to },
#define ELSE(rule, then) { RULE_##rule, 0, ACTION_##then, 0, 0, 0 },
#include "policy/syscall_args.def"
#undef RULE
#undef IF
#undef ELSE
};
const size_t arg_test_count = ARRAY_LEN(arg_tests);

const struct grant_row grant_rows[] = {
#define GRANT(id, name, why)
#define GRANTED(grant, nr, name, action) { GRANT_##grant, nr, ACTION_##action, #name },
#include "policy/grants.def"
#undef GRANT
#undef GRANTED
};
const size_t grant_row_count = ARRAY_LEN(grant_rows);

static const struct {
    const char *name, *why;
} grant_infos[GRANT_COUNT] = {
#define GRANT(id, name, why) [GRANT_##id] = { name, why },
#define GRANTED(grant, nr, name, action)
#include "policy/grants.def"
#undef GRANT
#undef GRANTED
};

static const char *const syscalls_needed[] = {
#define NEEDED(name) #name,
#include "policy/needed.def"
#undef NEEDED
};

static const struct {
    const char *name, *why;
} syscall_group_infos[GROUP_COUNT] = {
#define GROUP(id, why) [GROUP_##id] = { #id, why },
#define SC(nr, name, base, python, node, shell, group)
#include "policy/syscalls.def"
#undef GROUP
#undef SC
};

static const char *const arg_rule_meanings[RULE_COUNT] = {
#define RULE(id, meaning) [RULE_##id] = meaning,
#define IF(rule, arg, mask, from, to, then)
#define ELSE(rule, then)
#include "policy/syscall_args.def"
#undef RULE
#undef IF
#undef ELSE
};

const char *profile_name(enum profile p)
{
    return profile_names[p];
}

bool profile_parse(const char *name, enum profile *ret)
{
    for (unsigned i = 0; i < PROFILE_COUNT; i++)
        if (str_eq(name, profile_names[i])) {
            *ret = (enum profile)i;
            return true;
        }
    return false;
}

const char *grant_name(enum grant g)
{
    return grant_infos[g].name;
}

const char *grant_why(enum grant g)
{
    return grant_infos[g].why;
}

bool grant_parse(const char *name, enum grant *ret)
{
    for (unsigned i = 0; i < GRANT_COUNT; i++)
        if (str_eq(name, grant_infos[i].name)) {
            *ret = (enum grant)i;
            return true;
        }
    return false;
}

const char *syscall_group_name(enum syscall_group g)
{
    return syscall_group_infos[g].name;
}

const char *syscall_group_why(enum syscall_group g)
{
    return syscall_group_infos[g].why;
}

const char *arg_rule_meaning(enum arg_rule r)
{
    return arg_rule_meanings[r];
}

static const struct syscall_row *syscall_find_row(unsigned nr)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        if (syscall_rows[i].nr == nr)
            return &syscall_rows[i];
    return NULL;
}

const char *syscall_name(unsigned nr)
{
    const struct syscall_row *row = syscall_find_row(nr);

    return row ? row->name : NULL;
}

int syscall_number(const char *name)
{
    for (size_t i = 0; i < syscall_row_count; i++)
        if (str_eq(syscall_rows[i].name, name))
            return syscall_rows[i].nr;
    return -1;
}

bool syscall_is_needed(unsigned nr)
{
    const char *name = syscall_name(nr);

    for (size_t i = 0; name && i < ARRAY_LEN(syscalls_needed); i++)
        if (str_eq(syscalls_needed[i], name))
            return true;
    return false;
}

bool syscall_is_attack(unsigned nr)
{
    const struct syscall_row *row = syscall_find_row(nr);

    if (!row)
        return false;
    switch (row->group) {
    case GROUP_MOUNT:
    case GROUP_NAMESPACE:
    case GROUP_HOST:
    case GROUP_OTHERS:
    case GROUP_ESCAPE:
        return true;
    default:
        return str_eq(row->name, "clone"); /* refused only for new namespaces */
    }
}

enum syscall_rule syscall_rule(enum profile p, unsigned nr)
{
    const struct syscall_row *row = syscall_find_row(nr);

    if (!row || row->action[p] == ACTION_ENOSYS)
        return SC_ENOSYS;
    if (row->action[p] == ACTION_ALLOW)
        return SC_ALLOW;
    return row->action[p] < 0 ? SC_ARGS : SC_EPERM;
}

unsigned syscall_allowed_count(enum profile p)
{
    unsigned n = 0;

    for (size_t i = 0; i < syscall_row_count; i++)
        n += syscall_rows[i].action[p] <= 0;
    return n;
}

static int syscall_rule_verdict(enum arg_rule rule, const uint64_t args[6])
{
    for (size_t i = 0; i < arg_test_count; i++) {
        const struct arg_test *t = &arg_tests[i];
        uint32_t v = (uint32_t)args[t->arg] & t->mask;

        if (t->rule != rule || v < t->from || v > t->to)
            continue;
        return t->then < 0 ? syscall_rule_verdict(ACTION_RULE(t->then), args) : t->then;
    }
    return EPERM; /* a rule without ELSE; a test prevents that */
}

/* Denied has priority over granted, and granted over the table; a call that the table refuses keeps
 * its errno. */
static int syscall_row_action(const struct filter_spec *s, const struct syscall_row *row)
{
    int action = row->action[s->profile];

    for (size_t i = 0; i < grant_row_count; i++)
        if (grant_rows[i].nr == row->nr && s->grants & 1u << grant_rows[i].grant)
            action = grant_rows[i].action;
    bool denied = row->nr < 64 * FILTER_DENY_WORDS && s->deny[row->nr / 64] >> row->nr % 64 & 1;
    return denied && action <= 0 ? ACTION_EPERM : action;
}

int filter_verdict(const struct filter_spec *s, uint32_t arch, unsigned nr, const uint64_t args[6])
{
    if (arch != AUDIT_ARCH_X86_64)
        return -1;
    const struct syscall_row *row = syscall_find_row(nr);
    if (!row)
        return ENOSYS;
    int action = syscall_row_action(s, row);
    return action < 0 ? syscall_rule_verdict(ACTION_RULE(action), args) : action;
}

int syscall_verdict(enum profile p, uint32_t arch, unsigned nr, const uint64_t args[6])
{
    const struct filter_spec plain = { .profile = p };

    return filter_verdict(&plain, arch, nr, args);
}

unsigned filter_allowed_count(const struct filter_spec *s)
{
    unsigned n = 0;

    for (size_t i = 0; i < syscall_row_count; i++)
        n += syscall_row_action(s, &syscall_rows[i]) <= 0;
    return n;
}
