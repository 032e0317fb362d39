/* /v1/templates: named beginnings of sandboxes, kept as they were written. */
#include "api/inside.h"

#include "api/warm.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/custom.h"
#include "sandbox/shelf.h"

static void forget_values(json_t *env)
{
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe(env, next, name, value) json_object_set_new(env, name, json_string(""));
}

/* Variables may be secrets: of those only the names are told. */
static char *shown_spec(const char *spec_json)
{
    auto_json *spec = NULL;

    if (body_parse(spec_json, strlen(spec_json), &spec, NULL) < 0)
        return str_dup("{}");
    forget_values(json_object_get(spec, "env"));
    forget_values(json_object_get(json_object_get(json_object_get(spec, "policy"), "environment"), "set"));
    char *text = json_dumps(spec, JSON_COMPACT);
    return text ? text : str_dup("{}");
}

static void json_template(const struct store_template *row, struct jsonw *w)
{
    auto_free char *spec = shown_spec(row->spec_json);

    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    jsonw_ku64(w, "generation", row->generation);
    jsonw_kbool(w, "builtin", template_is_builtin(row));
    if (!template_is_builtin(row)) {
        api_time(w, "createdAt", row->created_ms);
        api_time(w, "updatedAt", row->updated_ms);
    }
    api_raw(w, "spec", spec);
    jsonw_end_object(w);
}

static void on_row(void *arg, const struct err *err, const struct store_template *row)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (err) {
        http_answer_err(req, err);
        return;
    }
    jsonw_init(&w, &out, 0);
    json_template(row, &w);
    http_answer_json(req, 200, &out);
}

/* The last page ends with what is built in and not replaced by one of the store, which is asked for each. */
struct listing {
    struct http_req *req;
    struct api *api;
    struct jsonw w;
    struct buf out;
    size_t asked;
};

static void on_rest(void *arg, const struct err *err, const struct store_template *row)
{
    struct listing *l = arg;
    size_t n;
    const struct template_builtin *all = templates_builtin(&n);

    if (!err && row && template_is_builtin(row))
        json_template(row, &l->w);
    if (l->asked < n) {
        template_get(l->api->set.store, all[l->asked++].name, on_rest, l);
        return;
    }
    api_list_end(l->req, &l->w, NULL);
    free(l);
}

static void on_rows(void *arg, const struct err *err, const struct store_template *rows, size_t n, const char *next)
{
    struct listing *l = arg;

    if (!api_list_begin(l->req, err, &l->w, &l->out, "templates")) {
        free(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        json_template(&rows[i], &l->w);
    if (!next) {
        on_rest(l, NULL, NULL);
        return;
    }
    api_list_end(l->req, &l->w, next);
    free(l);
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
    struct listing *l = mem_new(struct listing);
    l->req = req;
    l->api = api;
    store_template_list(api->set.store, &q, on_rows, l);
}

static bool name_ok(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(name);

    return n >= 1 && n <= 63 && strchr(first, name[0]) && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

/* NULL: refused. */
static const char *name_of(struct http_req *req, enum err_id id)
{
    const char *name = http_param(req, "template");
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0) {
        if (name_ok(name))
            return name;
        err_set(&err, id,
                id == ERR_MISSING ? "there is no such template"
                                  : "a template's name has 1 to 63 of a-z, 0-9, '.', '_' and '-'");
    }
    http_answer_err(req, &err);
    return NULL;
}

static void get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = name_of(req, ERR_MISSING);

    if (name)
        template_get(api->set.store, name, on_row, req);
}

static int check(const struct api *api, const json_t *body, char **ret_details, struct err *err)
{
    struct spec spec;

    spec_init(&spec);
    int rc = spec_read(&spec, body, SPEC_OF_TEMPLATE, ret_details, err);
    if (rc == 0)
        rc = custom_floor(&spec, api->set.floor, err);
    if (rc == 0 && !spec.runtime[0])
        str_copy(spec.runtime, sizeof(spec.runtime), "sh"); /* the request may say which; the rest has to fit */
    if (rc == 0)
        rc = spec_finish(&spec, err);
    spec_done(&spec);
    return rc;
}

struct change {
    struct http_req *req;
    struct api *api;
    char name[STORE_NAME_MAX + 1];
};

static struct change *change_new(struct http_req *req, struct api *api, const char *name)
{
    struct change *c = mem_new(struct change);

    c->req = req;
    c->api = api;
    str_copy(c->name, sizeof(c->name), name);
    return c;
}

static void on_put(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct change *c = arg;

    shelf_drop(c->api->shelf, c->name);
    if (!err)
        warm_template(c->api->warm, row->name);
    on_row(c->req, err, row);
}

static void put(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = name_of(req, ERR_INVALID);
    auto_json *body = NULL;
    auto_free char *details = NULL;
    struct store_template row = { 0 };
    struct err err = { 0 };

    if (!name)
        return;
    if (api_body(req, &body, &err) < 0 || check(api, body, &details, &err) < 0) {
        http_answer_err_with(req, &err, details);
        return;
    }
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    str_copy(row.name, sizeof(row.name), name);
    row.spec_json = text;
    row.created_ms = row.updated_ms = clock_real_ns() / NS_PER_MS;
    store_template_put(api->set.store, &row, NULL, on_put, change_new(req, api, name));
}

static void on_deleted(void *arg, const struct err *err)
{
    auto_free struct change *c = arg;

    shelf_drop(c->api->shelf, c->name);
    if (err && err->id == ERR_MISSING && template_builtin(c->name)) {
        struct err why = { 0 };

        err_set(&why, ERR_EXISTS, "the template %s is built in and cannot be deleted; PUT puts yours in its place",
                c->name);
        http_answer_err(c->req, &why);
        return;
    }
    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    warm_template(c->api->warm, c->name); /* it may have stood for one that is built in */
    http_answer_empty(c->req, 204);
}

static void delete_(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = name_of(req, ERR_MISSING);

    if (name)
        store_template_delete(api->set.store, name, NULL, on_deleted, change_new(req, api, name));
}

const struct http_route template_routes[] = {
    { "GET", "/v1/templates", list, HTTP_BODY_NONE, .data = &api_read },
    { "GET", "/v1/templates/{template}", get, HTTP_BODY_NONE, .data = &api_read },
    { "GET", "/v1/profiles", list, HTTP_BODY_NONE, .data = &api_read }, /* the same under another name */
    { "GET", "/v1/profiles/{template}", get, HTTP_BODY_NONE, .data = &api_read },
    { "PUT", "/v1/templates/{template}", put, HTTP_BODY_BUFFERED, 256 * KIB, "application/json", &api_admin },
    { "DELETE", "/v1/templates/{template}", delete_, HTTP_BODY_NONE, .data = &api_admin },
    { 0 },
};
