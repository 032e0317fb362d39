/* The tables of keys are the grammar; start reading at the end of the file. `extends` is read
 * before all other keys, because it sets the initial values; all other keys are read in file order,
 * so that problems are reported in that order. */
#include "policy/file/policy_file.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/file/network_file.h"
#include "policy/file/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

struct policy_file_reading {
    struct policy *policy;
    struct problems *problems;
    const char *dir;
};

static void policy_file_refuse(struct policy_file_reading *r, const struct doc *d, const char *fix, const char *msg)
{
    problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, fix, "%s", msg);
}

/* Names. */

static void policy_file_skip_key(void *arg UNUSED, const struct doc *d UNUSED)
{
}

static void policy_file_read_description(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    (void)schema_text(r->problems, d, "description");
}

static void policy_file_read_name(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (!schema_text(r->problems, d, "name"))
        return;
    if (!policy_name_valid(d->text) || !str_copy(r->policy->name, sizeof(r->policy->name), d->text))
        policy_file_refuse(r, d, NULL, "name: must be at most 63 letters, digits, '-', '_' and '.'");
}

static void policy_file_read_profile(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (!schema_text(r->problems, d, "profile"))
        return;
    r->policy->has_profile = profile_parse(d->text, &r->policy->profile);
    r->policy->profile_line = d->line;
    if (!r->policy->has_profile)
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, NULL,
                     "profile: '%.40s' is not base, python, node or shell", d->text);
}

/* File system. */

/* Returns an absolute host path; a relative path starts from the file's directory. "~" is not
 * expanded. */
static char *policy_file_host_path(struct policy_file_reading *r, const struct doc *d, const char *where)
{
    if (!schema_text(r->problems, d, where))
        return NULL;
    const char *t = d->text;
    if (t[0] == '~') {
        policy_file_refuse(r, d, "Write the whole path, or one relative to the policy file.",
                           "'~' is not expanded in policy files");
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
        policy_file_refuse(r, d, NULL, "the path is too long");
        return NULL;
    }
    return take_ptr(&path);
}

static char *policy_file_sandbox_path(struct policy_file_reading *r, const struct doc *d, const char *where)
{
    if (!schema_text(r->problems, d, where))
        return NULL;
    size_t n = strlen(d->text);
    while (n > 1 && d->text[n - 1] == '/')
        n--;
    auto_free char *path = str_dup_n(d->text, n);
    if (policy_path_is_plain(path) && n > 1 && n <= POLICY_TARGET_TEXT)
        return take_ptr(&path);
    problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, "Write a path such as /mnt/data.",
                 "%s: '%.80s' is not a plain absolute path", where, d->text);
    return NULL;
}

static void policy_file_read_workspace_mode(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    (void)schema_workspace(r->problems, d, &r->policy->workspace);
}

static void policy_file_read_workspace_path(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    free(r->policy->workspace_dir);
    r->policy->workspace_dir = policy_file_host_path(r, d, "filesystem.workspace.path");
}

static void policy_file_read_workspace(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "mode", policy_file_read_workspace_mode },
                                              { "path", policy_file_read_workspace_path } };
    struct policy_file_reading *r = arg;
    struct policy *p = r->policy;

    p->workspace_line = d->line;
    if (d->kind == DOC_TEXT) {
        if (schema_workspace(r->problems, d, &p->workspace) && p->workspace != POLICY_MEMORY)
            policy_file_refuse(r, d, "Write {mode: copyOnWrite, path: DIR}.",
                               "filesystem.workspace: this mode needs a path");
        return;
    }
    p->workspace = POLICY_READ_WRITE; /* as with --workspace DIR */
    schema_map(r->problems, d, "filesystem.workspace", keys, ARRAY_LEN(keys), r);
    bool has_path = d->kind == DOC_MAP && doc_find(d, "path");
    if (d->kind == DOC_MAP && has_path == (p->workspace == POLICY_MEMORY))
        policy_file_refuse(r, d, "Give a path with readWrite and copyOnWrite, but not with memory.",
                           has_path ? "filesystem.workspace: memory has no path"
                                    : "filesystem.workspace: the path is missing");
}

