/* `debug` is standard with one grant, so its level is custom: the promise of standard includes that
 * programs cannot read each other. `high` is the policy of standard with a second kernel; it exists
 * here so that it can be shown, and is refused where it is requested. */
#include "policy/policy.h"

#include "core/base/str.h"
#include "policy/operator_network.h"

#include <ctype.h>

static const struct {
    const char *name;
    enum level level;
    uint32_t grants;
    const char *says;
} policy_builtin_rows[] = {
    { "standard", LEVEL_STANDARD, 0, "every wall, no network, the defaults of all limits" },
    { "high", LEVEL_HIGH, 0, "standard with a second kernel; this version has no driver for it" },
    { "debug", LEVEL_CUSTOM, GRANT_BIT(DEBUG), "standard, and programs may trace each other: gdb, strace, py-spy" },
};

static const char *const policy_workspace_names[POLICY_WORKSPACES] = {
    [POLICY_MEMORY] = "memory",
    [POLICY_READ_WRITE] = "readWrite",
    [POLICY_COPY_ON_WRITE] = "copyOnWrite",
};

bool policy_builtin(const char *name, struct policy *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(policy_builtin_rows); i++) {
        if (!str_eq(policy_builtin_rows[i].name, name))
            continue;
        *ret = (struct policy){ .level = policy_builtin_rows[i].level, .grants = policy_builtin_rows[i].grants };
        limits_default(&ret->limits);
        (void)str_copy(ret->name, sizeof(ret->name), name);
        (void)str_copy(ret->base, sizeof(ret->base), name);
        return true;
    }
    return false;
}

const char *const *policy_builtins(void)
{
    static const char *const names[] = { "standard", "high", "debug", NULL };

    return names;
}

const char *policy_builtin_summary(const char *builtin)
{
    for (size_t i = 0; i < ARRAY_LEN(policy_builtin_rows); i++)
        if (str_eq(policy_builtin_rows[i].name, builtin))
            return policy_builtin_rows[i].says;
    return "";
}

void policy_done(struct policy *p)
{
    free(p->file);
    free(p->workspace_dir);
    network_policy_done(&p->network);
    for (size_t i = 0; i < p->npaths; i++) {
        free(p->paths[i].src);
        free(p->paths[i].dst);
    }
    for (size_t i = 0; i < p->nenv; i++)
        free(p->env[i].text);
    *p = (struct policy){ 0 };
}

void operator_limits_done(struct operator_limits *f)
{
    free(f->file);
    free(f->open_ranges);
    free(f->network_denials);
    *f = (struct operator_limits){ 0 };
}

const char *policy_workspace_name(enum policy_workspace w)
{
    return policy_workspace_names[w];
}

bool policy_workspace_parse(const char *name, enum policy_workspace *ret)
{
    for (unsigned i = 0; i < POLICY_WORKSPACES; i++)
        if (str_eq(name, policy_workspace_names[i])) {
            *ret = (enum policy_workspace)i;
            return true;
        }
    return false;
}

bool policy_denies(const uint64_t deny[FILTER_DENY_WORDS], unsigned nr)
{
    return nr < 64 * FILTER_DENY_WORDS && deny[nr / 64] >> nr % 64 & 1;
}

void policy_deny(uint64_t deny[FILTER_DENY_WORDS], unsigned nr)
{
    if (nr < 64 * FILTER_DENY_WORDS)
        deny[nr / 64] |= 1ull << nr % 64;
}

bool policy_name_valid(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

    return n > 0 && n < POLICY_NAME_MAX && !s[n];
}

bool policy_env_name_valid(const char *s, size_t len)
{
    if (len == 0 || isdigit((unsigned char)s[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] >= 0x80 || (!isalnum((unsigned char)s[i]) && s[i] != '_'))
            return false;
    return true;
}

bool policy_path_is_plain(const char *p)
{
    if (p[0] != '/')
        return false;
    for (const char *s = p; *s; s++) {
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
        if (s[0] == '/' && (s[1] == '/' || (s[1] == '.' && (s[2] == '/' || !s[2]))))
            return false;
        if (s[0] == '/' && s[1] == '.' && s[2] == '.' && (s[3] == '/' || !s[3]))
            return false;
    }
    return true;
}

bool operator_limits_exceeded(enum limit l, uint64_t value, uint64_t max)
{
    if (limit_is_unlimited(l, max))
        return false;
    if (limit_is_unlimited(l, value))
        return true;
    return limit_info(l)->unit == UNIT_CPUSET ? (value & ~max) != 0 : value > max;
}

static int operator_limits_set_excess(const struct operator_limits *f, const struct policy *p, enum limit l,
                                      struct err *err)
{
    char have[LIMIT_TEXT], most[LIMIT_TEXT];

    return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "limits.%s: %s is more than the %s that %.80s allows",
                   limit_info(l)->name, limit_print(l, p->limits.v[l], have), limit_print(l, f->max[l], most), f->file);
}

int operator_limits_check(const struct operator_limits *f, const struct policy *p, struct err *err)
{
    if (!f->file)
        return 0;
    if (f->level == LEVEL_HIGH && p->level != LEVEL_HIGH)
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "level: %.80s demands high", f->file);
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (f->forbidden_grants & p->grants & 1u << g)
            return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "syscalls.grant: %.80s forbids '%s'", f->file,
                           grant_name((enum grant)g));
    if (p->driver_line && driver_check_allowed(f->forbidden_drivers, p->driver, "driver", f->file, err) < 0)
        return -1;
    if (operator_network_check(f, &p->network, "network", f->file, err) < 0)
        return -1;
    if (f->allowed_workspaces && !(f->allowed_workspaces >> p->workspace & 1))
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "filesystem.workspace: %.80s does not allow mode %s", f->file,
                       policy_workspace_name(p->workspace));
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i] && f->has_max >> i & 1 &&
            operator_limits_exceeded((enum limit)i, p->limits.v[i], f->max[i]))
            return operator_limits_set_excess(f, p, (enum limit)i, err);
    return 0;
}

uint64_t operator_limits_lower(const struct operator_limits *f, struct limits *l, uint64_t chosen)
{
    uint64_t lowered = 0;

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        if (chosen >> i & 1 || !(f->has_max >> i & 1) || !operator_limits_exceeded((enum limit)i, l->v[i], f->max[i]))
            continue;
        l->v[i] = f->max[i];
        lowered |= 1ull << i;
    }
    return lowered;
}
