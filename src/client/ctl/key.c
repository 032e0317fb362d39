/* cove key: create, ls, revoke, rotate. A secret is printed once, alone on standard output, so that
 * a script can read it. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

#define YEARS_MS (100ull * 365 * 24 * 3600 * 1000) /* longer durations are mistakes */

static int ctl_key_show_secret(struct ctl *c, const json_t *answer)
{
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "key"));
    if (!c->quiet)
        report_note("key %s '%s'; it won't be shown again", ctl_field_text(answer, "id"),
                    ctl_field_text(answer, "name"));
    return 0;
}

/* A key of a user without --scope may do all that the role of the user allows. */
static bool ctl_key_is_for_user(const struct ctl *c)
{
    const struct arg *a = args_find(&c->args, OPT_OF_USER);

    return a && !str_eq(a->value, "none");
}

/* A key of a user belongs to the user's tenant, so an operator need not give it. A caller without
 * access to users has only one tenant. */
static void ctl_key_set_tenant_of_user(struct ctl *c, const char *user, json_t *body)
{
    auto_free char *path = ctl_api_path("/v1/users/%s", user);
    AUTO_JSON *found = NULL;
    struct err none = { 0 };

    if (client_json(c->client, "GET", path, NULL, &found, &none) == 0 && *ctl_field_text(found, "tenant"))
        json_object_set_new(body, "tenant", json_string(ctl_field_text(found, "tenant")));
}

static int ctl_key_set_user(struct ctl *c, json_t *body, struct err *err)
{
    auto_free char *id = NULL;

    ctl_set_text(c, OPT_TENANT, body, "tenant");
    if (ctl_key_is_for_user(c)) {
        if (ctl_resolve_user(c, args_find(&c->args, OPT_OF_USER)->value, &id, err) < 0)
            return -1;
        json_object_set_new(body, "user", json_string(id));
        if (!args_find(&c->args, OPT_TENANT))
            ctl_key_set_tenant_of_user(c, id, body);
    } else if (args_find(&c->args, OPT_OF_USER)) {
        json_object_set_new(body, "user", json_null());
    }
    return 0;
}

static json_t *ctl_key_scopes(const struct ctl *c)
{
    static const char *const usual[] = { "sandboxes:read", "sandboxes:write", "executions", "files" };
    json_t *list = json_array();

    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_SCOPE)
            json_array_append_new(list, json_string(c->args.items[i].value));
    for (size_t i = 0; i < ARRAY_LEN(usual) && !args_find(&c->args, OPT_SCOPE) && !ctl_key_is_for_user(c); i++)
        json_array_append_new(list, json_string(usual[i]));
    return list;
}

/* "30d" counts from now; everything else is a time, which the server parses. */
static void ctl_key_set_expiry(const struct ctl *c, json_t *body)
{
    const struct arg *a = args_find(&c->args, OPT_EXPIRES);
    char text[32];
    uint64_t ms;

    if (a && str_to_ms(a->value, &ms) && ms < YEARS_MS)
        json_object_set_new(body, "expiresAt", json_string(clock_rfc3339(clock_real_ns() + ms * NS_PER_MS, text)));
    else
        ctl_set_text(c, OPT_EXPIRES, body, "expiresAt");
}

static int ctl_key_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (ctl_require_args(c, 1, 1, "key create [FLAGS] NAME", err) < 0)
        return -1;
    json_object_set_new(body, "name", json_string(c->args.rest[0]));
    json_t *may = ctl_key_scopes(c);
    if (json_array_size(may))
        json_object_set_new(body, "scopes", may);
    else
        json_decref(may);
    if (ctl_key_set_user(c, body, err) < 0)
        return -1;
    ctl_key_set_expiry(c, body);
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", "/v1/keys", text, &answer, err) < 0)
        return -1;
    return ctl_key_show_secret(c, answer);
}

struct ctl_key_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *all;
};