static struct policy_path *policy_file_add_path(struct policy_file_reading *r, const struct doc *d)
{
    if (r->policy->npaths == POLICY_PATHS_MAX) {
        problems_add(r->problems, ERR_POLICY_VALUE, d->line, d->col, "Bind or hide a directory instead of its parts.",
                     "filesystem: more than %d paths are bound or hidden", POLICY_PATHS_MAX);
        return NULL;
    }
    struct policy_path *path = &r->policy->paths[r->policy->npaths++];
    *path = (struct policy_path){ .line = d->line };
    return path;
}

struct policy_file_bind {
    struct policy_file_reading *reading;
    char *src, *dst;
};

static void policy_file_read_bind_source(void *arg, const struct doc *d)
{
    struct policy_file_bind *b = arg;

    free(b->src);
    b->src = policy_file_host_path(b->reading, d, "filesystem.readOnly.source");
}

static void policy_file_read_bind_target(void *arg, const struct doc *d)
{
    struct policy_file_bind *b = arg;

    free(b->dst);
    b->dst = policy_file_sandbox_path(b->reading, d, "filesystem.readOnly.target");
}

static void policy_file_read_bind(struct policy_file_reading *r, const struct doc *d)
{
    static const struct schema_key keys[] = { { "source", policy_file_read_bind_source },
                                              { "target", policy_file_read_bind_target } };
    struct policy_file_bind b = { r, NULL, NULL };
    size_t before = r->problems->n;

    if (d->kind == DOC_MAP)
        schema_map(r->problems, d, "filesystem.readOnly", keys, ARRAY_LEN(keys), &b);
    else
        b.src = policy_file_host_path(r, d, "filesystem.readOnly");
    if (b.src && !b.dst && r->problems->n == before) { /* default: the last component, below /mnt */
        const char *name = strrchr(b.src, '/');

        b.dst = str_printf("/mnt/%s", name[1] ? name + 1 : "root");
        if (!policy_path_is_plain(b.dst) || strlen(b.dst) > POLICY_TARGET_TEXT)
            policy_file_refuse(r, d, "Write {source: ..., target: /mnt/NAME}.",
                               "filesystem.readOnly: the target is missing");
    }
    if (!b.src && r->problems->n == before)
        policy_file_refuse(r, d, "Write {source: ..., target: /mnt/NAME}.",
                           "filesystem.readOnly: the source is missing");
    struct policy_path *path = r->problems->n == before ? policy_file_add_path(r, d) : NULL;
    if (path) {
        path->src = take_ptr(&b.src);
        path->dst = take_ptr(&b.dst);
    }
    free(b.src);
    free(b.dst);
}

static void policy_file_read_binds(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (!schema_list(r->problems, d, "filesystem.readOnly"))
        return;
    for (size_t i = 0; i < d->n; i++)
        policy_file_read_bind(r, &d->items[i]);
}

static void policy_file_read_skills(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;
    char *src = policy_file_host_path(r, d, "filesystem.skills");
    struct policy_path *path = src ? policy_file_add_path(r, d) : NULL;

    if (path) {
        path->src = take_ptr(&src);
        path->dst = str_dup("/skills");
    }
    free(src);
}

/* Only files from the host can be hidden: the system and the workspace. Everything else is created
 * for the sandbox. */
static bool policy_file_can_hide(const char *path)
{
    static const char *const below[] = { "/usr/",   "/bin/",    "/sbin/", "/lib/",      "/lib32/",
                                         "/lib64/", "/libx32/", "/etc/",  "/workspace/" };

    for (size_t i = 0; i < ARRAY_LEN(below); i++)
        if (str_starts(path, below[i]))
            return true;
    return false;
}

static void policy_file_read_hide(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (!schema_list(r->problems, d, "filesystem.hide"))
        return;
    for (size_t i = 0; i < d->n; i++) {
        const struct doc *item = &d->items[i];
        char *dst = policy_file_sandbox_path(r, item, "filesystem.hide");

        if (dst && !policy_file_can_hide(dst)) {
            problems_add(r->problems, ERR_POLICY_VALUE, item->line, item->col,
                         "Remove it: a sandbox contains only the system and the paths that the policy binds.",
                         "filesystem.hide: '%.80s' is not below /usr, /bin, /sbin, /lib, /etc or /workspace", dst);
            free(take_ptr(&dst));
        }
        struct policy_path *path = dst ? policy_file_add_path(r, item) : NULL;
        if (path)
            path->dst = take_ptr(&dst);
        free(dst);
    }
}

