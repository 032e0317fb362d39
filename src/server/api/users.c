/* /v1/users and /v1/roles of the principal's own tenant; the operator may name another tenant. */
#include "server/api/api_internal.h"

#include "server/auth/tenant_users.h"
#include "server/auth/role.h"
#include "core/base/clock.h"
#include "core/base/str.h"

/* The tenant: ?tenant= of the operator, or the principal's own. */
static int api_user_read_tenant(struct http_req *req, const char **ret, struct err *err)
{
    if (http_query_require_known(req, (const char *const[]){ "tenant", NULL }, err) < 0)
        return -1;
    return auth_resolve_tenant(gateway_principal(req), http_query(req, "tenant"), ret, err);
}

/* --- users --- */

static void api_user_write_json(const struct store_user *row, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", row->id);
    jsonw_kstr(w, "name", row->name);
    jsonw_kstr(w, "tenant", row->owner);
    jsonw_kstr(w, "role", row->role);
    jsonw_kbool(w, "disabled", row->disabled);
    api_write_time(w, "createdAt", row->created_ms);
    jsonw_end_object(w);
}

static void api_user_answer(struct http_req *req, int status, const struct err *err, const struct store_user *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (http_answer_if_err(req, err))
        return;
    jsonw_init(&w, &out, 0);
    api_user_write_json(row, &w);
    http_answer_json(req, status, &out);
}

static void api_user_on_row(void *arg, const struct err *err, const struct store_user *row)
{
    api_user_answer(arg, 200, err, row);
}

static void api_user_on_created(void *arg, const struct err *err, const struct store_user *row)
{
    if (!err) {
        audit_trail_add_target(arg, "user", row->id);
        audit_trail_add_detail(arg, "name", row->name);
        audit_trail_add_detail(arg, "role", row->role);
        audit_trail_add_detail(arg, "tenant", row->owner);
    }
    api_user_answer(arg, 201, err, row);
}

/* Restricts names to letters, digits and the characters of e-mail addresses, so that people can
 * distinguish them. */
static int api_user_read_name(const json_t *body, struct store_user *row, struct err *err)
{
    const char *name = NULL;

    if (json_input_text(body, "", "name", 1, STORE_NAME_MAX, &name, err) < 0)
        return -1;
    if (name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-") != strlen(name))
        return err_set(err, ERR_INVALID, "name: must consist of letters, digits, '.', '_', '@', '+' and '-'");
    if (name)
        str_copy(row->name, sizeof(row->name), name);
    return 0;
}

static int api_user_read_role(const json_t *body, struct store_user *row, struct err *err)
{
    const char *role = NULL;

    if (json_input_text(body, "", "role", 1, STORE_NAME_MAX, &role, err) < 0)
        return -1;
    if (role && !api_is_valid_slug(role))
        return err_set(err, ERR_MISSING, "role: there is no such role");
    if (role)
        str_copy(row->role, sizeof(row->role), role);
    return 0;
}

static void api_user_create(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "role", "tenant", NULL };
    struct api *api = ctx;
    auto_json *body = NULL;
    struct store_user row = { .created_ms = clock_real_ms() };
    const char *named = NULL, *tenant;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &body, &err) < 0 ||
        json_input_require_known_fields(body, "", names, &err) < 0 ||
        json_input_text(body, "", "tenant", 1, STORE_NAME_MAX, &named, &err) < 0 ||
        auth_resolve_tenant(gateway_principal(req), named, &tenant, &err) < 0 ||
        api_user_read_name(body, &row, &err) < 0 || api_user_read_role(body, &row, &err) < 0) {
        http_answer_err(req, &err);
    } else if (!row.name[0] || !row.role[0]) {
        http_refuse(req, ERR_INVALID, "%s: required; give %s", row.name[0] ? "role" : "name",
                    row.name[0] ? "the role of the user" : "the name of the user");
    } else {
        str_copy(row.owner, sizeof(row.owner), tenant);
        auth_user_create(api->settings.auth, gateway_principal(req), &row, api_user_on_created, req);
    }
}

static void api_user_on_rows(void *arg, const struct err *err, const struct store_user *rows, size_t n,
                             const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        api_user_write_json(&rows[i], &w);
    api_list_end(req, &w, next);
}

