/* /v1/tenants for the operator, and /v1/tenant, which everybody in one sees of their own. */
#include "api/inside.h"

#include "auth/members.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

static uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

bool api_slug_ok(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(name);

    return n >= 1 && n <= 63 && strchr(first, name[0]) && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

/* --- answers --- */

static void write_tenant(struct api *api, const struct store_tenant *row, struct jsonw *w)
{
    uint64_t used[STORE_QUOTA_COUNT];

    manager_tenant_use(api->set.manager, row->name, used);
    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    api_time(w, "createdAt", row->created_ms);
    jsonw_kbool(w, "suspended", row->suspended_ms != 0);
    api_time(w, "suspendedAt", row->suspended_ms);
    api_time(w, "removedAt", row->removed_ms);
    jsonw_key(w, "quota");
    jsonw_object(w);
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        if (row->quota[i])
            jsonw_ku64(w, share_quota_names[i], row->quota[i]);
    jsonw_end_object(w);
    jsonw_key(w, "used");
    jsonw_object(w);
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        jsonw_ku64(w, share_quota_names[i], used[i]);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void answer_tenant(struct http_req *req, struct api *api, int status, const struct store_tenant *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    write_tenant(api, row, &w);
    http_answer_json(req, status, &out);
}

/* --- requests --- */

struct change {
    struct http_req *req;
    struct api *api;
    struct store_tenant row;
    uint32_t set;
};

static struct change *change_new(struct http_req *req, struct api *api)
{
    struct change *c = mem_new(struct change);

    c->req = req;
    c->api = api;
    return c;
}

static void refuse(struct change *c, const struct err *err)
{
    http_answer_err(c->req, err);
    free(c);
}

/* null takes a bound away; what is not named stays. */
static int read_quota(const json_t *body, struct change *c, struct err *err)
{
    const char *names[STORE_QUOTA_COUNT + 1] = { NULL };
    json_t *quota = NULL;

    memcpy(names, share_quota_names, sizeof(share_quota_names));
    if (body_object(body, "", "quota", &quota, err) < 0 || (quota && body_only(quota, "quota.", names, err) < 0))
        return -1;
    for (size_t i = 0; quota && i < STORE_QUOTA_COUNT; i++) {
        const json_t *v = json_object_get(quota, names[i]);

        if (!v)
            continue;
        c->set |= STORE_TENANT_SET_QUOTA(i);
        if (json_is_null(v))
            c->row.quota[i] = 0;
        else if (body_u64(quota, "quota.", names[i], 1, 1ull << 60, &c->row.quota[i], NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* The tenant of the path. NULL: refused. */
static const char *name_of(struct http_req *req)
{
    const char *name = http_param(req, "tenant");
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0) {
        if (store_owner_valid(name) && strlen(name) <= STORE_NAME_MAX)
            return name;
        err_set(&err, ERR_MISSING, "there is no such tenant");
    }
    http_answer_err(req, &err);
    return NULL;
}

/* --- create --- */

static void on_created(void *arg, const struct err *err)
{
    auto_free struct change *c = arg;

    if (err && err->id == ERR_EXISTS) {
        struct err why;

        err_set(&why, ERR_EXISTS, "name: there is a tenant '%s', or there was; names are not used again", c->row.name);
        http_answer_err(c->req, &why);
    } else if (err) {
        http_answer_err(c->req, err);
    } else {
        auto_free char *path = str_printf("/v1/tenants/%s", c->row.name);

        api_audit_target(c->req, "tenant", c->row.name);
        manager_tenant(c->api->set.manager, &c->row);
        http_set_header(c->req, "Location", path);
        answer_tenant(c->req, c->api, 201, &c->row);
    }
}

static void record_quota(const struct change *c)
{
    for (size_t i = 0; i < STORE_QUOTA_COUNT; i++)
        if (c->set & STORE_TENANT_SET_QUOTA(i))
            api_audit_number(c->req, share_quota_names[i], c->row.quota[i]);
}

static void create(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "name", "quota", NULL };
    struct change *c = change_new(req, ctx);
    auto_json *body = NULL;
    const char *name = NULL;
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0 || api_body(req, &body, &err) < 0 || body_only(body, "", names, &err) < 0 ||
        body_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 || read_quota(body, c, &err) < 0) {
        refuse(c, &err);
    } else if (!name || !api_slug_ok(name)) {
        err_set(&err, ERR_INVALID, "name: a tenant's name has 1 to 63 of a-z, 0-9, '.', '_' and '-'");
        refuse(c, &err);
    } else {
        str_copy(c->row.name, sizeof(c->row.name), name);
        c->row.created_ms = now_ms();
        record_quota(c);
        store_tenant_insert(c->api->set.store, &c->row, on_created, c);
    }
}

/* --- list and get --- */

struct page {
    struct http_req *req;
    struct api *api;
};

static void on_rows(void *arg, const struct err *err, const struct store_tenant *rows, size_t n, const char *next)
{
    auto_free struct page *p = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(p->req, err, &w, &out, "tenants"))
        return;
    for (size_t i = 0; i < n; i++)
        write_tenant(p->api, &rows[i], &w);
    api_list_end(p->req, &w, next);
}

static void list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_page(req, NULL, &q, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct page *p = mem_new(struct page);
    *p = (struct page){ req, api };
    store_tenant_list(api->set.store, &q, on_rows, p);
}

static void on_row(void *arg, const struct err *err, const struct store_tenant *row)
{
    auto_free struct page *p = arg;

    if (err)
        http_answer_err(p->req, err);
    else
        answer_tenant(p->req, p->api, 200, row);
}

static void get_named(struct http_req *req, struct api *api, const char *name)
{
    struct page *p = mem_new(struct page);

    *p = (struct page){ req, api };
    store_tenant_get(api->set.store, name, on_row, p);
}

static void get(struct http_req *req, void *ctx)
{
    const char *name = name_of(req);

    if (name)
        get_named(req, ctx, name);
}

static void get_own(struct http_req *req, void *ctx)
{
    const struct principal *who = api_who(req);
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0 ||
        (!principal_may(who, SCOPE_BIT(TENANT)) && principal_require(who, SCOPE_BIT(SANDBOXES_READ), &err) < 0))
        http_answer_err(req, &err);
    else
        get_named(req, ctx, who->owner);
}

/* --- set --- */

static void on_set(void *arg, const struct err *err, const struct store_tenant *row)
{
    auto_free struct change *c = arg;

    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    manager_tenant(c->api->set.manager, row);
    answer_tenant(c->req, c->api, 200, row);
}

static void on_to_set(void *arg, const struct err *err, const struct store_tenant *row)
{
    struct change *c = arg;
    struct err why = { 0 };

    if (!err && row->removed_ms)
        err = (err_set(&why, ERR_EXISTS, "the tenant %s was removed", row->name), &why);
    if (err) {
        refuse(c, err);
        return;
    }
    if (!c->set) { /* a quota without names in it */
        answer_tenant(c->req, c->api, 200, row);
        free(c);
        return;
    }
    if (row->suspended_ms && c->row.suspended_ms)
        c->row.suspended_ms = row->suspended_ms; /* since then, and not anew */
    auth_tenant_set(c->api->set.auth, &c->row, c->set, on_set, c);
}

static int read_change(const json_t *body, struct change *c, struct err *err)
{
    static const char *const names[] = { "suspended", "quota", NULL };
    bool suspended = false;

    if (body_only(body, "", names, err) < 0 || body_bool(body, "", "suspended", &suspended, err) < 0 ||
        read_quota(body, c, err) < 0)
        return -1;
    if (json_object_get(body, "suspended"))
        c->set |= STORE_TENANT_SET_SUSPENDED;
    c->row.suspended_ms = suspended ? now_ms() : 0;
    if (json_object_size(body) == 0)
        return err_set(err, ERR_INVALID, "say what to change: suspended or quota");
    if (suspended && str_eq(c->row.name, STORE_LOCAL_TENANT))
        return err_set(err, ERR_INVALID, "suspended: the tenant " STORE_LOCAL_TENANT " is the server's own");
    return 0;
}

static void record_and_set(struct change *c)
{
    if (c->set & STORE_TENANT_SET_SUSPENDED)
        api_audit_detail(c->req, "suspended", c->row.suspended_ms ? "true" : "false");
    record_quota(c);
    store_tenant_get(c->api->set.store, c->row.name, on_to_set, c);
}

static void set(struct http_req *req, void *ctx)
{
    const char *name = name_of(req);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!name)
        return;
    struct change *c = change_new(req, ctx);
    str_copy(c->row.name, sizeof(c->row.name), name);
    if (api_body(req, &body, &err) < 0 || read_change(body, c, &err) < 0)
        refuse(c, &err);
    else
        record_and_set(c);
}

/* --- remove --- */

static void on_removed(void *arg, const struct err *err)
{
    auto_free struct change *c = arg;

    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    manager_tenant(c->api->set.manager, &c->row);
    http_answer_empty(c->req, 204);
}

static void remove_(struct http_req *req, void *ctx)
{
    const char *name = name_of(req);

    if (!name)
        return;
    struct change *c = change_new(req, ctx);
    str_copy(c->row.name, sizeof(c->row.name), name);
    c->row.removed_ms = now_ms();
    auth_tenant_remove(c->api->set.auth, name, c->row.removed_ms, on_removed, c);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route tenant_routes[] = {
    { "GET", "/v1/tenant", get_own, HTTP_BODY_NONE, .data = &api_any },
    { "POST", "/v1/tenants", create, JSON_BODY, &api_admin },
    { "GET", "/v1/tenants", list, HTTP_BODY_NONE, .data = &api_admin },
    { "GET", "/v1/tenants/{tenant}", get, HTTP_BODY_NONE, .data = &api_admin },
    { "PATCH", "/v1/tenants/{tenant}", set, JSON_BODY, &api_admin },
    { "DELETE", "/v1/tenants/{tenant}", remove_, HTTP_BODY_NONE, .data = &api_admin },
    { 0 },
};
