/* The tables of keys are the grammar: read them from below. `extends` is read before all others, because it says what
 * the values start from; everything else is read in the order of the file, so that problems come in that order. */
#include "polfile/policy_file.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "polfile/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

struct reading {
    struct policy *p;
    struct problems *pr;
    const char *dir;
};

static void bad(struct reading *r, const struct doc *d, const char *fix, const char *msg)
{
    problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, fix, "%s", msg);
}

/* --- names --- */

static void skip(void *arg UNUSED, const struct doc *d UNUSED)
{
}

static void read_description(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    (void)schema_text(r->pr, d, "description");
}

static void read_name(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_text(r->pr, d, "name"))
        return;
    if (!policy_name_ok(d->text) || !str_copy(r->p->name, sizeof(r->p->name), d->text))
        bad(r, d, NULL, "name: at most 63 letters, digits, '-', '_' and '.'");
}

static void read_profile(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_text(r->pr, d, "profile"))
        return;
    r->p->has_profile = profile_parse(d->text, &r->p->profile);
    r->p->profile_line = d->line;
    if (!r->p->has_profile)
        problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, NULL,
                     "profile: '%.40s' is not base, python, node or shell", d->text);
}

/* --- filesystem --- */

/* An absolute host path; a relative one starts from the file's directory. "~" is the shell's business. */
static char *host_path(struct reading *r, const struct doc *d, const char *where)
{
    if (!schema_text(r->pr, d, where))
        return NULL;
    const char *t = d->text;
    if (t[0] == '~') {
        bad(r, d, "Write the whole path, or one relative to the policy file.", "'~' is not expanded in policy files");
        return NULL;
    }
    while (str_starts(t, "./"))
        t += 2;
    bool here = str_eq(t, ".") || !*t;
    auto_free char *path = t[0] == '/' ? str_dup(t)
                           : here      ? str_dup(r->dir)
                                       : str_printf("%s/%s", str_eq(r->dir, "/") ? "" : r->dir, t);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    if (strlen(path) > POLICY_PATH_TEXT) {
        bad(r, d, NULL, "the path is too long");
        return NULL;
    }
    return take_ptr(&path);
}

static char *inner_path(struct reading *r, const struct doc *d, const char *where)
{
    if (!schema_text(r->pr, d, where))
        return NULL;
    size_t n = strlen(d->text);
    while (n > 1 && d->text[n - 1] == '/')
        n--;
    auto_free char *path = str_dup_n(d->text, n);
    if (policy_plain_path(path) && n > 1 && n <= POLICY_TARGET_TEXT)
        return take_ptr(&path);
    problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, "Write a path such as /mnt/data.",
                 "%s: '%.80s' is not a plain absolute path", where, d->text);
    return NULL;
}

static void read_workspace_mode(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    (void)schema_workspace(r->pr, d, &r->p->workspace);
}

static void read_workspace_path(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    free(r->p->workspace_dir);
    r->p->workspace_dir = host_path(r, d, "filesystem.workspace.path");
}

static void read_workspace(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "mode", read_workspace_mode }, { "path", read_workspace_path } };
    struct reading *r = arg;
    struct policy *p = r->p;

    p->workspace_line = d->line;
    if (d->kind == DOC_TEXT) {
        if (schema_workspace(r->pr, d, &p->workspace) && p->workspace != POLICY_MEMORY)
            bad(r, d, "Write {mode: copyOnWrite, path: DIR}.", "filesystem.workspace: this mode needs a path");
        return;
    }
    p->workspace = POLICY_READ_WRITE; /* as --workspace DIR */
    schema_map(r->pr, d, "filesystem.workspace", keys, ARRAY_LEN(keys), r);
    bool has_path = d->kind == DOC_MAP && doc_find(d, "path");
    if (d->kind == DOC_MAP && has_path == (p->workspace == POLICY_MEMORY))
        bad(r, d, "Give a path with readWrite and copyOnWrite, and none with memory.",
            has_path ? "filesystem.workspace: memory has no path" : "filesystem.workspace: the path is missing");
}

