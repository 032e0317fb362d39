#include "policy/file/policy_rows.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/network_json.h"

static void policy_rows_add(struct policy_rows *r, struct policy_row row)
{
    r->list = mem_resize(r->list, r->n + 1, sizeof(*r->list));
    r->list[r->n++] = row;
}
#define add(r, ...) policy_rows_add(r, (struct policy_row){ __VA_ARGS__ })

static char *policy_rows_source_of(const struct policy *p, uint32_t line)
{
    return line && p->file ? str_printf("%s:%" PRIu32, p->file, line) : str_printf("%s", p->base);
}

static const char *policy_rows_workspace_text(const struct policy *p)
{
    return policy_workspace_name(p->workspace);
}

static void policy_rows_add_lines(struct policy_rows *r, const char *text, const char *source, unsigned *number)
{
    for (const char *line = text; line && *line;) {
        size_t n = strcspn(line, "\n");

        add(r, str_printf("network.rule.%u", ++*number), str_dup_n(line, n), str_dup(source));
        line += n + (line[n] == '\n');
    }
}

/* In the order in which they are evaluated. */
static void policy_rows_add_rules(const struct policy *p, const struct operator_limits *f, struct policy_rows *r)
{
    auto_free char *source = policy_rows_source_of(p, p->network_line);
    unsigned number = 0;

    if (p->network.mode == NETWORK_NONE)
        return;
    policy_rows_add_lines(r, f->network_denials, f->file, &number);
    policy_rows_add_lines(r, p->network.rules, source, &number);
}

static void policy_rows_add_files(const struct policy *p, struct policy_rows *r)
{
    add(r, str_dup("filesystem.workspace"),
        p->workspace_dir ? str_printf("%s %s", policy_rows_workspace_text(p), p->workspace_dir)
                         : str_dup(policy_rows_workspace_text(p)),
        policy_rows_source_of(p, p->workspace_line));
    for (size_t i = 0; i < p->npaths; i++) {
        const struct policy_path *path = &p->paths[i];

        add(r, str_printf("filesystem.%s.%s", path->src ? "readOnly" : "hide", path->dst),
            path->src ? str_dup(path->src) : str_dup("hidden"), policy_rows_source_of(p, path->line));
    }
}

static void policy_rows_add_calls(const struct policy *p, const struct operator_limits *f, struct policy_rows *r)
{
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (p->grants >> g & 1)
            add(r, str_printf("syscalls.grant.%s", grant_name((enum grant)g)), str_dup("granted"),
                policy_rows_source_of(p, p->grant_line[g]));
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++) {
        bool by_floor = !policy_denies(p->deny, nr);

        if (by_floor && !(f->file && policy_denies(f->deny, nr)))
            continue;
        add(r, str_printf("syscalls.deny.%s", syscall_name(nr)), str_dup("denied"),
            by_floor ? str_dup(f->file) : policy_rows_source_of(p, p->deny_line[nr]));
    }
}

static void policy_rows_add_limits(const struct policy *p, const struct operator_limits *f, struct policy_rows *r)
{
    struct limits l = p->limits;
    uint64_t chosen = 0;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i])
            chosen |= 1ull << i;
    uint64_t lowered = f->file ? operator_limits_lower(f, &l, chosen) : 0;
    struct limits before = l;
    limits_fit(&l, chosen | lowered);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        char text[LIMIT_TEXT];

        limit_print((enum limit)i, l.v[i], text);
        add(r, str_printf("limits.%s", limit_info((enum limit)i)->name), str_dup(text),
            lowered >> i & 1        ? str_dup(f->file)
            : l.v[i] != before.v[i] ? str_dup("follows from others")
                                    : policy_rows_source_of(p, p->limit_line[i]));
    }
}

