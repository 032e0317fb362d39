/* /v1/templates: named specifications of sandboxes, stored as they were written. */
#include "server/api/api_internal.h"

#include "server/api/pool_registry.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/host_modules.h"
#include "service/template_cache.h"
#include "service/template_check.h"

static void api_template_blank_values(json_t *env)
{
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe(env, next, name, value) json_object_set_new(env, name, json_string(""));
}

/* Environment variables may hold secrets: responses contain only their names. */
static char *api_template_redacted_spec(const char *spec_json)
{
    auto_json *spec = NULL;

    if (json_input_parse(spec_json, strlen(spec_json), &spec, NULL) < 0)
        return str_dup("{}");
    api_template_blank_values(json_object_get(spec, "env"));
    api_template_blank_values(json_object_get(json_object_get(json_object_get(spec, "policy"), "environment"), "set"));
    char *text = json_dumps(spec, JSON_COMPACT);
    return text ? text : str_dup("{}");
}

/* Templates are shown after the modules of the host were listed, with the list that is there
 * then. */
struct template_request {
    struct http_req *req;
    struct api *api;
    void (*handler)(struct http_req *req, struct api *api);
};

static void template_request_on_modules(void *arg, const struct python_modules *modules UNUSED)
{
    auto_free struct template_request *r = arg;

    r->handler(r->req, r->api);
}

static void api_template_handle_with_modules(struct http_req *req, struct api *api,
                                             void (*handler)(struct http_req *req, struct api *api))
{
    struct template_request *r = mem_new(struct template_request);

    *r = (struct template_request){ req, api, handler };
    host_modules_get(api->host_modules, NULL, ev_now(api->settings.ev), template_request_on_modules, r);
}

/* --- one and all --- */

static void api_template_write_json(struct api *api, const struct store_template *row, struct jsonw *w)
{
    auto_free char *spec = api_template_redacted_spec(row->spec_json);

    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    jsonw_ku64(w, "generation", row->generation);
    jsonw_kbool(w, "builtin", template_is_builtin(row));
    if (!template_is_builtin(row)) {
        api_write_time(w, "createdAt", row->created_ms);
        api_write_time(w, "updatedAt", row->updated_ms);
    }
    template_check_write_json(api->host_modules, row->spec_json, w);
    api_write_raw_json(w, "spec", spec);
    jsonw_end_object(w);
}

static void api_template_answer(struct http_req *req, struct api *api, const struct err *err,
                                const struct store_template *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (err) {
        http_answer_err(req, err);
        return;
    }
    jsonw_init(&w, &out, 0);
    api_template_write_json(api, row, &w);
    http_answer_json(req, 200, &out);
}

/* The last page ends with the built-in templates that no stored template replaces; the store is
 * queried for each. */
struct template_list_query {
    struct http_req *req;
    struct api *api;
    struct jsonw w;
    struct buf out;
    size_t nbuiltin_queried;
};

static void api_template_on_builtin(void *arg, const struct err *err, const struct store_template *row)
{
    struct template_list_query *l = arg;
    const char *name;

    if (!err && row && template_is_builtin(row))
        api_template_write_json(l->api, row, &l->w);
    if ((name = template_builtin_name(l->nbuiltin_queried++)) != NULL) {
        template_get(l->api->settings.store, name, api_template_on_builtin, l);
        return;
    }
    api_list_end(l->req, &l->w, NULL);
    free(l);
}

