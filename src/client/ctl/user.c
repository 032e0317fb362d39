/* cove user: add, ls, info, set, rm; and cove role: create, ls, show, rm. They work on the caller's
 * own tenant, or with --tenant on another, which only the operator may do. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

/* An API path with the tenant of --tenant. */
static char *ctl_user_tenant_path(const struct ctl *c, const char *path)
{
    const struct arg *a = args_find(&c->args, OPT_TENANT);
    auto_free char *query = a ? ctl_api_path("?tenant=%s", a->value) : str_dup("");

    return str_printf("%s%s", path, query);
}

static int ctl_user_send(struct ctl *c, const char *method, const char *path, const json_t *body, json_t **ret,
                         struct err *err)
{
    auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    return client_json(c->client, method, path, text, ret, err);
}

static char *ctl_user_permissions_text(const json_t *list)
{
    struct buf out = { 0 };
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
        buf_addf(&out, "%s%s", i ? " " : "", json_is_string(one) ? json_string_value(one) : "");
    return out.data ? out.data : str_dup("");
}

struct ctl_user_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *all;
};

/* --- users --- */

static void ctl_user_add_row(void *arg, const json_t *u)
{
    struct ctl_user_listing *l = arg;
    char created[CTL_AGE];

    if (l->all)
        json_array_append(l->all, (json_t *)(uintptr_t)u);
    ctl_table_row(&l->table, ctl_field_text(u, "id"), ctl_field_text(u, "name"), ctl_field_text(u, "role"),
                  ctl_field_text(u, "tenant"), json_is_true(json_object_get(u, "disabled")) ? "disabled" : "active",
                  ctl_age(ctl_field_text(u, "createdAt"), l->now_ms, created));
}

static int ctl_user_list(struct ctl *c, struct err *err)
{
    struct ctl_user_listing l = { .now_ms = clock_real_ms(), .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);
    auto_free char *path = ctl_user_tenant_path(c, "/v1/users");

    if (ctl_require_args(c, 0, 0, "user ls [--tenant NAME]", err) < 0)
        return -1;
    ctl_table_row(&l.table, "id", "name", "role", "tenant", "state", "created");
    if (ctl_for_each_item(c, path, ctl_user_add_row, &l, err) < 0)
        return -1;
    return c->json ? ctl_print_json(whole) : ctl_table_print(&l.table);
}

static int ctl_user_print(struct ctl *c, const json_t *u)
{
    struct ctl_user_listing l = { .now_ms = clock_real_ms() };

    if (c->json)
        return ctl_print_json(u);
    ctl_table_row(&l.table, "id", "name", "role", "tenant", "state", "created");
    ctl_user_add_row(&l, u);
    return ctl_table_print(&l.table);
}

struct ctl_user_search {
    const char *name;
    char *id;
    size_t n;
};

static void ctl_user_search_add(void *arg, const json_t *u)
{
    struct ctl_user_search *w = arg;

    if (!str_eq(ctl_field_text(u, "name"), w->name))
        return;
    free(w->id);
    w->id = str_dup(ctl_field_text(u, "id"));
    w->n++;
}

/* A name is unique in a tenant; an operator may see it in several tenants. */
int ctl_resolve_user(struct ctl *c, const char *word, char **ret, struct err *err)
{
    struct ctl_user_search w = { .name = word };
    auto_free char *path = ctl_user_tenant_path(c, "/v1/users");

    if (id_valid(word, "us")) {
        *ret = str_dup(word);
        return 0;
    }
    int bad = ctl_for_each_item(c, path, ctl_user_search_add, &w, err);
    if (!bad && w.n == 0)
        bad = err_set(err, ERR_MISSING, "no user named '%.64s'; 'cove user ls' lists the users", word);
    if (!bad && w.n > 1)
        bad = err_set(err, ERR_INVALID, "%zu tenants have a user '%.64s'; add --tenant NAME", w.n, word);
    if (bad)
        free(w.id);
    else
        *ret = w.id;
    return bad;
}

static int ctl_user_add(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (ctl_require_args(c, 1, 1, "user add --role ROLE NAME", err) < 0)
        return -1;
    if (!args_find(&c->args, OPT_ROLE))
        return err_set(err, ERR_USAGE, "missing --role; use admin, developer, viewer, or a name from 'cove role ls'");
    json_object_set_new(body, "name", json_string(c->args.rest[0]));
    ctl_set_text(c, OPT_ROLE, body, "role");
    ctl_set_text(c, OPT_TENANT, body, "tenant");
    if (ctl_user_send(c, "POST", "/v1/users", body, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "id"));
    if (!c->quiet)
        report_note("'cove key create --user %s NAME' creates a key for the user", ctl_field_text(answer, "id"));
    return 0;
}