static void api_user_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    const char *named = http_query(req, "tenant"), *tenant;
    struct err err = { 0 };

    if (api_read_page(req, (const char *const[]){ "tenant", NULL }, &q, &err) < 0 ||
        auth_resolve_tenant(gateway_principal(req), named, &tenant, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    if (named)
        q.owner = tenant;
    store_user_list(api->settings.store, &q, api_user_on_rows, req);
}

static void api_user_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "userId", "us", "user");

    if (id)
        store_user_get(api->settings.store, gateway_visible_owner(req), id, api_user_on_row, req);
}

static void api_user_update(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "role", "disabled", NULL };
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "userId", "us", "user");
    auto_json *body = NULL;
    struct store_user row = { 0 };
    struct err err = { 0 };

    if (!id)
        return;
    if (api_read_body(req, &body, &err) < 0 || json_input_require_known_fields(body, "", names, &err) < 0 ||
        api_user_read_name(body, &row, &err) < 0 || api_user_read_role(body, &row, &err) < 0 ||
        json_input_bool(body, "", "disabled", &row.disabled, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    uint32_t set = (row.name[0] ? STORE_USER_SET_NAME : 0) | (row.role[0] ? STORE_USER_SET_ROLE : 0) |
                   (json_object_get(body, "disabled") ? STORE_USER_SET_DISABLED : 0);
    str_copy(row.id, sizeof(row.id), id);
    if (set & STORE_USER_SET_NAME)
        audit_trail_add_detail(req, "name", row.name);
    if (set & STORE_USER_SET_ROLE)
        audit_trail_add_detail(req, "role", row.role);
    if (set & STORE_USER_SET_DISABLED)
        audit_trail_add_detail(req, "disabled", row.disabled ? "true" : "false");
    if (set)
        auth_user_set(api->settings.auth, gateway_principal(req), &row, set, api_user_on_row, req);
    else
        http_refuse(req, ERR_INVALID, "nothing to change; give name, role or disabled");
}

static void api_user_remove(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "userId", "us", "user");

    if (id)
        auth_user_remove(api->settings.auth, gateway_principal(req), id, clock_real_ms(), api_answer_done, req);
}

/* --- roles --- */

static void api_role_write_json(struct jsonw *w, const char *name, const char *tenant, uint32_t permissions,
                                const struct store_role *own)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "tenant", tenant);
    jsonw_kbool(w, "builtIn", own == NULL);
    jsonw_karray(w, "permissions");
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (permissions & (1u << i))
            jsonw_str(w, scope_name(i));
    jsonw_end_array(w);
    if (own)
        api_write_time(w, "createdAt", own->created_ms);
    jsonw_end_object(w);
}

static void api_role_answer(struct http_req *req, int status, const char *name, const char *tenant,
                            uint32_t permissions, const struct store_role *own)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_role_write_json(&w, name, tenant, permissions, own);
    http_answer_json(req, status, &out);
}

static void api_role_on_row(void *arg, const struct err *err, const struct store_role *row)
{
    if (!http_answer_if_err(arg, err))
        api_role_answer(arg, 200, row->name, row->owner, role_permissions(row->name, row->permissions), row);
}

static void api_role_on_created(void *arg, const struct err *err, const struct store_role *row)
{
    if (http_answer_if_err(arg, err))
        return;
    audit_trail_add_target(arg, "role", row->name);
    audit_trail_add_detail(arg, "permissions", row->permissions);
    audit_trail_add_detail(arg, "tenant", row->owner);
    api_role_answer(arg, 201, row->name, row->owner, role_permissions(row->name, row->permissions), row);
}

