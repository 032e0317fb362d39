/* /v1/secrets: values that the egress proxy adds to requests of the tenant's sandboxes. A response
 * never holds a value. */
#include "server/api/api_internal.h"

#include "core/base/metrics.h"
#include "core/base/str.h"
#include "service/secrets.h"

static void api_secret_write_hosts(const char *hosts, struct jsonw *w)
{
    auto_free char *text = str_dup(hosts ? hosts : "");
    char *rest = NULL;

    for (char *host = strtok_r(text, " ", &rest); host; host = strtok_r(NULL, " ", &rest))
        jsonw_str(w, host);
}

static void api_secret_write(const struct store_secret *row, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    jsonw_karray(w, "hosts");
    api_secret_write_hosts(row->hosts, w);
    jsonw_end_array(w);
    jsonw_ku64(w, "generation", row->generation);
    jsonw_ku64(w, "uses", row->uses);
    api_write_time(w, "createdAt", row->created_ms);
    api_write_time(w, "updatedAt", row->updated_ms);
    if (row->last_used_ms)
        api_write_time(w, "lastUsedAt", row->last_used_ms);
    jsonw_kstr_if(w, "createdBy", row->created_by);
    jsonw_end_object(w);
}

static void api_secret_answer(struct http_req *req, int status, const struct store_secret *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_secret_write(row, &w);
    http_answer_json(req, status, &out);
}

static void api_secret_on_rows(void *arg, const struct err *err, const struct store_secret *rows, size_t n,
                               const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        api_secret_write(&rows[i], &w);
    api_list_end(req, &w, next);
}

static void api_secret_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, NULL, &q, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    q.owner = gateway_tenant(req); /* a secret belongs to one tenant, also for the operator */
    store_secret_list(api->settings.store, &q, api_secret_on_rows, req);
}

static void api_secret_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *name = http_param(req, "secret");
    struct err err = { 0 };

    if (!api_has_no_query(req))
        return;
    const struct store_secret *row = secrets_find(api->settings.secrets, gateway_tenant(req), name);
    if (row) {
        api_secret_answer(req, 200, row);
        return;
    }
    err_set(&err, ERR_SECRET_MISSING, "there is no secret '%.64s'; GET /v1/secrets lists the secrets", name);
    err_sanitize(&err);
    http_answer_err(req, &err);
}

static void api_secret_on_put(void *arg, const struct err *err, const struct store_secret *row, bool is_new)
{
    struct http_req *req = arg;

    if (!http_answer_if_err(req, err))
        api_secret_answer(req, is_new ? 201 : 200, row);
}

/* "hosts" as a list for secrets_put. *ret_given: the field is there. */
static int api_secret_read_hosts(const json_t *body, struct buf *ret, bool *ret_given, struct err *err)
{
    json_t *list = NULL, *host;
    size_t i;

    if (json_input_array(body, "", "hosts", SECRET_HOSTS_MAX, &list, err) < 0)
        return -1;
    *ret_given = list != NULL;
    json_array_foreach(list, i, host)
    {
        if (!json_is_string(host) || strlen(json_string_value(host)) != json_string_length(host))
            return err_set(err, ERR_INVALID, "hosts[%zu]: must be the name of a host", i);
        if (secret_hosts_add(ret, json_string_value(host), err) < 0)
            return -1;
    }
    return 0;
}

static void api_secret_put(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "value", "hosts", NULL };
    struct api *api = ctx;
    auto_json *body = NULL;
    auto_buf hosts = { 0 };
    bool has_hosts = false;
    const char *value = NULL;
    struct err err = { 0 };

    if (!api_has_no_query(req))
        return;
    if (api_read_body(req, &body, &err) < 0 || json_input_require_known_fields(body, "", names, &err) < 0 ||
        json_input_text(body, "", "value", 1, SECRET_VALUE_MAX, &value, &err) < 0 ||
        api_secret_read_hosts(body, &hosts, &has_hosts, &err) < 0 ||
        (!value && err_set(&err, ERR_INVALID, "value: required; it is the secret itself") < 0) ||
        secret_name_check(http_param(req, "secret"), &err) < 0) {
        err_sanitize(&err);
        http_answer_err(req, &err);
        return;
    }
    secrets_put(api->settings.secrets, gateway_tenant(req), http_param(req, "secret"), value,
                !has_hosts   ? NULL
                : hosts.data ? hosts.data
                             : "",
                gateway_actor_id(req), api_secret_on_put, req);
}

static void api_secret_delete(struct http_req *req, void *ctx)
{
    struct api *api = ctx;

    if (api_has_no_query(req))
        secrets_delete(api->settings.secrets, gateway_tenant(req), http_param(req, "secret"), api_answer_done, req);
}

void secrets_write_metrics(const struct api *api, struct buf *out)
{
    struct secrets_stats s;

    secrets_stats(api->settings.secrets, &s);
    metrics_number(out, "secrets", "Secrets of all tenants.", s.count);
    metrics_number(out, "secret_uses_total", "Requests to which the egress proxy added a secret.", s.uses);
}

void secrets_write_capabilities(const struct api *api, struct jsonw *w)
{
    jsonw_kobject(w, "secrets");
    jsonw_ku64(w, "perTenant", secrets_per_tenant(api->settings.secrets));
    jsonw_ku64(w, "maxValueBytes", SECRET_VALUE_MAX);
    jsonw_end_object(w);
}

const struct http_route secret_routes[] = {
    { "GET", "/v1/secrets", api_secret_list, HTTP_BODY_NONE, .data = &permission_secrets },
    { "GET", "/v1/secrets/{secret}", api_secret_get, HTTP_BODY_NONE, .data = &permission_secrets },
    { "PUT", "/v1/secrets/{secret}", api_secret_put, HTTP_BODY_BUFFERED, .body_max = 16 * KIB,
      .accept = "application/json", .data = &permission_secrets },
    { "DELETE", "/v1/secrets/{secret}", api_secret_delete, HTTP_BODY_NONE, .data = &permission_secrets },
    { 0 },
};