static void policy_rows_add_environment(const struct policy *p, struct policy_rows *r)
{
    const char *const *env = level_environment(p->level, p->network.mode);

    for (size_t i = 0; env[i]; i++) {
        size_t name = strcspn(env[i], "=");
        bool replaced = false;

        for (size_t k = 0; k < p->nenv; k++)
            replaced = replaced || (strncmp(p->env[k].text, env[i], name + 1) == 0);
        if (!replaced)
            add(r, str_printf("environment.set.%.*s", (int)name, env[i]), str_dup(env[i] + name + 1),
                policy_rows_source_of(p, 0));
    }
    for (size_t i = 0; i < p->nenv; i++) {
        size_t name = strcspn(p->env[i].text, "=");

        add(r, str_printf("environment.%s.%.*s", p->env[i].is_pass_through ? "pass" : "set", (int)name, p->env[i].text),
            str_dup(p->env[i].is_pass_through ? "passed on" : p->env[i].text + name + 1),
            policy_rows_source_of(p, p->env[i].line));
    }
}

static enum driver_id policy_rows_driver(const struct policy *p, const struct operator_limits *f)
{
    return p->driver_line ? p->driver : driver_default(f->forbidden_drivers);
}

static char *policy_rows_driver_source(const struct policy *p, const struct operator_limits *f)
{
    if (!p->driver_line && f->forbidden_drivers & DRIVER_BIT(p->driver))
        return str_dup(f->file ? f->file : "drivers.allowed");
    return policy_rows_source_of(p, p->driver_line);
}

void policy_rows_build(const struct policy *p, const struct operator_limits *f, struct policy_rows *ret)
{
    *ret = (struct policy_rows){ 0 };
    add(ret, str_dup("level"), str_dup(level_name(p->level)), policy_rows_source_of(p, 0));
    add(ret, str_dup("profile"), str_dup(p->has_profile ? profile_name(p->profile) : "by the program"),
        policy_rows_source_of(p, p->profile_line));
    add(ret, str_dup("driver"), str_dup(driver_name(policy_rows_driver(p, f))), policy_rows_driver_source(p, f));
    add(ret, str_dup("network"), str_dup(network_mode_name(p->network.mode)),
        policy_rows_source_of(p, p->network_line));
    policy_rows_add_rules(p, f, ret);
    policy_rows_add_files(p, ret);
    policy_rows_add_calls(p, f, ret);
    policy_rows_add_limits(p, f, ret);
    policy_rows_add_environment(p, ret);
}

void policy_rows_done(struct policy_rows *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->list[i].key);
        free(r->list[i].value);
        free(r->list[i].source);
    }
    free(r->list);
    *r = (struct policy_rows){ 0 };
}

/* Keys and values may come from an untrusted file. */
static void policy_rows_print_line(struct buf *out, char sign, const struct policy_row *row)
{
    auto_free char *text = str_printf("%c %-34s %-26s %s", sign, row->key, row->value, row->source);

    str_strip_control_chars(text);
    buf_addf(out, "%s\n", text);
}

void policy_rows_print(const struct policy *p, const struct policy_rows *r, struct buf *out)
{
    buf_addf(out, "policy %s", p->name);
    if (p->file)
        buf_addf(out, " (%s, extends %s)\n", p->file, p->base);
    else
        buf_addf(out, " (built in: %s)\n", policy_builtin_summary(p->name));
    for (size_t i = 0; i < r->n; i++)
        policy_rows_print_line(out, ' ', &r->list[i]);
}

/* JSON. */

static void policy_rows_json_list(struct jsonw *w, const struct policy_rows *r, const char *key, const char *prefix)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (size_t i = 0; i < r->n; i++)
        if (str_starts(r->list[i].key, prefix))
            jsonw_str(w, r->list[i].key + strlen(prefix));
    jsonw_end_array(w);
}

static void policy_rows_json_files(const struct policy *p, const struct policy_rows *r, struct jsonw *w)
{
    jsonw_key(w, "filesystem");
    jsonw_object(w);
    jsonw_key(w, "workspace");
    jsonw_object(w);
    jsonw_kstr(w, "mode", policy_rows_workspace_text(p));
    if (p->workspace_dir)
        jsonw_kstr(w, "path", p->workspace_dir);
    jsonw_end_object(w);
    jsonw_key(w, "readOnly");
    jsonw_array(w);
    for (size_t i = 0; i < p->npaths; i++) {
        if (!p->paths[i].src)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "source", p->paths[i].src);
        jsonw_kstr(w, "target", p->paths[i].dst);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    policy_rows_json_list(w, r, "hide", "filesystem.hide.");
    jsonw_end_object(w);
}