static void policy_file_read_filesystem(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "workspace", policy_file_read_workspace },
                                              { "readOnly", policy_file_read_binds },
                                              { "skills", policy_file_read_skills },
                                              { "hide", policy_file_read_hide } };
    struct policy_file_reading *r = arg;

    schema_map(r->problems, d, "filesystem", keys, ARRAY_LEN(keys), r);
}

/* Network, driver and system calls. */

static void policy_file_read_network(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    struct network_policy network;

    if (!network_file_read(r->problems, d, &network))
        return;
    network_policy_done(&r->policy->network);
    r->policy->network = network;
    r->policy->network_line = d->line;
}

static void policy_file_read_driver(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (schema_driver(r->problems, d, "driver", &r->policy->driver))
        r->policy->driver_line = d->line;
}

static void policy_file_read_grants(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;
    enum grant g;

    if (!schema_list(r->problems, d, "syscalls.grant"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_grant(r->problems, &d->items[i], "syscalls.grant", &g)) {
            r->policy->grants |= 1u << g;
            r->policy->grant_line[g] = d->items[i].line;
        }
}

static void policy_file_read_deny(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;
    unsigned nr;

    if (!schema_list(r->problems, d, "syscalls.deny"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_syscall(r->problems, &d->items[i], "syscalls.deny", &nr)) {
            policy_deny(r->policy->deny, nr);
            r->policy->deny_line[nr] = d->items[i].line;
        }
}

static void policy_file_refuse_allow(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    problems_add(
        r->problems, ERR_POLICY_FEATURE, d->key_line, d->key_col,
        "Use syscalls.grant with the name of a group, or request a new group.",
        "syscalls.allow: single calls cannot be allowed, because the consequences of one call are hard to judge");
}

static void policy_file_read_syscalls(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "deny", policy_file_read_deny },
                                              { "grant", policy_file_read_grants },
                                              { "allow", policy_file_refuse_allow, true } };
    struct policy_file_reading *r = arg;

    schema_map(r->problems, d, "syscalls", keys, ARRAY_LEN(keys), r);
}

/* Limits. */

static void policy_file_read_limits(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;
    enum limit l;
    uint64_t value;

    if (d->kind != DOC_MAP) {
        policy_file_refuse(r, d, NULL, "limits must be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++)
        if (schema_limit(r->problems, &d->items[i], &l, &value)) {
            r->policy->limits.v[l] = value;
            r->policy->limit_line[l] = d->items[i].line;
        }
}

/* The chosen limits must be consistent after all others were adjusted as far as possible. */
static void policy_file_check_limits(struct policy_file_reading *r)
{
    struct limits l = r->policy->limits;
    uint64_t chosen = 0;
    uint32_t line = 0;
    struct err err = { 0 };

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        if (!r->policy->limit_line[i])
            continue;
        chosen |= 1ull << i;
        if (!line || (i == LIMIT_WORKSPACE || i == LIMIT_TMP || i == LIMIT_SHM || i == LIMIT_MEMORY))
            line = r->policy->limit_line[i];
    }
    limits_fit(&l, chosen);
    if (limits_check(&l, &err) < 0)
        problems_add(r->problems, ERR_POLICY_VALUE, line ? line : 1, 1,
                     "Raise memoryBytes, or lower the limits that count against it.", "limits: %s", err.msg);
}

/* Environment. */

static void policy_file_add_env(struct policy_file_reading *r, const struct doc *d, const char *name, const char *value)
{
    struct policy *p = r->policy;

    if (!policy_env_name_valid(name, strlen(name)))
        problems_add(r->problems, ERR_POLICY_VALUE, value ? d->key_line : d->line, value ? d->key_col : d->col, NULL,
                     "environment: '%.60s' is not a variable's name: letters, digits and '_'", name);
    else if (strlen(name) + (value ? strlen(value) : 0) + 1 > POLICY_ENV_TEXT)
        policy_file_refuse(r, d, NULL, "environment: the value is longer than 32K");
    else if (p->nenv == POLICY_ENV_MAX)
        policy_file_refuse(r, d, NULL, "environment: more than 256 variables");
    else
        p->env[p->nenv++] = (struct policy_env){ value ? str_printf("%s=%s", name, value) : str_dup(name), !value,
                                                 d->line };
}

static void policy_file_read_env_set(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (d->kind != DOC_MAP) {
        policy_file_refuse(r, d, "Write NAME: value.", "environment.set must be a mapping");
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (d->items[i].kind == DOC_TEXT)
            policy_file_add_env(r, &d->items[i], d->items[i].key, d->items[i].text);
        else
            policy_file_refuse(r, &d->items[i], NULL, "environment.set: a variable must have a single value");
    }
}

static void policy_file_read_env_pass(void *arg, const struct doc *d)
{
    struct policy_file_reading *r = arg;

    if (!schema_list(r->problems, d, "environment.pass"))
        return;
    for (size_t i = 0; i < d->n; i++)
        if (schema_text(r->problems, &d->items[i], "environment.pass"))
            policy_file_add_env(r, &d->items[i], d->items[i].text, NULL);
}

static void policy_file_read_environment(void *arg, const struct doc *d)
{
    static const struct schema_key keys[] = { { "set", policy_file_read_env_set },
                                              { "pass", policy_file_read_env_pass } };
    struct policy_file_reading *r = arg;

    schema_map(r->problems, d, "environment", keys, ARRAY_LEN(keys), r);
}

/* The whole file. */

static const struct schema_key policy_file_keys[] = {
    { "version", policy_file_skip_key },
    { "name", policy_file_read_name },
    { "description", policy_file_read_description },
    { "extends", policy_file_skip_key },
    { "profile", policy_file_read_profile },
    { "filesystem", policy_file_read_filesystem },
    { "network", policy_file_read_network },
    { "driver", policy_file_read_driver },
    { "syscalls", policy_file_read_syscalls },
    { "limits", policy_file_read_limits },
    { "environment", policy_file_read_environment },
};

static void policy_file_apply_base(struct policy *p, struct problems *pr, const struct doc *top)
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
                     "extends: no built-in policy is named '%.40s'; use standard or debug", base);
    else
        p->level = LEVEL_CUSTOM;
    if (!p->base[0])
        (void)policy_builtin("standard", p);
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (p->grants >> g & 1 && d)
            p->grant_line[g] = d->line;
}