static void api_template_on_rows(void *arg, const struct err *err, const struct store_template *rows, size_t n,
                                 const char *next)
{
    struct template_list_query *l = arg;

    if (!api_list_begin(l->req, err, &l->w, &l->out, "templates")) {
        free(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        api_template_write_json(l->api, &rows[i], &l->w);
    if (!next) {
        api_template_on_builtin(l, NULL, NULL);
        return;
    }
    api_list_end(l->req, &l->w, next);
    free(l);
}

static void api_template_list_rows(struct http_req *req, struct api *api)
{
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, NULL, &q, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct template_list_query *l = mem_new(struct template_list_query);
    l->req = req;
    l->api = api;
    store_template_list(api->settings.store, &q, api_template_on_rows, l);
}

static void api_template_list(struct http_req *req, void *ctx)
{
    api_template_handle_with_modules(req, ctx, api_template_list_rows);
}

static bool api_template_name_is_valid(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(name);

    return n >= 1 && n <= 63 && strchr(first, name[0]) && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

/* NULL: the request was refused. */
static const char *api_template_name_or_refuse(struct http_req *req, enum err_id id)
{
    const char *name = http_param(req, "template");
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0) {
        if (api_template_name_is_valid(name))
            return name;
        err_set(&err, id,
                id == ERR_MISSING ? "there is no such template"
                                  : "a template name must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-'");
    }
    http_answer_err(req, &err);
    return NULL;
}

struct template_query {
    struct http_req *req;
    struct api *api;
    char name[STORE_NAME_MAX + 1];
};

static struct template_query *template_query_new(struct http_req *req, struct api *api, const char *name)
{
    struct template_query *c = mem_new(struct template_query);

    c->req = req;
    c->api = api;
    str_copy(c->name, sizeof(c->name), name);
    return c;
}

static void api_template_on_row(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct template_query *c = arg;

    api_template_answer(c->req, c->api, err, row);
}

static void api_template_get_row(struct http_req *req, struct api *api)
{
    const char *name = api_template_name_or_refuse(req, ERR_MISSING);

    if (name)
        template_get(api->settings.store, name, api_template_on_row, template_query_new(req, api, name));
}

static void api_template_get(struct http_req *req, void *ctx)
{
    api_template_handle_with_modules(req, ctx, api_template_get_row);
}

static int api_template_check_spec(const struct api *api, const json_t *body, char **ret_details, struct err *err)
{
    struct spec spec;

    spec_init(&spec);
    int rc = spec_read(&spec, body, SPEC_OF_TEMPLATE, ret_details, err);
    if (rc == 0)
        rc = custom_policy_apply_operator_limits(&spec, api->settings.operator_limits, err);
    if (rc == 0 && !spec.runtime[0])
        str_copy(spec.runtime, sizeof(spec.runtime), "sh"); /* a request sets it; all other fields are checked now */
    if (rc == 0)
        rc = spec_finish(&spec, err);
    spec_done(&spec);
    return rc;
}

static void template_query_on_put(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct template_query *c = arg;

    template_cache_invalidate(c->api->template_cache, c->name);
    if (!err)
        pool_registry_template_changed(c->api->pool_registry, row->name);
    api_template_answer(c->req, c->api, err, row);
}

static void api_template_put_row(struct http_req *req, struct api *api)
{
    const char *name = api_template_name_or_refuse(req, ERR_INVALID);
    auto_json *body = NULL;
    auto_free char *details = NULL;
    struct store_template row = { 0 };
    struct err err = { 0 };

    if (!name)
        return;
    if (api_read_body(req, &body, &err) < 0 || api_template_check_spec(api, body, &details, &err) < 0) {
        http_answer_err_with(req, &err, details);
        return;
    }
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    str_copy(row.name, sizeof(row.name), name);
    row.spec_json = text;
    row.created_ms = row.updated_ms = clock_real_ms();
    store_template_put(api->settings.store, &row, NULL, template_query_on_put, template_query_new(req, api, name));
}

static void api_template_put(struct http_req *req, void *ctx)
{
    api_template_handle_with_modules(req, ctx, api_template_put_row);
}

static void template_query_on_deleted(void *arg, const struct err *err)
{
    auto_free struct template_query *c = arg;

    template_cache_invalidate(c->api->template_cache, c->name);
    if (err && err->id == ERR_MISSING && template_name_is_builtin(c->name)) {
        struct err why = { 0 };

        err_set(&why, ERR_EXISTS, "the template %s is built in and cannot be deleted; use PUT to replace it", c->name);
        http_answer_err(c->req, &why);
        return;
    }
    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    /* A built-in template of that name may take effect again. */
    pool_registry_template_changed(c->api->pool_registry, c->name);
    http_answer_empty(c->req, 204);
}

static void api_template_delete(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = api_template_name_or_refuse(req, ERR_MISSING);

    if (name)
        store_template_delete(api->settings.store, name, NULL, template_query_on_deleted,
                              template_query_new(req, api, name));
}

const struct http_route template_routes[] = {
    { "GET", "/v1/templates", api_template_list, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/v1/templates/{template}", api_template_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/v1/profiles", api_template_list, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read }, /* the same under another name */
    { "GET", "/v1/profiles/{template}", api_template_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "PUT", "/v1/templates/{template}", api_template_put, HTTP_BODY_BUFFERED, 256 * KIB, "application/json",
      &permission_admin },
    { "DELETE", "/v1/templates/{template}", api_template_delete, HTTP_BODY_NONE, .data = &permission_admin },
    { 0 },
};