static void api_role_create(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "permissions", "tenant", NULL };
    struct api *api = ctx;
    auto_json *body = NULL;
    const char *named = NULL, *name = NULL, *tenant;
    uint32_t permissions = 0;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &body, &err) < 0 ||
        json_input_require_known_fields(body, "", names, &err) < 0 ||
        json_input_text(body, "", "tenant", 1, STORE_NAME_MAX, &named, &err) < 0 ||
        auth_resolve_tenant(gateway_principal(req), named, &tenant, &err) < 0 ||
        json_input_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 ||
        api_read_scopes(body, "permissions", &permissions, &err) < 0) {
        http_answer_err(req, &err);
    } else if (!name || !api_is_valid_slug(name) || !permissions) {
        http_refuse(req, ERR_INVALID,
                    permissions ? "name: must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-'"
                                : "permissions: required; list what the role allows");
    } else {
        auth_role_create(api->settings.auth, gateway_principal(req), tenant, name, permissions, clock_real_ms(),
                         api_role_on_created, req);
    }
}

struct api_role_page {
    struct http_req *req;
    char tenant[STORE_NAME_MAX + 1];
    bool first;
};

static void api_role_on_rows(void *arg, const struct err *err, const struct store_role *rows, size_t n,
                             const char *next)
{
    struct api_role_page *p = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(p->req, err, &w, &out))
        return;
    for (size_t i = 0; p->first && i < role_builtin_count; i++)
        api_role_write_json(&w, role_builtin[i].name, p->tenant, role_builtin[i].permissions, NULL);
    for (size_t i = 0; i < n; i++)
        api_role_write_json(&w, rows[i].name, rows[i].owner, role_permissions(rows[i].name, rows[i].permissions),
                            &rows[i]);
    api_list_end(p->req, &w, next);
}

static void api_role_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    const char *tenant;
    struct err err = { 0 };

    if (api_read_page(req, (const char *const[]){ "tenant", NULL }, &q, &err) < 0 ||
        auth_resolve_tenant(gateway_principal(req), http_query(req, "tenant"), &tenant, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct api_role_page *p = api_request_new(req, struct api_role_page);
    p->req = req;
    p->first = !q.cursor;
    str_copy(p->tenant, sizeof(p->tenant), tenant);
    q.owner = tenant;
    store_role_list(api->settings.store, &q, api_role_on_rows, p);
}

/* Reads the role in the path, and the tenant. False: the request was refused. */
static bool api_role_name_or_refuse(struct http_req *req, const char **ret_name, const char **ret_tenant)
{
    struct err err = { 0 };

    *ret_name = http_param(req, "role");
    if (api_user_read_tenant(req, ret_tenant, &err) == 0) {
        if (api_is_valid_slug(*ret_name))
            return true;
        err_set(&err, ERR_MISSING, "there is no such role");
    }
    http_answer_err(req, &err);
    return false;
}

static void api_role_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name, *tenant;

    if (!api_role_name_or_refuse(req, &name, &tenant))
        return;
    const struct role_info *r = role_find(name);
    if (r)
        api_role_answer(req, 200, r->name, tenant, r->permissions, NULL);
    else
        store_role_get(api->settings.store, tenant, name, api_role_on_row, req);
}

static void api_role_remove(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name, *tenant;

    if (!api_role_name_or_refuse(req, &name, &tenant))
        return;
    audit_trail_add_detail(req, "tenant", tenant);
    auth_role_remove(api->settings.auth, gateway_principal(req), tenant, name, api_answer_done, req);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route user_routes[] = {
    { "POST", "/v1/users", api_user_create, JSON_BODY, &permission_tenant },
    { "GET", "/v1/users", api_user_list, HTTP_BODY_NONE, .data = &permission_tenant },
    { "GET", "/v1/users/{userId}", api_user_get, HTTP_BODY_NONE, .data = &permission_tenant },
    { "PATCH", "/v1/users/{userId}", api_user_update, JSON_BODY, &permission_tenant },
    { "DELETE", "/v1/users/{userId}", api_user_remove, HTTP_BODY_NONE, .data = &permission_tenant },
    { "POST", "/v1/roles", api_role_create, JSON_BODY, &permission_tenant },
    { "GET", "/v1/roles", api_role_list, HTTP_BODY_NONE, .data = &permission_tenant },
    { "GET", "/v1/roles/{role}", api_role_get, HTTP_BODY_NONE, .data = &permission_tenant },
    { "DELETE", "/v1/roles/{role}", api_role_remove, HTTP_BODY_NONE, .data = &permission_tenant },
    { 0 },
};
