/* The operator's floor. Two files may demand something, the host's own and one named by a variable; together they are
 * as strict as the stricter of them in every point, so a variable in somebody's environment can never open anything. */
#include "polfile/policy_file.h"

#include "base/mem.h"
#include "base/str.h"
#include "polfile/schema.h"

#include <errno.h>
#include <unistd.h>

struct reading {
    struct floor *f;
    struct problems *pr;
};

static void skip(void *arg UNUSED, const struct doc *d UNUSED)
{
}

static void read_level(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    enum level l;

    if (!schema_text(r->pr, d, "level"))
        return;
    if (!level_parse(d->text, &l) || l == LEVEL_CUSTOM)
        problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, NULL, "level: a floor is standard or high, not '%.40s'",
                     d->text);
    else if (l == LEVEL_HIGH)
        r->f->level = l;
}

static void read_limits(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    struct floor *f = r->f;
    enum limit l;
    uint64_t value;

    if (d->kind != DOC_MAP) {
        problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, NULL, "limits should be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (!schema_limit(r->pr, &d->items[i], &l, &value) || limit_unlimited(l, value))
            continue;
        if (!(f->bounded >> l & 1))
            f->max[l] = value;
        else if (limit_info(l)->unit == UNIT_CPUSET)
            f->max[l] = f->max[l] & value ? f->max[l] & value : f->max[l];
        else
            f->max[l] = min_u64(f->max[l], value);
        f->bounded |= 1ull << l;
    }
}

static void read_forbid(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    enum grant g;

    if (!schema_list(r->pr, d, "syscalls.forbid"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_grant(r->pr, &d->items[i], "syscalls.forbid", &g))
            r->f->forbidden |= 1u << g;
}

static void read_deny(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    unsigned nr;

    if (!schema_list(r->pr, d, "syscalls.deny"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_syscall(r->pr, &d->items[i], "syscalls.deny", &nr))
            policy_deny(r->f->deny, nr);
}

static void read_syscalls(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "forbid", read_forbid }, { "deny", read_deny } };
    struct reading *r = arg;

    schema_map(r->pr, d, "syscalls", keys, ARRAY_LEN(keys), r);
}

/* A list of modes. Memory belongs to nobody and can always be had, so that two lists never leave nothing. */
static void read_workspace(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    uint32_t allowed = 1u << POLICY_MEMORY;
    enum policy_workspace w;

    if (!schema_list(r->pr, d, "filesystem.workspace"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_workspace(r->pr, &d->items[i], &w))
            allowed |= 1u << w;
    r->f->workspaces = r->f->workspaces ? r->f->workspaces & allowed : allowed;
}

static void read_filesystem(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "workspace", read_workspace } };
    struct reading *r = arg;

    schema_map(r->pr, d, "filesystem", keys, ARRAY_LEN(keys), r);
}

static void read_network(void *arg, const struct doc *d)
{
    schema_network(((struct reading *)arg)->pr, d);
}

static void read_walls(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_text(r->pr, d, "walls"))
        return;
    if (str_eq(d->text, "all"))
        r->f->every_wall = true;
    else
        problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, "Write 'walls: all', or leave it out.",
                     "walls: '%.40s' is not 'all'; those that need no root are demanded of every sandbox anyway",
                     d->text);
}

static void read_enforce(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    enum limit l;

    if (!schema_list(r->pr, d, "enforce"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_limit_name(r->pr, &d->items[i], "enforce", &l))
            r->f->enforce |= 1ull << l;
}

static const struct schema_key keys_of_floor[] = {
    { "walls", read_walls },           { "enforce", read_enforce }, { "version", skip },
    { "level", read_level },           { "limits", read_limits },   { "syscalls", read_syscalls },
    { "filesystem", read_filesystem }, { "network", read_network },
};

int floor_file_read(const char *data, size_t len, const char *file, struct floor *ret, struct problems *pr)
{
    struct reading r = { ret, pr };
    struct doc top = { 0 };
    size_t before = pr->n;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    (void)schema_version(pr, &top);
    schema_map(pr, &top, "", keys_of_floor, ARRAY_LEN(keys_of_floor), &r);
    doc_done(&top);
    char *both = ret->file ? str_printf("%s and %s", ret->file, file) : str_dup(file);
    free(ret->file);
    ret->file = both;
    return pr->n > before ? -1 : 0;
}

static int load(const char *path, struct floor *ret, struct problems *pr)
{
    auto_free char *data = NULL;
    size_t len;

    pr->file = path;
    if (policy_file_slurp(path, &data, &len, pr) < 0)
        return -1;
    return floor_file_read(data, len, path, ret, pr);
}

/* A floor that is there and cannot be read is an error: the safe guess would be to allow nothing. */
int floor_file_load(struct floor *ret, struct problems *pr)
{
    const char *more = getenv(FLOOR_VARIABLE);
    struct floor f = { 0 };
    bool have = access(FLOOR_FILE, F_OK) == 0 || errno != ENOENT;

    if ((have && load(FLOOR_FILE, &f, pr) < 0) || (more && *more && load(more, &f, pr) < 0)) {
        floor_done(&f);
        return -1;
    }
    *ret = f;
    return 0;
}
