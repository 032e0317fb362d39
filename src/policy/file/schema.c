#include "policy/file/schema.h"

#include "core/base/str.h"
#include "core/base/suggest.h"

#include <stdio.h>

const struct doc_rules schema_rules = { .syntax_error = ERR_POLICY_SYNTAX,
                                        .empty_file_fix = "Begin with 'version: 1'." };

static void schema_unknown_key(struct problems *pr, const struct doc *d, const char *where, const char *best,
                               const char *all)
{
    const char *in = *where ? " in " : "";

    if (best)
        problems_add(pr, ERR_POLICY_KEY, d->key_line, d->key_col, NULL, "unknown key '%.60s'%s%s; did you mean '%s'?",
                     d->key, in, where, best);
    else
        problems_add(pr, ERR_POLICY_KEY, d->key_line, d->key_col, NULL, "unknown key '%.60s'%s%s; the keys are %.120s",
                     d->key, in, where, all);
}

void schema_map(struct problems *pr, const struct doc *map, const char *where, const struct schema_key *keys, size_t n,
                void *arg)
{
    if (map->kind != DOC_MAP) {
        problems_add(pr, ERR_POLICY_VALUE, map->line, map->col, NULL, "%s%sis %s, but must be a mapping",
                     *where ? where : "the file", " ", doc_kind_name(map));
        return;
    }
    for (size_t i = 0; i < map->n; i++) {
        const struct doc *d = &map->items[i];
        struct suggest s;
        auto_buf all = { 0 };
        size_t k = 0;

        suggest_init(&s, d->key);
        for (; k < n && !str_eq(keys[k].name, d->key); k++) {
            if (keys[k].is_hidden)
                continue;
            suggest_offer(&s, keys[k].name);
            buf_addf(&all, "%s%s", k ? ", " : "", keys[k].name);
        }
        if (k < n)
            keys[k].read(arg, d);
        else
            schema_unknown_key(pr, d, where, s.best, all.data);
    }
}

bool schema_text(struct problems *pr, const struct doc *d, const char *where)
{
    if (d->kind == DOC_TEXT && (*d->text || d->quoted))
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, NULL, "%s is %s, but must be a single value", where,
                 d->kind == DOC_TEXT ? "empty" : doc_kind_name(d));
    return false;
}

bool schema_list(struct problems *pr, const struct doc *d, const char *where)
{
    if (d->kind == DOC_LIST)
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, "Write [a, b], or one item per line after '- '.",
                 "%s is %s, but must be a list", where, doc_kind_name(d));
    return false;
}

bool schema_version(struct problems *pr, const struct doc *map)
{
    const struct doc *d = map->kind == DOC_MAP ? doc_find(map, "version") : NULL;

    if (map->kind != DOC_MAP)
        return false;
    if (!d) {
        problems_add(pr, ERR_POLICY_VALUE, map->line, map->col, "Begin the file with 'version: 1'.",
                     "the file has no version");
        return false;
    }
    if (!schema_text(pr, d, "version"))
        return false;
    if (str_eq(d->text, "1"))
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col,
                 "Write 'version: 1', or use the version of cove that the file was written for.",
                 "unknown version '%.40s'; this cove reads version 1", d->text);
    return false;
}

/* Limits. */

static bool schema_find_limit(const char *name, enum limit *ret, const char **near)
{
    struct suggest s;

    suggest_init(&s, name);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);

        if (str_eq(info->name, name)) {
            *ret = (enum limit)i;
            return true;
        }
        suggest_offer(&s, info->name);
    }
    *near = s.best;
    for (unsigned i = 0; i < LIMIT_COUNT; i++) { /* users often try the name of the flag */
        const struct limit_info *info = limit_info((enum limit)i);

        if (info->flag && str_eq(info->flag, name))
            *near = info->name;
    }
    return false;
}

/* A bare number is in the unit that the key names, so that a file means the same as YAML and as
 * JSON: timeoutMs: 1500, cpuMillis: 500. Any other value is in the format of the flag: 30s, 0.5,
 * 256M. */
