/* Helpers for every resource: ids, paging, and the conversion of rows to JSON. */
#include "server/api/api_internal.h"

#include "server/api/pool_registry.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/host_modules.h"
#include "service/template_cache.h"

#include <stdio.h>

#define CURSOR_MAX 200u

const struct http_route *const api_tables[] = {
    docs_routes,           sandbox_routes,        sandbox_network_routes, execution_routes,
    file_routes,           capability_routes,     template_routes,        key_routes,
    health_metrics_routes, maintenance_routes,    event_routes,           token_routes,
    audit_routes,          sandbox_socket_routes, usage_routes,           tenant_routes,
    user_routes,           budget_routes,         live_usage_routes,      context_routes,
    pool_routes,           execute_routes,        validate_routes,        tool_routes,
    script_routes,         secret_routes,         calculate_routes,       NULL
};

const struct gateway_permission permission_public = { .is_public = true };
const struct gateway_permission permission_authenticated = { 0 };
const struct gateway_permission permission_sandboxes_read = { .scopes = SCOPE_BIT(SANDBOXES_READ) };
const struct gateway_permission permission_sandboxes_write = { .scopes = SCOPE_BIT(SANDBOXES_WRITE) };
const struct gateway_permission permission_sandbox_create = { .scopes = SCOPE_BIT(SANDBOXES_WRITE),
                                                              .class = AUTH_CLASS_CREATE };
const struct gateway_permission permission_execute = { .scopes = SCOPE_BIT(EXECUTIONS), .class = AUTH_CLASS_EXECUTE };
const struct gateway_permission permission_executions = { .scopes = SCOPE_BIT(EXECUTIONS) };
const struct gateway_permission permission_executions_read = { .scopes = SCOPE_BIT(EXECUTIONS_READ) };
const struct gateway_permission permission_executions_list = { .scopes = SCOPE_BIT(EXECUTIONS_READ),
                                                               .allows_sandbox_credential = true };
const struct gateway_permission permission_files = { .scopes = SCOPE_BIT(FILES) };
const struct gateway_permission permission_files_read = { .scopes = SCOPE_BIT(FILES_READ) };
const struct gateway_permission permission_file_download = { .scopes = SCOPE_BIT(FILES_READ),
                                                             .allows_signed_url = true };
const struct gateway_permission permission_file_upload = { .scopes = SCOPE_BIT(FILES), .allows_signed_url = true };
const struct gateway_permission permission_self = { .allows_sandbox_credential = true };
const struct gateway_permission permission_keys = { .scopes = SCOPE_BIT(KEYS) };
const struct gateway_permission permission_admin = { .scopes = SCOPE_BIT(ADMIN) };
const struct gateway_permission permission_usage = { .scopes = SCOPE_BIT(USAGE) };
const struct gateway_permission permission_secrets = { .scopes = SCOPE_BIT(SECRETS) };
const struct gateway_permission permission_tenant = { .scopes = SCOPE_BIT(TENANT) };
const struct gateway_permission permission_metrics = { .scopes = SCOPE_BIT(METRICS) };
const struct gateway_permission permission_audit = { .scopes = SCOPE_BIT(AUDIT) };

static void api_on_modules(void *arg UNUSED, const struct python_modules *modules UNUSED)
{
}

struct api *api_new(const struct api_settings *set)
{
    struct api *api = mem_new(struct api);

    api->settings = *set;
    api->started_ns = ev_now(set->ev);
    event_streams_init(api);
    gateway_add_routes(set->gateway, api_tables);
    api->pool_registry = pool_registry_new(api);
    api->template_cache = template_cache_new(set->store);
    api->host_modules = manager_host_modules(set->manager);
    host_modules_get(api->host_modules, NULL, ev_now(set->ev), api_on_modules, NULL); /* for the first hint */
    return api;
}

void api_free(struct api *api)
{
    if (api) {
        socket_executions_free_orphans(api);
        event_streams_done(api);
        pool_registry_free(api->pool_registry);
        template_cache_free(api->template_cache);
    }
    free(api);
}

void api_set_server(struct api *api, const struct http_server *server)
{
    api->server = server;
}

/* --- requests --- */

void *api_request_alloc(struct http_req *req, size_t size)
{
    void *p = mem_alloc(size);

    http_free_with_request(req, p, free);
    return p;
}

int api_read_body(const struct http_req *req, json_t **ret, struct err *err)
{
    size_t len;
    const char *text = http_body(req, &len);

    return json_input_parse(text, len, ret, err);
}

const char *const api_sandbox_states[] = { "creating", "running", "paused", "ended", NULL };

struct api_set_query {
    const char *param, *const *names;
    uint32_t included, excluded;
    bool is_bad;
};

static void api_set_query_add(void *arg, const char *name, const char *value)
{
    struct api_set_query *q = arg;
    bool excluded = value[0] == '!';

    if (!str_eq(name, q->param))
        return;
    for (unsigned i = 0; q->names[i]; i++)
        if (str_eq(value + excluded, q->names[i])) {
            *(excluded ? &q->excluded : &q->included) |= STORE_BIT(i);
            return;
        }
    q->is_bad = true;
}

int api_read_set_query(const struct http_req *req, const char *param, const char *const *names, uint32_t *ret,
                       struct err *err)
{
    struct api_set_query q = { .param = param, .names = names };
    auto_buf known = { 0 };
    uint32_t all = 0;