static void ctl_key_add_row(void *arg, const json_t *k)
{
    struct ctl_key_listing *l = arg;
    auto_buf may = { 0 };
    json_t *scope;
    size_t i;

    json_array_foreach(json_object_get(k, "scopes"), i, scope)
        buf_addf(&may, "%s%s", i ? " " : "", json_string_value(scope));
    char used[CTL_AGE], until[CTL_AGE];
    const char *last = ctl_age(ctl_field_text(k, "lastUsedAt"), l->now_ms, used);
    const char *end = ctl_age(ctl_field_text(k, "expiresAt"), l->now_ms, until);
    json_array_append(l->all, (json_t *)(uintptr_t)k);
    ctl_table_row(&l->table, ctl_field_text(k, "id"), ctl_field_text(k, "name"), ctl_field_text(k, "prefix"),
                  *last ? last : "never",
                  *ctl_field_text(k, "revokedAt") ? "revoked"
                  : *end                          ? end
                                                  : "-",
                  may.len ? may.data : "");
}

static int ctl_key_list(struct ctl *c, struct err *err)
{
    struct ctl_key_listing l = { .now_ms = clock_real_ms(), .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);

    if (ctl_require_args(c, 0, 0, "key ls", err) < 0)
        return -1;
    ctl_table_row(&l.table, "id", "name", "prefix", "last used", "expires", "scopes");
    if (ctl_for_each_item(c, "/v1/keys", ctl_key_add_row, &l, err) < 0)
        return -1;
    return c->json ? ctl_print_json(whole) : ctl_table_print(&l.table);
}

/* --- resolving a key --- */

struct ctl_key_search {
    const char *word;
    char *id; /* the last match */
    size_t n;
    bool is_id; /* an ID is never a chosen name */
};

static void ctl_key_search_add(void *arg, const json_t *k)
{
    struct ctl_key_search *w = arg;
    const char *id = ctl_field_text(k, "id");
    bool is_id = str_eq(id, w->word);

    if (w->is_id || *ctl_field_text(k, "revokedAt"))
        return;
    if (!is_id && !str_eq(ctl_field_text(k, "name"), w->word) && !(strlen(w->word) > 2 && str_starts(id, w->word)))
        return;
    free(w->id);
    w->id = str_dup(id);
    w->n = is_id ? 1 : w->n + 1;
    w->is_id = is_id;
}

/* Names are not unique: a name of several keys is an error. A complete ID costs
 * no additional request. */
static int ctl_key_find(struct ctl *c, const char *word, char **ret, struct err *err)
{
    struct ctl_key_search w = { .word = word };

    if (id_valid(word, "ky")) {
        *ret = str_dup(word);
        return 0;
    }
    int bad = ctl_for_each_item(c, "/v1/keys", ctl_key_search_add, &w, err);
    if (!bad && w.n == 0)
        bad = err_set(err, ERR_MISSING, "no valid key has the ID or name '%.60s'; 'cove key ls' lists the keys", word);
    if (!bad && w.n > 1)
        bad = err_set(err, ERR_INVALID, "%zu keys match '%.60s'; write more of the ID", w.n, word);
    if (bad)
        free(w.id);
    else
        *ret = w.id;
    return bad;
}

int ctl_key(struct ctl *c, const char *what, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (str_eq(what, "create"))
        return ctl_key_create(c, err);
    if (str_eq(what, "ls"))
        return ctl_key_list(c, err);
    bool rotate = str_eq(what, "rotate");
    auto_free char *id = NULL;
    if (ctl_require_args(c, 1, 1, rotate ? "key rotate ID|NAME" : "key revoke ID|NAME", err) < 0 ||
        ctl_key_find(c, c->args.rest[0], &id, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path(rotate ? "/v1/keys/%s/rotate" : "/v1/keys/%s", id);
    if (client_json(c->client, rotate ? "POST" : "DELETE", path, NULL, &answer, err) < 0)
        return -1;
    if (!rotate && !c->json && !c->quiet)
        report_note("key %s is revoked", id);
    return rotate ? ctl_key_show_secret(c, answer) : 0;
}