static int schema_parse_limit(enum limit l, const char *text, uint64_t *ret, struct err *err)
{
    char with_unit[64];
    uint64_t n;

    if (!str_to_u64(text, UINT64_MAX, &n))
        return limit_parse(l, text, ret, err);
    switch (limit_info(l)->unit) {
    case UNIT_MS:
        snprintf(with_unit, sizeof(with_unit), "%" PRIu64 "ms", n);
        return limit_parse(l, n ? with_unit : "0s", ret, err);
    case UNIT_MILLICPU:
        snprintf(with_unit, sizeof(with_unit), "%" PRIu64 ".%03u", n / 1000, (unsigned)(n % 1000));
        return limit_parse(l, with_unit, ret, err);
    default:
        return limit_parse(l, text, ret, err);
    }
}

bool schema_limit(struct problems *pr, const struct doc *d, enum limit *ret, uint64_t *value)
{
    const char *near = NULL;
    struct err err = { 0 };

    if (!schema_find_limit(d->key, ret, &near)) {
        schema_unknown_key(pr, d, "limits", near,
                           "memoryBytes, timeoutMs, pids, cpuMillis and more: see docs/limits.md");
        return false;
    }
    if (!schema_text(pr, d, d->key))
        return false;
    if (schema_parse_limit(*ret, d->text, value, &err) == 0)
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, NULL, "%s", err.msg);
    return false;
}

bool schema_limit_name(struct problems *pr, const struct doc *d, const char *where, enum limit *ret)
{
    const char *near = NULL;

    if (!schema_text(pr, d, where))
        return false;
    if (schema_find_limit(d->text, ret, &near))
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, NULL, "%s: there is no limit '%.60s'%s%s%s", where, d->text,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return false;
}

/* Names. */

bool schema_grant(struct problems *pr, const struct doc *d, const char *where, enum grant *ret)
{
    auto_buf all = { 0 };

    if (!schema_text(pr, d, where))
        return false;
    if (grant_parse(d->text, ret))
        return true;
    for (unsigned i = 0; i < GRANT_COUNT; i++)
        buf_addf(&all, "%s%s", i ? ", " : "", grant_name((enum grant)i));
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col,
                 "A grant is a named group of calls; single calls cannot be allowed.",
                 "%s: unknown grant '%.60s'; the grants are: %s", where, d->text, all.data);
    return false;
}

bool schema_syscall(struct problems *pr, const struct doc *d, const char *where, unsigned *ret)
{
    struct suggest s;

    if (!schema_text(pr, d, where))
        return false;
    int nr = syscall_number(d->text);
    if (nr >= 0 && syscall_is_needed((unsigned)nr)) {
        problems_add(pr, ERR_POLICY_VALUE, d->line, d->col,
                     "Remove it; docs/syscalls.md lists the calls that cannot be denied.",
                     "%s: '%s' cannot be denied, because no program could start without it", where, d->text);
        return false;
    }
    if (nr >= 0 && nr < 64 * FILTER_DENY_WORDS) {
        *ret = (unsigned)nr;
        return true;
    }
    suggest_init(&s, d->text);
    for (unsigned i = 0; i < 64 * FILTER_DENY_WORDS; i++)
        if (syscall_name(i))
            suggest_offer(&s, syscall_name(i));
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, "Use the name of a system call; docs/syscalls.md lists all.",
                 "%s: there is no system call '%.60s'%s%s%s", where, d->text, s.best ? "; did you mean '" : "",
                 s.best ? s.best : "", s.best ? "'?" : "");
    return false;
}

bool schema_workspace(struct problems *pr, const struct doc *d, enum policy_workspace *ret)
{
    if (!schema_text(pr, d, "filesystem.workspace"))
        return false;
    if (policy_workspace_parse(d->text, ret))
        return true;
    problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, NULL,
                 "filesystem.workspace: '%.40s' is not memory, readWrite or copyOnWrite", d->text);
    return false;
}

bool schema_driver(struct problems *pr, const struct doc *d, const char *where, enum driver_id *ret)
{
    struct err err = { 0 };

    if (!schema_text(pr, d, where))
        return false;
    if (driver_parse(d->text, ret))
        return true;
    (void)driver_unknown_error(where, d->text, &err);
    problems_add(pr, err.id, d->line, d->col, NULL, "%s", err.msg);
    return false;
}
