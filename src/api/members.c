/* /v1/users and /v1/roles: those of one's own tenant; the operator may name another. */
#include "api/inside.h"

#include "auth/members.h"
#include "auth/role.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

static uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

/* ?tenant= of the operator, or one's own. */
static int tenant_of(struct http_req *req, const char **ret, struct err *err)
{
    if (http_query_only(req, (const char *const[]){ "tenant", NULL }, err) < 0)
        return -1;
    return auth_tenant_of(api_who(req), http_query(req, "tenant"), ret, err);
}

static void on_done(void *arg, const struct err *err)
{
    if (err)
        http_answer_err(arg, err);
    else
        http_answer_empty(arg, 204);
}

/* --- users --- */

static void write_user(const struct store_user *row, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", row->id);
    jsonw_kstr(w, "name", row->name);
    jsonw_kstr(w, "tenant", row->owner);
    jsonw_kstr(w, "role", row->role);
    jsonw_kbool(w, "disabled", row->disabled);
    api_time(w, "createdAt", row->created_ms);
    jsonw_end_object(w);
}

static void answer_user(struct http_req *req, int status, const struct err *err, const struct store_user *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (err) {
        http_answer_err(req, err);
        return;
    }
    jsonw_init(&w, &out, 0);
    write_user(row, &w);
    http_answer_json(req, status, &out);
}

static void on_user(void *arg, const struct err *err, const struct store_user *row)
{
    answer_user(arg, 200, err, row);
}

static void on_user_created(void *arg, const struct err *err, const struct store_user *row)
{
    if (!err) {
        api_audit_target(arg, "user", row->id);
        api_audit_detail(arg, "name", row->name);
        api_audit_detail(arg, "role", row->role);
        api_audit_detail(arg, "tenant", row->owner);
    }
    answer_user(arg, 201, err, row);
}

/* Names that a person can tell apart: nothing but letters, digits and what stands in addresses. */
static int read_name(const json_t *body, struct store_user *row, struct err *err)
{
    const char *name = NULL;

    if (body_text(body, "", "name", 1, STORE_NAME_MAX, &name, err) < 0)
        return -1;
    if (name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-") != strlen(name))
        return err_set(err, ERR_INVALID, "name: it has letters, digits, '.', '_', '@', '+' and '-'");
    if (name)
        str_copy(row->name, sizeof(row->name), name);
    return 0;
}

static int read_role(const json_t *body, struct store_user *row, struct err *err)
{
    const char *role = NULL;

    if (body_text(body, "", "role", 1, STORE_NAME_MAX, &role, err) < 0)
        return -1;
    if (role && !api_slug_ok(role))
        return err_set(err, ERR_MISSING, "role: there is no such role");
    if (role)
        str_copy(row->role, sizeof(row->role), role);
    return 0;
}

static void create_user(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "role", "tenant", NULL };
    struct api *api = ctx;
    auto_json *body = NULL;
    struct store_user row = { .created_ms = now_ms() };
    const char *named = NULL, *tenant;
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0 || api_body(req, &body, &err) < 0 || body_only(body, "", names, &err) < 0 ||
        body_text(body, "", "tenant", 1, STORE_NAME_MAX, &named, &err) < 0 ||
        auth_tenant_of(api_who(req), named, &tenant, &err) < 0 || read_name(body, &row, &err) < 0 ||
        read_role(body, &row, &err) < 0) {
        http_answer_err(req, &err);
    } else if (!row.name[0] || !row.role[0]) {
        err_set(&err, ERR_INVALID, "%s: say %s", row.name[0] ? "role" : "name",
                row.name[0] ? "what the user may do" : "who it is");
        http_answer_err(req, &err);
    } else {
        str_copy(row.owner, sizeof(row.owner), tenant);
        auth_user_create(api->set.auth, api_who(req), &row, on_user_created, req);
    }
}

static void on_users(void *arg, const struct err *err, const struct store_user *rows, size_t n, const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out, "users"))
        return;
    for (size_t i = 0; i < n; i++)
        write_user(&rows[i], &w);
    api_list_end(req, &w, next);
}