    http_query_each(req, api_set_query_add, &q);
    for (unsigned i = 0; names[i]; i++) {
        buf_addf(&known, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
        all |= STORE_BIT(i);
    }
    if (q.is_bad)
        return err_set(err, ERR_INVALID, "%s: must be %s, or one of them after '!'", param, known.data);
    if (!q.included && !q.excluded)
        return 0;
    *ret = (q.included ? q.included : all) & ~q.excluded;
    if (!*ret)
        *ret = STORE_NO_STATE;
    return 0;
}

void api_answer_done(void *arg, const struct err *err)
{
    if (!http_answer_if_err(arg, err))
        http_answer_empty(arg, 204);
}

void api_object_begin(struct jsonw *w, struct buf *out)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
}

void api_object_end(struct http_req *req, int status, struct jsonw *w)
{
    jsonw_end_object(w);
    http_answer_json(req, status, w->out);
}

void api_page_begin(struct jsonw *w, struct buf *out)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_karray(w, "items");
}

void api_page_end(struct jsonw *w, const char *next)
{
    jsonw_end_array(w);
    jsonw_kstr_if(w, "nextCursor", next);
    jsonw_end_object(w);
}

bool api_list_begin(struct http_req *req, const struct err *err, struct jsonw *w, struct buf *out)
{
    if (err) {
        http_answer_err(req, err);
        return false;
    }
    api_page_begin(w, out);
    return true;
}

void api_list_end(struct http_req *req, struct jsonw *w, const char *next)
{
    api_page_end(w, next);
    http_answer_json(req, 200, w->out);
}

int api_read_page(const struct http_req *req, const char *const *names, struct store_list *q, struct err *err)
{
    const char *known[11] = { "limit", "cursor" };
    uint64_t limit;

    for (size_t i = 0; names && names[i]; i++)
        known[i + 2] = names[i];
    if (http_query_require_known(req, known, err) < 0 ||
        http_query_u64(req, "limit", 1, STORE_LIST_MAX, 100, &limit, err) < 0)
        return -1;
    q->owner = gateway_visible_owner(req);
    q->limit = (uint32_t)limit;
    q->cursor = http_query(req, "cursor");
    if (q->cursor && strlen(q->cursor) > CURSOR_MAX)
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; pass the nextCursor of the previous page");
    return 0;
}

bool api_has_no_query(struct http_req *req)
{
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0)
        return true;
    http_answer_err(req, &err);
    return false;
}

/* Only sandboxes have names as well. */
static int api_refuse_id(const char *id, const char *noun, struct err *err)
{
    if (str_eq(noun, "sandbox"))
        return err_set(err, ERR_MISSING,
                       "'%.64s' is not the id of a sandbox; GET /v1/sandboxes?name= finds an id by name", id);
    return err_set(err, ERR_MISSING, "there is no such %s", noun);
}

const char *api_id_or_refuse(struct http_req *req, const char *param, const char *prefix, const char *noun)
{
    const char *id = http_param(req, param);
    struct err err = { 0 };

    if (!api_has_no_query(req))
        return NULL;
    if (id_valid(id, prefix))
        return id;
    (void)api_refuse_id(id, noun, &err);
    http_answer_err(req, &err);
    return NULL;
}

int api_read_sandbox_id(const struct http_req *req, const char **ret, struct err *err)
{
    *ret = http_param(req, "sandboxId");
    return id_valid(*ret, "sb") ? 0 : api_refuse_id(*ret, "sandbox", err);
}

int api_read_execution_id(const struct http_req *req, const char **ret, struct err *err)
{
    *ret = http_param(req, "executionId");
    return id_valid(*ret, "ex") ? 0 : err_set(err, ERR_MISSING, "there is no such execution");
}

/* --- responses --- */

void api_write_time(struct jsonw *w, const char *key, uint64_t ms)
{
    char text[32];

    if (ms)
        jsonw_kstr(w, key, clock_rfc3339_ms(ms, text));
}

/* The JSON was written by this server and read back from the store, so it is valid. */
void api_write_raw_json(struct jsonw *w, const char *key, const char *json)
{
    if (!json)
        return;
    jsonw_kraw(w, key, json);
}

void api_write_sandbox(const struct store_sandbox *row, struct jsonw *w)
{
    struct spec spec;

    jsonw_object(w);
    jsonw_kstr(w, "id", row->id);
    jsonw_kstr(w, "state", api_sandbox_states[row->state]);
    jsonw_kstr_if(w, "name", row->name);
    jsonw_kstr_if(w, "template", row->template);
    if (manager_read_stored_spec(row, &spec, NULL) == 0) {
        spec_json(&spec, w);
        spec_done(&spec);
    }
    if (row->created_by)
        jsonw_kstr(w, "createdBy", row->created_by);
    api_write_raw_json(w, "metadata", row->metadata_json ? row->metadata_json : "{}");
    api_write_time(w, "createdAt", row->created_ms);
    if (row->state != STORE_SANDBOX_ENDED)
        api_write_time(w, "expiresAt", row->expires_ms);
    api_write_time(w, "endedAt", row->ended_ms);
    jsonw_kstr_if(w, "endedBy", row->ended_by);
    api_write_raw_json(w, "reason", row->why_json);
    jsonw_end_object(w);
}