static struct policy_path *add_path(struct reading *r, const struct doc *d)
{
    if (r->p->npaths == POLICY_PATHS_MAX) {
        problems_add(r->pr, ERR_POLICY_VALUE, d->line, d->col, "Bind or hide a directory instead of its parts.",
                     "filesystem: more than %d paths are bound or hidden", POLICY_PATHS_MAX);
        return NULL;
    }
    struct policy_path *path = &r->p->paths[r->p->npaths++];
    *path = (struct policy_path){ .line = d->line };
    return path;
}

struct bind_reading {
    struct reading *r;
    char *src, *dst;
};

static void read_source(void *arg, const struct doc *d)
{
    struct bind_reading *b = arg;

    free(b->src);
    b->src = host_path(b->r, d, "filesystem.readOnly.source");
}

static void read_target(void *arg, const struct doc *d)
{
    struct bind_reading *b = arg;

    free(b->dst);
    b->dst = inner_path(b->r, d, "filesystem.readOnly.target");
}

static void read_bind(struct reading *r, const struct doc *d)
{
    static const struct schema_key keys[] = { { "source", read_source }, { "target", read_target } };
    struct bind_reading b = { r, NULL, NULL };
    size_t before = r->pr->n;

    if (d->kind == DOC_MAP)
        schema_map(r->pr, d, "filesystem.readOnly", keys, ARRAY_LEN(keys), &b);
    else
        b.src = host_path(r, d, "filesystem.readOnly");
    if (b.src && !b.dst && r->pr->n == before) { /* by its last name, below /mnt */
        const char *name = strrchr(b.src, '/');

        b.dst = str_printf("/mnt/%s", name[1] ? name + 1 : "root");
        if (!policy_plain_path(b.dst) || strlen(b.dst) > POLICY_TARGET_TEXT)
            bad(r, d, "Say {source: ..., target: /mnt/NAME}.", "filesystem.readOnly: it needs a target");
    }
    if (!b.src && r->pr->n == before)
        bad(r, d, "Say {source: ..., target: /mnt/NAME}.", "filesystem.readOnly: the source is missing");
    struct policy_path *path = r->pr->n == before ? add_path(r, d) : NULL;
    if (path) {
        path->src = take_ptr(&b.src);
        path->dst = take_ptr(&b.dst);
    }
    free(b.src);
    free(b.dst);
}

static void read_binds(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_list(r->pr, d, "filesystem.readOnly"))
        return;
    for (size_t i = 0; i < d->n; i++)
        read_bind(r, &d->items[i]);
}

static void read_skills(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    char *src = host_path(r, d, "filesystem.skills");
    struct policy_path *path = src ? add_path(r, d) : NULL;

    if (path) {
        path->src = take_ptr(&src);
        path->dst = str_dup("/skills");
    }
    free(src);
}

/* Only what comes from the host can be hidden, its system and the workspace: all else is made for the sandbox. */
static bool can_hide(const char *path)
{
    static const char *const below[] = { "/usr/",   "/bin/",    "/sbin/", "/lib/",      "/lib32/",
                                         "/lib64/", "/libx32/", "/etc/",  "/workspace/" };

    for (size_t i = 0; i < ARRAY_LEN(below); i++)
        if (str_starts(path, below[i]))
            return true;
    return false;
}

static void read_hide(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_list(r->pr, d, "filesystem.hide"))
        return;
    for (size_t i = 0; i < d->n; i++) {
        const struct doc *item = &d->items[i];
        char *dst = inner_path(r, item, "filesystem.hide");

        if (dst && !can_hide(dst)) {
            problems_add(r->pr, ERR_POLICY_VALUE, item->line, item->col,
                         "Remove it: what is not of the system is not in a sandbox unless the policy puts it there.",
                         "filesystem.hide: '%.80s' does not lie below /usr, /bin, /sbin, /lib, /etc or /workspace",
                         dst);
            free(take_ptr(&dst));
        }
        struct policy_path *path = dst ? add_path(r, item) : NULL;
        if (path)
            path->dst = take_ptr(&dst);
        free(dst);
    }
}