/* The name of "dir/build.policy.yaml" is build.policy. */
static void policy_file_name_from_path(struct policy *p, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    auto_free char *text = str_dup_n(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));

    if (!policy_name_valid(text) || !str_copy(p->name, sizeof(p->name), text))
        (void)str_copy(p->name, sizeof(p->name), "custom");
}

int policy_file_read(const char *data, size_t len, const char *file, const char *dir, struct policy *ret,
                     struct problems *pr)
{
    auto_free struct policy *p = mem_new(struct policy);
    struct policy_file_reading r = { p, pr, dir };
    struct doc top = { 0 };
    size_t before = pr->n;

    if (doc_parse(data, len, &schema_rules, &top, pr) < 0)
        return -1;
    (void)schema_version(pr, &top);
    policy_file_apply_base(p, pr, &top);
    policy_file_name_from_path(p, file);
    p->file = str_dup(file);
    schema_map(pr, &top, "", policy_file_keys, ARRAY_LEN(policy_file_keys), &r);
    doc_done(&top);
    if (pr->n == before)
        policy_file_check_limits(&r);
    if (pr->n > before) {
        policy_done(p);
        return -1;
    }
    *ret = *p;
    return 0;
}

int policy_file_load_bytes(const char *path, char **ret, size_t *len, struct problems *pr)
{
    auto_free char *data = mem_alloc(DOC_BYTES_MAX + 2);
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, data, DOC_BYTES_MAX + 1);

    if (n < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        problems_add(pr, ERR_POLICY_MISSING, 0, 0, NULL,
                     "no file and no built-in policy has this name; 'cove policy show' lists the policies");
        return -1;
    }
    if (n < 0) {
        problems_add(pr, ERR_POLICY_SYNTAX, 0, 0, "Check that it is a file that you may read.",
                     "cannot read the file: %s", strerror(errno));
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
    if (policy_file_load_bytes(name, &data, &len, pr) < 0)
        return -1;
    auto_free char *copy = str_dup(name);
    char *slash = strrchr(copy, '/');
    if (slash)
        slash[slash == copy] = '\0';
    if (!realpath(slash ? copy : ".", dir)) {
        problems_add(pr, ERR_POLICY_MISSING, 0, 0, NULL, "cannot resolve its directory: %s", strerror(errno));
        return -1;
    }
    return policy_file_read(data, len, name, dir, ret, pr);
}
