/* The operator limits. Two files may set them: that of the host, and one named by a variable. The
 * stricter of the two applies in every point, so a variable in a user's environment can never allow
 * more. */
#include "policy/file/policy_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/file/network_file.h"
#include "policy/file/schema.h"

#include <errno.h>
#include <unistd.h>

struct operator_limits_reading {
    struct operator_limits *limits;
    struct problems *problems;
};

static void operator_limits_skip_key(void *arg UNUSED, const struct doc *d UNUSED)
{
}

static void operator_limits_read_level(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    enum level l;

    if (!schema_text(r->problems, d, "level"))
        return;
    if (!level_parse(d->text, &l) || l == LEVEL_CUSTOM)
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, NULL,
                     "level: must be standard or high, not '%.40s'", d->text);
    else if (l == LEVEL_HIGH)
        r->limits->level = l;
}

static void operator_limits_read_limits(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    struct operator_limits *f = r->limits;
    enum limit l;
    uint64_t value;

    if (d->kind != DOC_MAP) {
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, NULL, "limits must be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (!schema_limit(r->problems, &d->items[i], &l, &value) || limit_is_unlimited(l, value))
            continue;
        if (!(f->has_max >> l & 1))
            f->max[l] = value;
        else if (limit_info(l)->unit == UNIT_CPUSET)
            f->max[l] = f->max[l] & value ? f->max[l] & value : f->max[l];
        else
            f->max[l] = min_u64(f->max[l], value);
        f->has_max |= 1ull << l;
    }
}

static void operator_limits_read_forbid(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    enum grant g;

    if (!schema_list(r->problems, d, "syscalls.forbid"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_grant(r->problems, &d->items[i], "syscalls.forbid", &g))
            r->limits->forbidden_grants |= 1u << g;
}

static void operator_limits_read_deny(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    unsigned nr;

    if (!schema_list(r->problems, d, "syscalls.deny"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_syscall(r->problems, &d->items[i], "syscalls.deny", &nr))
            policy_deny(r->limits->deny, nr);
}

static void operator_limits_read_syscalls(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "forbid", operator_limits_read_forbid },
                                              { "deny", operator_limits_read_deny } };
    struct operator_limits_reading *r = arg;

    schema_map(r->problems, d, "syscalls", keys, ARRAY_LEN(keys), r);
}

/* A list of modes. Memory mode uses no directory of the host and is always allowed, so two lists
 * never exclude everything. */
static void operator_limits_read_workspace(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    uint32_t allowed = 1u << POLICY_MEMORY;
    enum policy_workspace w;

    if (!schema_list(r->problems, d, "filesystem.workspace"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_workspace(r->problems, &d->items[i], &w))
            allowed |= 1u << w;
    r->limits->allowed_workspaces = r->limits->allowed_workspaces ? r->limits->allowed_workspaces & allowed : allowed;
}

static void operator_limits_read_filesystem(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "workspace", operator_limits_read_workspace } };
    struct operator_limits_reading *r = arg;

    schema_map(r->problems, d, "filesystem", keys, ARRAY_LEN(keys), r);
}

static void operator_limits_read_network(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;

    network_file_read_operator(r->problems, d, r->limits->file != NULL, r->limits);
}

static void operator_limits_read_allowed_drivers(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    uint32_t allowed = 0;
    enum driver_id driver;

    if (!schema_list(r->problems, d, "drivers.allowed"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_driver(r->problems, &d->items[i], "drivers.allowed", &driver))
            allowed |= DRIVER_BIT(driver);
    if (d->n == 0)
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, "Write [native], or omit it.",
                     "drivers.allowed: must name at least one driver");
    r->limits->forbidden_drivers |= DRIVERS_ALL & ~allowed;
}

static void operator_limits_read_drivers(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "allowed", operator_limits_read_allowed_drivers } };
    struct operator_limits_reading *r = arg;

    schema_map(r->problems, d, "drivers", keys, ARRAY_LEN(keys), r);
}

static void operator_limits_read_walls(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;

    if (!schema_text(r->problems, d, "walls"))
        return;
    if (str_eq(d->text, "all"))
        r->limits->requires_every_wall = true;
    else
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, "Write 'walls: all', or omit it.",
                     "walls: '%.40s' is not 'all'; every sandbox has all walls that do not need root", d->text);
}

static void operator_limits_read_enforce(void *arg, const struct doc *d)
{
    struct operator_limits_reading *r = arg;
    enum limit l;

    if (!schema_list(r->problems, d, "enforce"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_limit_name(r->problems, &d->items[i], "enforce", &l))
            r->limits->must_enforce |= 1ull << l;
}

static const struct schema_key operator_limits_keys[] = {
    { "walls", operator_limits_read_walls },           { "enforce", operator_limits_read_enforce },
    { "version", operator_limits_skip_key },           { "level", operator_limits_read_level },
    { "limits", operator_limits_read_limits },         { "syscalls", operator_limits_read_syscalls },
    { "filesystem", operator_limits_read_filesystem }, { "network", operator_limits_read_network },
    { "drivers", operator_limits_read_drivers },
};

int operator_limits_file_read(const char *data, size_t len, const char *file, struct operator_limits *ret,
                              struct problems *pr)
{
    struct operator_limits_reading r = { ret, pr };
    struct doc top = { 0 };
    size_t before = pr->n;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    (void)schema_version(pr, &top);
    schema_map(pr, &top, "", operator_limits_keys, ARRAY_LEN(operator_limits_keys), &r);
    doc_done(&top);
    char *both = ret->file ? str_printf("%s and %s", ret->file, file) : str_dup(file);
    free(ret->file);
    ret->file = both;
    return pr->n > before ? -1 : 0;
}

static int operator_limits_file_load_one(const char *path, struct operator_limits *ret, struct problems *pr)
{
    auto_free char *data = NULL;
    size_t len;

    pr->file = path;
    if (policy_file_load_bytes(path, &data, &len, pr) < 0)
        return -1;
    return operator_limits_file_read(data, len, path, ret, pr);
}

/* An existing file that cannot be read is an error: the safe alternative would be to allow nothing.
 */
int operator_limits_file_load(struct operator_limits *ret, struct problems *pr)
{
    const char *more = getenv(OPERATOR_LIMITS_VARIABLE);
    struct operator_limits f = { 0 };
    bool have = access(OPERATOR_LIMITS_FILE, F_OK) == 0 || errno != ENOENT;

    if ((have && operator_limits_file_load_one(OPERATOR_LIMITS_FILE, &f, pr) < 0) ||
        (more && *more && operator_limits_file_load_one(more, &f, pr) < 0)) {
        operator_limits_done(&f);
        return -1;
    }
    *ret = f;
    return 0;
}