static void read_filesystem(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = {
        { "workspace", read_workspace }, { "readOnly", read_binds }, { "skills", read_skills }, { "hide", read_hide }
    };
    struct reading *r = arg;

    schema_map(r->pr, d, "filesystem", keys, ARRAY_LEN(keys), r);
}

/* --- network, system calls --- */

static void read_network(void *arg, const struct doc *d)
{
    schema_network(((struct reading *)arg)->pr, d);
}

static void read_grants(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    enum grant g;

    if (!schema_list(r->pr, d, "syscalls.grant"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_grant(r->pr, &d->items[i], "syscalls.grant", &g)) {
            r->p->grants |= 1u << g;
            r->p->grant_line[g] = d->items[i].line;
        }
}

static void read_deny(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    unsigned nr;

    if (!schema_list(r->pr, d, "syscalls.deny"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_syscall(r->pr, &d->items[i], "syscalls.deny", &nr)) {
            policy_deny(r->p->deny, nr);
            r->p->deny_line[nr] = d->items[i].line;
        }
}

static void refuse_allow(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    problems_add(r->pr, ERR_POLICY_FEATURE, d->key_line, d->key_col,
                 "Use syscalls.grant with the name of a group, or ask for a group that is missing.",
                 "syscalls.allow: calls cannot be opened one by one, because few people can judge what one opens");
}

static void read_syscalls(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "deny", read_deny },
                                              { "grant", read_grants },
                                              { "allow", refuse_allow, true } };
    struct reading *r = arg;

    schema_map(r->pr, d, "syscalls", keys, ARRAY_LEN(keys), r);
}

/* --- limits --- */

static void read_limits(void *arg, const struct doc *d)
{
    struct reading *r = arg;
    enum limit l;
    uint64_t value;

    if (d->kind != DOC_MAP) {
        bad(r, d, NULL, "limits should be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++)
        if (schema_limit(r->pr, &d->items[i], &l, &value)) {
            r->p->limits.v[l] = value;
            r->p->limit_line[l] = d->items[i].line;
        }
}

/* What was said must fit together once the rest has moved as far as it can. */
static void check_limits(struct reading *r)
{
    struct limits l = r->p->limits;
    uint64_t chosen = 0;
    uint32_t line = 0;
    struct err err = { 0 };

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        if (!r->p->limit_line[i])
            continue;
        chosen |= 1ull << i;
        if (!line || (i == LIMIT_WORKSPACE || i == LIMIT_TMP || i == LIMIT_SHM || i == LIMIT_MEMORY))
            line = r->p->limit_line[i];
    }
    limits_fit(&l, chosen);
    if (limits_check(&l, &err) < 0)
        problems_add(r->pr, ERR_POLICY_VALUE, line ? line : 1, 1, "Raise memoryBytes, or lower what lives in it.",
                     "limits: %s", err.msg);
}

/* --- environment --- */

static void add_env(struct reading *r, const struct doc *d, const char *name, const char *value)
{
    struct policy *p = r->p;

    if (!policy_env_name(name, strlen(name)))
        problems_add(r->pr, ERR_POLICY_VALUE, value ? d->key_line : d->line, value ? d->key_col : d->col, NULL,
                     "environment: '%.60s' is not a variable's name: letters, digits and '_'", name);
    else if (strlen(name) + (value ? strlen(value) : 0) + 1 > POLICY_ENV_TEXT)
        bad(r, d, NULL, "environment: the value is longer than 32K");
    else if (p->nenv == POLICY_ENV_MAX)
        bad(r, d, NULL, "environment: more than 256 variables");
    else
        p->env[p->nenv++] = (struct policy_env){ value ? str_printf("%s=%s", name, value) : str_dup(name), !value,
                                                 d->line };
}

static void read_set(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (d->kind != DOC_MAP) {
        bad(r, d, "Write NAME: value.", "environment.set should be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (d->items[i].kind == DOC_TEXT)
            add_env(r, &d->items[i], d->items[i].key, d->items[i].text);
        else
            bad(r, &d->items[i], NULL, "environment.set: a variable has a single value");
    }
}

static void read_pass(void *arg, const struct doc *d)
{
    struct reading *r = arg;

    if (!schema_list(r->pr, d, "environment.pass"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_text(r->pr, &d->items[i], "environment.pass"))
            add_env(r, &d->items[i], d->items[i].text, NULL);
}

static void read_environment(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "set", read_set }, { "pass", read_pass } };
    struct reading *r = arg;

    schema_map(r->pr, d, "environment", keys, ARRAY_LEN(keys), r);
}

/* --- the whole --- */

static const struct schema_key keys_of_policy[] = {
    { "version", skip },
    { "name", read_name },
    { "description", read_description },
    { "extends", skip },
    { "profile", read_profile },
    { "filesystem", read_filesystem },
    { "network", read_network },
    { "syscalls", read_syscalls },
    { "limits", read_limits },
    { "environment", read_environment },
};

static void begin_as(struct policy *p, struct problems *pr, const struct doc *top)
{
    const struct doc *d = top->kind == DOC_MAP ? doc_find(top, "extends") : NULL;
    const char *base = "standard";

    if (d && schema_text(pr, d, "extends"))
        base = d->text;
    uint32_t line = d ? d->line : 0, col = d ? d->col : 0;
    if (str_eq(base, "high"))
        problems_add(pr, ERR_LEVEL_UNAVAILABLE, line, col, "Write 'extends: standard'.",
                     "extends: high needs a second kernel, and this version has no driver for one");
    else if (!policy_builtin(base, p))
        problems_add(pr, ERR_POLICY_VALUE, line, col, NULL,
                     "extends: there is no built-in policy '%.40s'; there are standard and debug", base);
    else
        p->level = LEVEL_CUSTOM;
    if (!p->base[0])
        (void)policy_builtin("standard", p);
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (p->grants >> g & 1 && d)
            p->grant_line[g] = d->line;
}

/* "dir/build.policy.yaml" is called build.policy. */
static void name_after(struct policy *p, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    auto_free char *text = str_dup_n(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));

    if (!policy_name_ok(text) || !str_copy(p->name, sizeof(p->name), text))
        (void)str_copy(p->name, sizeof(p->name), "custom");
}

