/* /v1/tenants, for the operator. Every principal can read its own tenant. */
#include "server/api/api_internal.h"

#include "server/auth/tenant_users.h"
#include "service/tenant_quotas.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

bool api_is_valid_slug(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(name);

    return n >= 1 && n <= 63 && strchr(first, name[0]) && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

int api_check_slug(const char *name, struct err *err)
{
    if (name && api_is_valid_slug(name))
        return 0;
    return err_set(err, ERR_INVALID, "name: must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-'");
}

/* --- responses --- */

static void api_tenant_write_json(struct http_req *req, const struct store_tenant *row, struct jsonw *w)
{
    const struct api *api = http_route_ctx(req);
    uint64_t used[STORE_QUOTA_COUNT];

    tenant_quotas_used(manager_quotas(api->settings.manager), row->name, used);
    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    api_write_time(w, "createdAt", row->created_ms);
    jsonw_kbool(w, "suspended", row->suspended_ms != 0);
    api_write_time(w, "suspendedAt", row->suspended_ms);
    api_write_time(w, "removedAt", row->removed_ms);
    jsonw_kobject(w, "quota");
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        if (row->quota[i])
            jsonw_ku64(w, quota_names[i], row->quota[i]);
    jsonw_end_object(w);
    jsonw_kobject(w, "used");
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        jsonw_ku64(w, quota_names[i], used[i]);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void api_tenant_answer(struct http_req *req, int status, const struct store_tenant *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_tenant_write_json(req, row, &w);
    http_answer_json(req, status, &out);
}

/* --- requests --- */

struct tenant_change {
    struct http_req *req;
    struct api *api;
    struct store_tenant row;
    uint32_t fields_set;
};

static struct tenant_change *tenant_change_new(struct http_req *req, struct api *api, const char *name)
{
    struct tenant_change *c = api_request_new(req, struct tenant_change);

    c->req = req;
    c->api = api;
    str_copy(c->row.name, sizeof(c->row.name), name);
    return c;
}

/* null removes a limit; absent limits stay unchanged. */
static int tenant_change_read_quota(const json_t *body, struct tenant_change *c, struct err *err)
{
    const char *names[STORE_QUOTA_COUNT + 1] = { NULL };
    json_t *quota = NULL;

    memcpy(names, quota_names, sizeof(quota_names));
    if (json_input_object(body, "", "quota", &quota, err) < 0 ||
        (quota && json_input_require_known_fields(quota, "quota.", names, err) < 0))
        return -1;
    for (size_t i = 0; quota && i < STORE_QUOTA_COUNT; i++) {
        const json_t *v = json_object_get(quota, names[i]);

        if (!v)
            continue;
        c->fields_set |= STORE_TENANT_SET_QUOTA(i);
        if (json_is_null(v))
            c->row.quota[i] = 0;
        else if (json_input_u64(quota, "quota.", names[i], 1, 1ull << 60, &c->row.quota[i], NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* Returns the tenant in the path. NULL: the request was refused. */
static const char *api_tenant_name_or_refuse(struct http_req *req)
{
    const char *name = http_param(req, "tenant");
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0) {
        if (store_owner_valid(name) && strlen(name) <= STORE_NAME_MAX)
            return name;
        err_set(&err, ERR_MISSING, "there is no such tenant");
    }
    http_answer_err(req, &err);
    return NULL;
}

/* --- create --- */

static void tenant_change_on_created(void *arg, const struct err *err)
{
    struct tenant_change *c = arg;

    if (err && err->id == ERR_EXISTS) {
        http_refuse(c->req, ERR_EXISTS,
                    "name: a tenant named '%s' exists or existed; choose another name, since names are not reused",
                    c->row.name);
    } else if (err) {
        http_answer_err(c->req, err);
    } else {
        auto_free char *path = str_printf("/v1/tenants/%s", c->row.name);

        audit_trail_add_target(c->req, "tenant", c->row.name);
        tenant_quotas_set(manager_quotas(c->api->settings.manager), &c->row);
        http_set_header(c->req, "Location", path);
        api_tenant_answer(c->req, 201, &c->row);
    }
}

static void tenant_change_record_quota(const struct tenant_change *c)
{
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        if (c->fields_set & STORE_TENANT_SET_QUOTA(i))
            audit_trail_add_number(c->req, quota_names[i], c->row.quota[i]);
}

static void api_tenant_create(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "quota", NULL };
    struct tenant_change *c = tenant_change_new(req, ctx, "");
    auto_json *body = NULL;
    const char *name = NULL;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &body, &err) < 0 ||
        json_input_require_known_fields(body, "", names, &err) < 0 ||
        json_input_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 ||
        tenant_change_read_quota(body, c, &err) < 0 || api_check_slug(name, &err) < 0) {
        http_answer_err(req, &err);
    } else {
        str_copy(c->row.name, sizeof(c->row.name), name);
        c->row.created_ms = clock_real_ms();
        tenant_change_record_quota(c);
        store_tenant_insert(c->api->settings.store, &c->row, tenant_change_on_created, c);
    }
}

/* --- list and get --- */

static void api_tenant_on_rows(void *arg, const struct err *err, const struct store_tenant *rows, size_t n,
                               const char *next)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(arg, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        api_tenant_write_json(arg, &rows[i], &w);
    api_list_end(arg, &w, next);
}

static void api_tenant_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, NULL, &q, &err) < 0)
        http_answer_err(req, &err);
    else
        store_tenant_list(api->settings.store, &q, api_tenant_on_rows, req);
}