static int ctl_user_set(struct ctl *c, const char *path, struct err *err)
{
    bool disable = args_find(&c->args, OPT_DISABLE) != NULL, enable = args_find(&c->args, OPT_ENABLE) != NULL;
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (disable && enable)
        return err_set(err, ERR_USAGE, "--disable and --enable exclude each other");
    ctl_set_text(c, OPT_ROLE, body, "role");
    ctl_set_text(c, OPT_RENAME, body, "name");
    if (disable || enable)
        json_object_set_new(body, "disabled", json_boolean(disable));
    if (!json_object_size(body))
        return err_set(err, ERR_USAGE, "nothing to change; add --role, --disable, --enable or --rename");
    return ctl_user_send(c, "PATCH", path, body, &answer, err) < 0 ? -1 : ctl_user_print(c, answer);
}

int ctl_user(struct ctl *c, const char *what, struct err *err)
{
    AUTO_JSON *answer = NULL;
    auto_free char *id = NULL;

    if (str_eq(what, "add"))
        return ctl_user_add(c, err);
    if (str_eq(what, "ls"))
        return ctl_user_list(c, err);
    auto_free char *usage = str_printf("user %s [FLAGS] ID|NAME", what);
    if (ctl_require_args(c, 1, 1, usage, err) < 0 || ctl_resolve_user(c, c->args.rest[0], &id, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/users/%s", id);
    if (str_eq(what, "set"))
        return ctl_user_set(c, path, err);
    if (str_eq(what, "info"))
        return ctl_user_send(c, "GET", path, NULL, &answer, err) < 0 ? -1 : ctl_user_print(c, answer);
    if (ctl_user_send(c, "DELETE", path, NULL, NULL, err) < 0)
        return -1;
    if (!c->json && !c->quiet)
        report_note("user %s is removed, and the user's keys are revoked", id);
    return 0;
}

/* --- roles --- */

static void ctl_role_add_row(void *arg, const json_t *r)
{
    struct ctl_user_listing *l = arg;
    auto_free char *may = ctl_user_permissions_text(json_object_get(r, "permissions"));

    json_array_append(l->all, (json_t *)(uintptr_t)r);
    ctl_table_row(&l->table, ctl_field_text(r, "name"),
                  json_is_true(json_object_get(r, "builtIn")) ? "built-in" : "custom", may);
}

static int ctl_role_list(struct ctl *c, struct err *err)
{
    struct ctl_user_listing l = { .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);
    auto_free char *path = ctl_user_tenant_path(c, "/v1/roles");

    if (ctl_require_args(c, 0, 0, "role ls [--tenant NAME]", err) < 0)
        return -1;
    ctl_table_row(&l.table, "name", "kind", "permissions");
    if (ctl_for_each_item(c, path, ctl_role_add_row, &l, err) < 0)
        return -1;
    return c->json ? ctl_print_json(whole) : ctl_table_print(&l.table);
}

static int ctl_role_print(struct ctl *c, const json_t *r)
{
    json_t *one;
    size_t i;

    if (c->json)
        return ctl_print_json(r);
    json_array_foreach(json_object_get(r, "permissions"), i, one)
        ctl_printf("%s", json_is_string(one) ? json_string_value(one) : "");
    return 0;
}

static int ctl_role_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    json_t *permissions = json_array();

    json_object_set_new(body, "permissions", permissions);
    if (ctl_require_args(c, 1, 1, "role create --allow PERMISSION... NAME", err) < 0)
        return -1;
    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_ALLOW_SCOPE)
            json_array_append_new(permissions, json_string(c->args.items[i].value));
    if (json_array_size(permissions) == 0)
        return err_set(err, ERR_USAGE, "missing --allow; 'cove role show developer' lists permissions");
    json_object_set_new(body, "name", json_string(c->args.rest[0]));
    ctl_set_text(c, OPT_TENANT, body, "tenant");
    return ctl_user_send(c, "POST", "/v1/roles", body, &answer, err) < 0 ? -1 : ctl_role_print(c, answer);
}

int ctl_role(struct ctl *c, const char *what, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (str_eq(what, "create"))
        return ctl_role_create(c, err);
    if (str_eq(what, "ls"))
        return ctl_role_list(c, err);
    bool show = str_eq(what, "show");
    if (ctl_require_args(c, 1, 1, show ? "role show NAME" : "role rm NAME", err) < 0)
        return -1;
    auto_free char *plain = ctl_api_path("/v1/roles/%s", c->args.rest[0]);
    auto_free char *path = ctl_user_tenant_path(c, plain);
    if (ctl_user_send(c, show ? "GET" : "DELETE", path, NULL, show ? &answer : NULL, err) < 0)
        return -1;
    if (show)
        return ctl_role_print(c, answer);
    if (!c->json && !c->quiet)
        report_note("role %s is removed", c->args.rest[0]);
    return 0;
}
