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
static void api_template_list_modules(struct http_req *req, struct api *api, host_modules_fn *then)
{
    host_modules_get(api->host_modules, NULL, ev_now(api->settings.ev), then, req);
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

static void api_template_on_row(void *arg, const struct err *err, const struct store_template *row)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (http_answer_if_err(req, err))
        return;
    jsonw_init(&w, &out, 0);
    api_template_write_json(http_route_ctx(req), row, &w);
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
}

static void api_template_on_rows(void *arg, const struct err *err, const struct store_template *rows, size_t n,
                                 const char *next)
{
    struct template_list_query *l = arg;

    if (!api_list_begin(l->req, err, &l->w, &l->out))
        return;
    for (size_t i = 0; i < n; i++)
        api_template_write_json(l->api, &rows[i], &l->w);
    if (next)
        api_list_end(l->req, &l->w, next);
    else
        api_template_on_builtin(l, NULL, NULL);
}

static void api_template_list_rows(void *arg, const struct python_modules *modules UNUSED)
{
    struct http_req *req = arg;
    struct api *api = http_route_ctx(req);
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, NULL, &q, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct template_list_query *l = api_request_new(req, struct template_list_query);
    l->req = req;
    l->api = api;
    store_template_list(api->settings.store, &q, api_template_on_rows, l);
}

static void api_template_list(struct http_req *req, void *ctx)
{
    api_template_list_modules(req, ctx, api_template_list_rows);
}

/* NULL: the request was refused. */
static const char *api_template_name_or_refuse(struct http_req *req, enum err_id id)
{
    const char *name = http_param(req, "template");
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0) {
        if (api_is_valid_slug(name))
            return name;
        err_set(&err, id,
                id == ERR_MISSING ? "there is no such template"
                                  : "a template name must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-'");
    }
    http_answer_err(req, &err);
    return NULL;
}

static void api_template_get_row(void *arg, const struct python_modules *modules UNUSED)
{
    struct http_req *req = arg;
    struct api *api = http_route_ctx(req);
    const char *name = api_template_name_or_refuse(req, ERR_MISSING);

    if (name)
        template_get(api->settings.store, name, api_template_on_row, req);
}

static void api_template_get(struct http_req *req, void *ctx)
{
    api_template_list_modules(req, ctx, api_template_get_row);
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

static void api_template_on_put(void *arg, const struct err *err, const struct store_template *row)
{
    struct api *api = http_route_ctx(arg);

    template_cache_invalidate(api->template_cache, http_param(arg, "template"));
    if (!err)
        pool_registry_template_changed(api->pool_registry, row->name);
    api_template_on_row(arg, err, row);
}

static void api_template_put_row(void *arg, const struct python_modules *modules UNUSED)
{
    struct http_req *req = arg;
    struct api *api = http_route_ctx(req);
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
    store_template_put(api->settings.store, &row, NULL, api_template_on_put, req);
}

static void api_template_put(struct http_req *req, void *ctx)
{
    api_template_list_modules(req, ctx, api_template_put_row);
}

static void api_template_on_deleted(void *arg, const struct err *err)
{
    struct api *api = http_route_ctx(arg);
    const char *name = http_param(arg, "template");

    template_cache_invalidate(api->template_cache, name);
    if (!err) /* a built-in template of that name may take effect again */
        pool_registry_template_changed(api->pool_registry, name);
    if (err && err->id == ERR_MISSING && template_name_is_builtin(name))
        http_refuse(arg, ERR_EXISTS, "the template %s is built in and cannot be deleted; use PUT to replace it", name);
    else
        api_answer_done(arg, err);
}

static void api_template_delete(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = api_template_name_or_refuse(req, ERR_MISSING);

    if (name)
        store_template_delete(api->settings.store, name, NULL, api_template_on_deleted, req);
}

const struct http_route template_routes[] = {
    { "GET", "/v1/templates", api_template_list, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/v1/templates/{template}", api_template_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/compat/v1/profiles", api_template_list, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read }, /* the same under another name */
    { "GET", "/compat/v1/profiles/{template}", api_template_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "PUT", "/v1/templates/{template}", api_template_put, HTTP_BODY_BUFFERED, 256 * KIB, "application/json",
      &permission_admin },
    { "DELETE", "/v1/templates/{template}", api_template_delete, HTTP_BODY_NONE, .data = &permission_admin },
    { 0 },
};