static void list_users(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    const char *named = http_query(req, "tenant"), *tenant;
    struct err err = { 0 };

    if (api_page(req, (const char *const[]){ "tenant", NULL }, &q, &err) < 0 ||
        auth_tenant_of(api_who(req), named, &tenant, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    if (named)
        q.owner = tenant;
    store_user_list(api->set.store, &q, on_users, req);
}

static const char *user_id(struct http_req *req)
{
    const char *id = http_param(req, "userId");
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0) {
        if (id_valid(id, "us"))
            return id;
        err_set(&err, ERR_MISSING, "there is no such user");
    }
    http_answer_err(req, &err);
    return NULL;
}

static void get_user(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = user_id(req);

    if (id)
        store_user_get(api->set.store, api_sees(req), id, on_user, req);
}

static void set_user(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "role", "disabled", NULL };
    struct api *api = ctx;
    const char *id = user_id(req);
    auto_json *body = NULL;
    struct store_user row = { 0 };
    struct err err = { 0 };

    if (!id)
        return;
    if (api_body(req, &body, &err) < 0 || body_only(body, "", names, &err) < 0 || read_name(body, &row, &err) < 0 ||
        read_role(body, &row, &err) < 0 || body_bool(body, "", "disabled", &row.disabled, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    uint32_t set = (row.name[0] ? STORE_USER_SET_NAME : 0) | (row.role[0] ? STORE_USER_SET_ROLE : 0) |
                   (json_object_get(body, "disabled") ? STORE_USER_SET_DISABLED : 0);
    str_copy(row.id, sizeof(row.id), id);
    if (set & STORE_USER_SET_NAME)
        api_audit_detail(req, "name", row.name);
    if (set & STORE_USER_SET_ROLE)
        api_audit_detail(req, "role", row.role);
    if (set & STORE_USER_SET_DISABLED)
        api_audit_detail(req, "disabled", row.disabled ? "true" : "false");
    if (set) {
        auth_user_set(api->set.auth, api_who(req), &row, set, on_user, req);
    } else {
        err_set(&err, ERR_INVALID, "say what to change: name, role or disabled");
        http_answer_err(req, &err);
    }
}

static void remove_user(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = user_id(req);

    if (id)
        auth_user_remove(api->set.auth, api_who(req), id, now_ms(), on_done, req);
}

/* --- roles --- */

static void write_role(struct jsonw *w, const char *name, const char *tenant, uint32_t permissions,
                       const struct store_role *own)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "tenant", tenant);
    jsonw_kbool(w, "builtIn", own == NULL);
    jsonw_key(w, "permissions");
    jsonw_array(w);
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (permissions & (1u << i))
            jsonw_str(w, scope_name(i));
    jsonw_end_array(w);
    if (own)
        api_time(w, "createdAt", own->created_ms);
    jsonw_end_object(w);
}

static void answer_role(struct http_req *req, int status, const char *name, const char *tenant, uint32_t permissions,
                        const struct store_role *own)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    write_role(&w, name, tenant, permissions, own);
    http_answer_json(req, status, &out);
}

static void on_role(void *arg, const struct err *err, const struct store_role *row)
{
    if (err)
        http_answer_err(arg, err);
    else
        answer_role(arg, 200, row->name, row->owner, role_permissions(row->name, row->permissions), row);
}

static void on_role_created(void *arg, const struct err *err, const struct store_role *row)
{
    if (err) {
        http_answer_err(arg, err);
        return;
    }
    api_audit_target(arg, "role", row->name);
    api_audit_detail(arg, "permissions", row->permissions);
    api_audit_detail(arg, "tenant", row->owner);
    answer_role(arg, 201, row->name, row->owner, role_permissions(row->name, row->permissions), row);
}

