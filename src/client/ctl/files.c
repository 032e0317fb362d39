/* cove files: ls, cat, stat, mkdir, mv, rm. The sandbox is named as in `cove cp`: SANDBOX:PATH, or
 * SANDBOX and PATH as two arguments; a relative path starts at /workspace. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <stdio.h>
#include <unistd.h>

struct ctl_files_args {
    char *sandbox;
    const char *first;        /* path of SANDBOX:PATH; NULL: none */
    const char *const *paths; /* the others, NULL-terminated */
    size_t n;                 /* all paths */
};

/* The arguments of one call of a verb. */
struct ctl_files_call {
    const char *sandbox, *path, *to; /* absolute paths; to: of `mv` only */
};

#define PATHS_MAX 1000u /* of a verb that is called once for each path */

static int ctl_files_read_args(struct ctl *c, size_t min, size_t max, const char *usage, struct ctl_files_args *ret,
                               struct err *err)
{
    const char *word = c->args.nrest ? c->args.rest[0] : "", *colon = strchr(word, ':');
    auto_free char *name = colon ? str_dup_n(word, (size_t)(colon - word)) : str_dup(word);
    bool joined = colon && colon[1];

    ret->first = joined ? colon + 1 : NULL;
    ret->paths = (const char *const *)(c->args.rest + (c->args.nrest ? 1 : 0));
    ret->n = (size_t)(c->args.nrest ? c->args.nrest - 1 : 0) + joined;
    if (c->args.nrest == 0 || ret->n < min)
        return err_set(err, ERR_USAGE, "missing argument; usage: cove files %s", usage);
    if (ret->n > max)
        return err_set(err, ERR_USAGE, "unexpected argument '%.60s'; usage: cove files %s",
                       c->args.rest[c->args.nrest - 1], usage);
    return ctl_resolve_sandbox(c, name, &ret->sandbox, err);
}

/* The i-th path as an absolute one; the caller frees it. */
static char *ctl_files_path(const struct ctl_files_args *a, size_t i)
{
    if (i >= a->n)
        return str_dup("/workspace");
    return ctl_sandbox_path(!a->first ? a->paths[i] : i == 0 ? a->first : a->paths[i - 1]);
}

/* --- reading --- */

struct ctl_files_listing {
    struct ctl_table table;
    json_t *items;
    uint64_t now_ms;
};

/* The name as `ls -F` shows it: a directory ends with a slash, and a link has its target. */
static char *ctl_files_name(const json_t *e)
{
    const char *kind = ctl_field_text(e, "kind"), *target = ctl_field_text(e, "target");

    return str_printf("%s%s%s%s", ctl_field_text(e, "name"), str_eq(kind, "directory") ? "/" : "",
                      *target ? " -> " : "", target);
}

static void ctl_files_add_row(void *arg, const json_t *e)
{
    struct ctl_files_listing *l = arg;
    auto_free char *name = ctl_files_name(e);
    char size[32], age[CTL_AGE];

    json_array_append(l->items, (json_t *)(uintptr_t)e);
    ctl_table_row(&l->table, ctl_field_text(e, "mode"), ctl_field_text(e, "kind"),
                  str_bytes(ctl_field_number(e, "sizeBytes"), size),
                  ctl_age(ctl_field_text(e, "modifiedAt"), l->now_ms, age), name);
}

static int ctl_files_list(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    auto_free char *api = ctl_api_path("/v1/sandboxes/%s/files/list?path=%s", call->sandbox, call->path);
    struct ctl_files_listing l = { .now_ms = clock_real_ms(), .items = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.items);

    ctl_table_row(&l.table, "mode", "kind", "size", "modified", "name");
    int bad = ctl_for_each_item(c, api, ctl_files_add_row, &l, err);
    if (!bad && !c->json && !c->quiet)
        return ctl_table_print(&l.table);
    ctl_table_free(&l.table);
    if (bad || c->json)
        return bad ? -1 : ctl_print_json(whole);
    for (size_t i = 0; i < json_array_size(l.items); i++)
        ctl_printf("%s", ctl_field_text(json_array_get(l.items, i), "name"));
    return 0;
}

static bool ctl_files_print_bytes(void *arg, const void *data, size_t len)
{
    struct err *err = arg;

    if (fd_write_all(STDOUT_FILENO, data, len) == 0)
        return true;
    err_sys(err, ERR_SYS, "standard output");
    return false;
}