static void api_tenant_on_row(void *arg, const struct err *err, const struct store_tenant *row)
{
    if (!http_answer_if_err(arg, err))
        api_tenant_answer(arg, 200, row);
}

/* A tenant other than the own one does not exist for a principal without `admin`. */
static int api_tenant_check_visible(const struct principal *principal, const char *name, struct err *err)
{
    if (principal_has_scopes(principal, SCOPE_BIT(ADMIN)))
        return 0;
    if (!str_eq(principal->owner, name))
        return err_set(err, ERR_MISSING, "there is no tenant '%s' that this credential may read", name);
    return principal_has_scopes(principal, SCOPE_BIT(TENANT))
               ? 0
               : principal_require(principal, SCOPE_BIT(SANDBOXES_READ), err);
}

static void api_tenant_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = api_tenant_name_or_refuse(req);
    struct err err = { 0 };

    if (!name)
        return;
    if (api_tenant_check_visible(gateway_principal(req), name, &err) < 0)
        http_answer_err(req, &err);
    else
        store_tenant_get(api->settings.store, name, api_tenant_on_row, req);
}

/* --- update --- */

static void tenant_change_on_set(void *arg, const struct err *err, const struct store_tenant *row)
{
    struct tenant_change *c = arg;

    if (http_answer_if_err(c->req, err))
        return;
    tenant_quotas_set(manager_quotas(c->api->settings.manager), row);
    api_tenant_answer(c->req, 200, row);
}

static void tenant_change_on_current_row(void *arg, const struct err *err, const struct store_tenant *row)
{
    struct tenant_change *c = arg;
    struct err why = { 0 };

    if (!err && row->removed_ms)
        err = (err_set(&why, ERR_EXISTS, "the tenant %s was removed", row->name), &why);
    if (http_answer_if_err(c->req, err))
        return;
    if (!c->fields_set) { /* a quota object without fields */
        api_tenant_answer(c->req, 200, row);
        return;
    }
    if (row->suspended_ms && c->row.suspended_ms)
        c->row.suspended_ms = row->suspended_ms; /* keeps the time of the first suspension */
    auth_tenant_set(c->api->settings.auth, &c->row, c->fields_set, tenant_change_on_set, c);
}

static int tenant_change_read(const json_t *body, struct tenant_change *c, struct err *err)
{
    static const char *const names[] = { "suspended", "quota", NULL };
    bool suspended = false;

    if (json_input_require_known_fields(body, "", names, err) < 0 ||
        json_input_bool(body, "", "suspended", &suspended, err) < 0 || tenant_change_read_quota(body, c, err) < 0)
        return -1;
    if (json_object_get(body, "suspended"))
        c->fields_set |= STORE_TENANT_SET_SUSPENDED;
    c->row.suspended_ms = suspended ? clock_real_ms() : 0;
    if (json_object_size(body) == 0)
        return err_set(err, ERR_INVALID, "nothing to change; give suspended or quota");
    if (suspended && str_eq(c->row.name, STORE_LOCAL_TENANT))
        return err_set(err, ERR_INVALID,
                       "suspended: the server's own tenant " STORE_LOCAL_TENANT " cannot be suspended");
    return 0;
}

static void tenant_change_record_and_set(struct tenant_change *c)
{
    if (c->fields_set & STORE_TENANT_SET_SUSPENDED)
        audit_trail_add_detail(c->req, "suspended", c->row.suspended_ms ? "true" : "false");
    tenant_change_record_quota(c);
    store_tenant_get(c->api->settings.store, c->row.name, tenant_change_on_current_row, c);
}

static void api_tenant_update(struct http_req *req, void *ctx)
{
    const char *name = api_tenant_name_or_refuse(req);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!name)
        return;
    struct tenant_change *c = tenant_change_new(req, ctx, name);
    if (api_read_body(req, &body, &err) < 0 || tenant_change_read(body, c, &err) < 0)
        http_answer_err(req, &err);
    else
        tenant_change_record_and_set(c);
}

/* --- remove --- */

static void tenant_change_on_removed(void *arg, const struct err *err)
{
    struct tenant_change *c = arg;

    if (!err) {
        tenant_quotas_set(manager_quotas(c->api->settings.manager), &c->row);
        secrets_forget_tenant(c->api->settings.secrets, c->row.name);
    }
    api_answer_done(c->req, err);
}

static void api_tenant_remove(struct http_req *req, void *ctx)
{
    const char *name = api_tenant_name_or_refuse(req);

    if (!name)
        return;
    struct tenant_change *c = tenant_change_new(req, ctx, name);
    c->row.removed_ms = clock_real_ms();
    auth_tenant_remove(c->api->settings.auth, name, c->row.removed_ms, tenant_change_on_removed, c);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route tenant_routes[] = {
    { "POST", "/v1/tenants", api_tenant_create, JSON_BODY, &permission_admin },
    { "GET", "/v1/tenants", api_tenant_list, HTTP_BODY_NONE, .data = &permission_admin },
    { "GET", "/v1/tenants/{tenant}", api_tenant_get, HTTP_BODY_NONE, .data = &permission_authenticated },
    { "PATCH", "/v1/tenants/{tenant}", api_tenant_update, JSON_BODY, &permission_admin },
    { "DELETE", "/v1/tenants/{tenant}", api_tenant_remove, HTTP_BODY_NONE, .data = &permission_admin },
    { 0 },
};