static void create_role(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "permissions", "tenant", NULL };
    struct api *api = ctx;
    auto_json *body = NULL;
    const char *named = NULL, *name = NULL, *tenant;
    uint32_t permissions = 0;
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0 || api_body(req, &body, &err) < 0 || body_only(body, "", names, &err) < 0 ||
        body_text(body, "", "tenant", 1, STORE_NAME_MAX, &named, &err) < 0 ||
        auth_tenant_of(api_who(req), named, &tenant, &err) < 0 ||
        body_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 ||
        api_scopes(body, "permissions", &permissions, &err) < 0) {
        http_answer_err(req, &err);
    } else if (!name || !api_slug_ok(name) || !permissions) {
        err_set(&err, ERR_INVALID,
                permissions ? "name: a role's name has 1 to 63 of a-z, 0-9, '.', '_' and '-'"
                            : "permissions: say what the role allows");
        http_answer_err(req, &err);
    } else {
        auth_role_create(api->set.auth, api_who(req), tenant, name, permissions, now_ms(), on_role_created, req);
    }
}

struct role_page {
    struct http_req *req;
    char tenant[STORE_NAME_MAX + 1];
    bool first;
};

static void on_roles(void *arg, const struct err *err, const struct store_role *rows, size_t n, const char *next)
{
    auto_free struct role_page *p = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(p->req, err, &w, &out, "roles"))
        return;
    for (size_t i = 0; p->first && i < role_builtin_count; i++)
        write_role(&w, role_builtin[i].name, p->tenant, role_builtin[i].permissions, NULL);
    for (size_t i = 0; i < n; i++)
        write_role(&w, rows[i].name, rows[i].owner, role_permissions(rows[i].name, rows[i].permissions), &rows[i]);
    api_list_end(p->req, &w, next);
}

static void list_roles(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    const char *tenant;
    struct err err = { 0 };

    if (api_page(req, (const char *const[]){ "tenant", NULL }, &q, &err) < 0 ||
        auth_tenant_of(api_who(req), http_query(req, "tenant"), &tenant, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct role_page *p = mem_new(struct role_page);
    p->req = req;
    p->first = !q.cursor;
    str_copy(p->tenant, sizeof(p->tenant), tenant);
    q.owner = tenant;
    store_role_list(api->set.store, &q, on_roles, p);
}

/* The role of the path and the tenant it is asked for in. False: refused. */
static bool role_of(struct http_req *req, const char **ret_name, const char **ret_tenant)
{
    struct err err = { 0 };

    *ret_name = http_param(req, "role");
    if (tenant_of(req, ret_tenant, &err) == 0) {
        if (api_slug_ok(*ret_name))
            return true;
        err_set(&err, ERR_MISSING, "there is no such role");
    }
    http_answer_err(req, &err);
    return false;
}

static void get_role(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name, *tenant;

    if (!role_of(req, &name, &tenant))
        return;
    const struct role_info *r = role_find(name);
    if (r)
        answer_role(req, 200, r->name, tenant, r->permissions, NULL);
    else
        store_role_get(api->set.store, tenant, name, on_role, req);
}

static void remove_role(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name, *tenant;

    if (!role_of(req, &name, &tenant))
        return;
    api_audit_detail(req, "tenant", tenant);
    auth_role_remove(api->set.auth, api_who(req), tenant, name, on_done, req);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route member_routes[] = {
    { "POST", "/v1/users", create_user, JSON_BODY, &api_tenant },
    { "GET", "/v1/users", list_users, HTTP_BODY_NONE, .data = &api_tenant },
    { "GET", "/v1/users/{userId}", get_user, HTTP_BODY_NONE, .data = &api_tenant },
    { "PATCH", "/v1/users/{userId}", set_user, JSON_BODY, &api_tenant },
    { "DELETE", "/v1/users/{userId}", remove_user, HTTP_BODY_NONE, .data = &api_tenant },
    { "POST", "/v1/roles", create_role, JSON_BODY, &api_tenant },
    { "GET", "/v1/roles", list_roles, HTTP_BODY_NONE, .data = &api_tenant },
    { "GET", "/v1/roles/{role}", get_role, HTTP_BODY_NONE, .data = &api_tenant },
    { "DELETE", "/v1/roles/{role}", remove_role, HTTP_BODY_NONE, .data = &api_tenant },
    { 0 },
};