static int ctl_files_print(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    auto_free char *api = ctl_api_path("/v1/sandboxes/%s/files?path=%s", call->sandbox, call->path);

    return client_download(c->client, api, ctl_files_print_bytes, err, err);
}

static int ctl_files_stat(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    static const char *const shown[] = { "name", "kind", "mode", "modifiedAt", "target" };
    auto_free char *api = ctl_api_path("/v1/sandboxes/%s/files/stat?path=%s", call->sandbox, call->path);
    AUTO_JSON *e = NULL;

    if (client_json(c->client, "GET", api, NULL, &e, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(e);
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        if (*ctl_field_text(e, shown[i]))
            ctl_printf("%-10s %s", shown[i], ctl_field_text(e, shown[i]));
    ctl_printf("%-10s %" PRIu64, "sizeBytes", ctl_field_number(e, "sizeBytes"));
    return 0;
}

/* --- changing --- */

/* Frees `body`. */
static int ctl_files_send(struct ctl *c, const char *sandbox, const char *what, json_t *body, struct err *err)
{
    auto_free char *api = ctl_api_path("/v1/sandboxes/%s/files/%s", sandbox, what);
    auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    if (!text)
        return err_set(err, ERR_INVALID, "a path is not UTF-8");
    return client_json(c->client, "POST", api, text, NULL, err);
}

static int ctl_files_mkdir(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    return ctl_files_send(c, call->sandbox, "mkdir", json_pack("{s:s,s:b}", "path", call->path, "parents", 1), err);
}

static int ctl_files_move(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    return ctl_files_send(c, call->sandbox, "move",
                          json_pack("{s:s,s:s,s:b}", "from", call->path, "to", call->to, "parents", 1), err);
}

static int ctl_files_remove(struct ctl *c, const struct ctl_files_call *call, struct err *err)
{
    bool recursive = args_find(&c->args, OPT_RECURSIVE);
    auto_free char *api = ctl_api_path(recursive ? "/v1/sandboxes/%s/files?path=%s&recursive=true"
                                                 : "/v1/sandboxes/%s/files?path=%s",
                                       call->sandbox, call->path);

    if (client_json(c->client, "DELETE", api, NULL, NULL, err) == 0)
        return 0;
    if (err->id == ERR_EXISTS && !recursive)
        err_set(err, ERR_EXISTS, "%s: the directory is not empty; -r removes it with its contents", call->path);
    return -1;
}

struct ctl_files_verb {
    const char *word;
    int (*fn)(struct ctl *c, const struct ctl_files_call *call, struct err *err);
    size_t min, max; /* paths */
    const char *usage;
};

static int ctl_files_run(struct ctl *c, const struct ctl_files_verb *v, struct err *err)
{
    struct ctl_files_args a = { 0 };

    if (ctl_files_read_args(c, v->min, v->max, v->usage, &a, err) < 0)
        return -1;
    auto_free char *sandbox = a.sandbox, *to = v->max == 2 ? ctl_files_path(&a, 1) : NULL;
    for (size_t i = 0; i < (v->max == PATHS_MAX ? a.n : 1); i++) {
        auto_free char *path = ctl_files_path(&a, i);
        struct ctl_files_call call = { sandbox, path, to };
        int status = v->fn(c, &call, err);

        if (status != 0)
            return status;
    }
    return 0;
}

int ctl_files(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_files_verb verbs[] = {
        { "ls", ctl_files_list, 0, 1, "ls SANDBOX[:PATH]" },
        { "cat", ctl_files_print, 1, PATHS_MAX, "cat SANDBOX:PATH..." },
        { "stat", ctl_files_stat, 1, 1, "stat SANDBOX:PATH" },
        { "mkdir", ctl_files_mkdir, 1, PATHS_MAX, "mkdir SANDBOX:PATH..." },
        { "mv", ctl_files_move, 2, 2, "mv SANDBOX:FROM TO" },
        { "rm", ctl_files_remove, 1, PATHS_MAX, "rm [-r] SANDBOX:PATH..." },
    };

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (str_eq(what, verbs[i].word))
            return ctl_files_run(c, &verbs[i], err);
    return err_set(err, ERR_BUG, "'files %s' is not implemented", what);
}