static void policy_rows_json_limits(const struct policy *p, const struct operator_limits *f, struct jsonw *w)
{
    struct limits l = p->limits;
    uint64_t chosen = 0;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i])
            chosen |= 1ull << i;
    if (f->file)
        chosen |= operator_limits_lower(f, &l, chosen);
    limits_fit(&l, chosen);
    jsonw_key(w, "limits");
    jsonw_object(w);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        char text[LIMIT_TEXT];

        jsonw_key(w, limit_info((enum limit)i)->name);
        if (limit_is_unlimited((enum limit)i, l.v[i]))
            jsonw_str(w, "unlimited");
        else if (limit_info((enum limit)i)->unit == UNIT_CPUSET)
            jsonw_str(w, limit_print((enum limit)i, l.v[i], text));
        else
            jsonw_u64(w, l.v[i]);
    }
    jsonw_end_object(w);
}

static void policy_rows_json_environment(const struct policy_rows *r, struct jsonw *w)
{
    static const char set[] = "environment.set.";

    jsonw_key(w, "environment");
    jsonw_object(w);
    jsonw_key(w, "set");
    jsonw_object(w);
    for (size_t i = 0; i < r->n; i++)
        if (str_starts(r->list[i].key, set))
            jsonw_kstr(w, r->list[i].key + strlen(set), r->list[i].value);
    jsonw_end_object(w);
    policy_rows_json_list(w, r, "pass", "environment.pass.");
    jsonw_end_object(w);
}

void policy_rows_json(const struct policy *p, const struct operator_limits *f, const struct policy_rows *r,
                      struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 2);
    jsonw_object(&w);
    jsonw_key(&w, "policy");
    jsonw_object(&w);
    jsonw_ku64(&w, "version", 1);
    jsonw_kstr(&w, "name", p->name);
    jsonw_kstr(&w, "extends", p->base);
    if (p->has_profile)
        jsonw_kstr(&w, "profile", profile_name(p->profile));
    policy_rows_json_files(p, r, &w);
    jsonw_kstr(&w, "driver", driver_name(policy_rows_driver(p, f)));
    jsonw_key(&w, "network");
    network_json_write(&w, &p->network);
    jsonw_key(&w, "syscalls");
    jsonw_object(&w);
    policy_rows_json_list(&w, r, "deny", "syscalls.deny.");
    policy_rows_json_list(&w, r, "grant", "syscalls.grant.");
    jsonw_end_object(&w);
    policy_rows_json_limits(p, f, &w);
    policy_rows_json_environment(r, &w);
    jsonw_end_object(&w);
    jsonw_kstr(&w, "level", level_name(p->level));
    jsonw_key(&w, "sources");
    jsonw_object(&w);
    for (size_t i = 0; i < r->n; i++)
        jsonw_kstr(&w, r->list[i].key, r->list[i].source);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}

/* Differences. */

static const struct policy_row *policy_rows_find(const struct policy_rows *r, const char *key)
{
    for (size_t i = 0; i < r->n; i++)
        if (str_eq(r->list[i].key, key))
            return &r->list[i];
    return NULL;
}

size_t policy_rows_diff(const struct policy_rows *a, const struct policy_rows *b, struct buf *out)
{
    size_t n = 0;

    for (size_t i = 0; i < a->n; i++) {
        const struct policy_row *other = policy_rows_find(b, a->list[i].key);

        if (other && str_eq(other->value, a->list[i].value))
            continue;
        n++;
        policy_rows_print_line(out, '-', &a->list[i]);
        if (other)
            policy_rows_print_line(out, '+', other);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!policy_rows_find(a, b->list[i].key)) {
            n++;
            policy_rows_print_line(out, '+', &b->list[i]);
        }
    return n;
}