int policy_file_read(const char *data, size_t len, const char *file, const char *dir, struct policy *ret,
                     struct problems *pr)
{
    auto_free struct policy *p = mem_new(struct policy);
    struct reading r = { p, pr, dir };
    struct doc top = { 0 };
    size_t before = pr->n;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    (void)schema_version(pr, &top);
    begin_as(p, pr, &top);
    name_after(p, file);
    p->file = str_dup(file);
    schema_map(pr, &top, "", keys_of_policy, ARRAY_LEN(keys_of_policy), &r);
    doc_done(&top);
    if (pr->n == before)
        check_limits(&r);
    if (pr->n > before) {
        policy_done(p);
        return -1;
    }
    *ret = *p;
    return 0;
}

int policy_file_slurp(const char *path, char **ret, size_t *len, struct problems *pr)
{
    auto_free char *data = mem_alloc(DOC_BYTES_MAX + 2);
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, data, DOC_BYTES_MAX + 1);

    if (n < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        problems_add(pr, ERR_POLICY_MISSING, 0, 0, NULL, "there is no such file, and no built-in policy of that name");
        return -1;
    }
    if (n < 0) {
        problems_add(pr, ERR_POLICY_SYNTAX, 0, 0, "Check that it is a file that you may read.", "it cannot be read: %s",
                     strerror(errno));
        return -1;
    }
    *ret = take_ptr(&data);
    *len = (size_t)n;
    return 0;
}

int policy_file_load(const char *name, struct policy *ret, struct problems *pr)
{
    auto_free char *data = NULL;
    char dir[PATH_MAX];
    size_t len;

    if (policy_builtin(name, ret))
        return 0;
    if (policy_file_slurp(name, &data, &len, pr) < 0)
        return -1;
    auto_free char *copy = str_dup(name);
    char *slash = strrchr(copy, '/');
    if (slash)
        slash[slash == copy] = '\0';
    if (!realpath(slash ? copy : ".", dir)) {
        problems_add(pr, ERR_POLICY_MISSING, 0, 0, NULL, "its directory: %s", strerror(errno));
        return -1;
    }
    return policy_file_read(data, len, name, dir, ret, pr);
}
