/* /v1/sandboxes */
#include "server/api/api_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/template_cache.h"
#include "service/template_check.h"
#include "service/templates.h"

static void api_sandbox_answer_row(struct http_req *req, int status, const struct store_sandbox *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_write_sandbox(row, &w);
    http_answer_json(req, status, &out);
}

static void api_sandbox_on_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    if (!http_answer_if_err(arg, err))
        api_sandbox_answer_row(arg, 200, row);
}

/* --- create --- */

struct sandbox_creation {
    struct http_req *req;
    struct api *api;
    json_t *body;
    char template[STORE_NAME_MAX + 1];
    char chosen_id[ID_SIZE]; /* the id chosen by idempotency_begin */
    struct spec spec;
    char *policy_error_details; /* of an error in the policy or the template */
};

static void sandbox_creation_free(void *arg)
{
    struct sandbox_creation *c = arg;

    json_decref(c->body);
    spec_done(&c->spec);
    free(c->policy_error_details);
    free(c);
}

static void sandbox_creation_on_created(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox_creation *c = arg;

    if (err) {
        idempotency_release_key(c->req, c->api->settings.gateway, err);
        http_answer_err(c->req, err);
    } else {
        auto_free char *path = str_printf("/v1/sandboxes/%s", row->id);

        http_set_header(c->req, "Location", path);
        api_sandbox_answer_row(c->req, 201, row);
    }
}

static void sandbox_creation_on_known(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox_creation *c = arg;

    if (!http_answer_if_err(c->req, err))
        api_sandbox_answer_row(c->req, 201, row);
}

static void sandbox_creation_on_named(void *arg, const char *id)
{
    struct sandbox_creation *c = arg;

    idempotency_set_resource(c->req, c->api->settings.gateway, c->chosen_id, id);
}

static void sandbox_creation_on_claimed(struct http_req *req, bool fresh, const char *id, void *arg)
{
    struct sandbox_creation *c = arg;
    struct api *api = c->api;

    str_copy(c->spec.created_by, sizeof(c->spec.created_by), gateway_actor_id(req));
    str_copy(c->chosen_id, sizeof(c->chosen_id), id);
    if (fresh)
        manager_create(api->settings.manager, gateway_tenant(req), id, &c->spec, c->template[0] ? c->template : NULL,
                       sandbox_creation_on_named, sandbox_creation_on_created, c);
    else
        store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, sandbox_creation_on_known, c);
}

static void sandbox_creation_refuse(struct sandbox_creation *c, const struct err *err)
{
    http_answer_err_with(c->req, err, c->policy_error_details);
}

static void sandbox_creation_read_and_claim(struct sandbox_creation *c)
{
    struct err err = { 0 };

    if (spec_read(&c->spec, c->body, SPEC_OF_SANDBOX, &c->policy_error_details, &err) < 0 ||
        custom_policy_apply_operator_limits(&c->spec, c->api->settings.operator_limits, &err) < 0 ||
        spec_finish(&c->spec, &err) < 0) {
        sandbox_creation_refuse(c, &err);
        return;
    }
    api_record_network(c->req, &c->spec.network);
    idempotency_begin(c->req, c->api->settings.gateway, "sb", sandbox_creation_on_claimed, c, NULL);
}

static void sandbox_creation_on_template_checked(void *arg, const struct err *err, const char *details)
{
    struct sandbox_creation *c = arg;

    if (!err) {
        sandbox_creation_read_and_claim(c);
        return;
    }
    c->policy_error_details = str_dup(details);
    sandbox_creation_refuse(c, err);
}

static void sandbox_creation_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct sandbox_creation *c = arg;
    struct err why = { 0 };

    if (spec_read_template(&c->spec, c->template, err, row, &why) < 0)
        sandbox_creation_refuse(c, &why);
    else
        template_check_modules(c->api->host_modules, c->template, &c->spec, ev_now(c->api->settings.ev),
                               sandbox_creation_on_template_checked, c);
}

/* The runtime is not a language: it may be the name of a stored template. */
static void sandbox_creation_on_runtime_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct sandbox_creation *c = arg;
    struct err why = { 0 };

    if (err || !row) {
        sandbox_creation_read_and_claim(c);
        return;
    }
    (void)template_as_runtime_error(&why, row->name);
    sandbox_creation_refuse(c, &why);
}

static bool sandbox_creation_runtime_may_be_template(const struct sandbox_creation *c)
{
    const char *runtime = json_string_value(json_object_get(c->body, "runtime"));

    return runtime && !language_by_name(runtime) && api_is_valid_slug(runtime);
}

static void api_sandbox_create(struct http_req *req, void *ctx)
{
    struct sandbox_creation *c = mem_new(struct sandbox_creation);
    const char *template = NULL;
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    spec_init(&c->spec);
    http_free_with_request(req, c, sandbox_creation_free);
    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &c->body, &err) < 0 ||
        json_input_text(c->body, "", "template", 1, STORE_NAME_MAX, &template, &err) < 0) {
        sandbox_creation_refuse(c, &err);
    } else if (template) {
        str_copy(c->template, sizeof(c->template), template);
        template_cache_get(c->api->template_cache, template, ev_now(c->api->settings.ev), sandbox_creation_on_template,
                           c);
    } else if (sandbox_creation_runtime_may_be_template(c)) {
        template_cache_get(c->api->template_cache, json_string_value(json_object_get(c->body, "runtime")),
                           ev_now(c->api->settings.ev), sandbox_creation_on_runtime_template, c);
    } else {
        sandbox_creation_read_and_claim(c);
    }
}

/* --- list --- */

static void api_sandbox_on_rows(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n,
                                const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        api_write_sandbox(&rows[i], &w);
    api_list_end(req, &w, next);
}

/* The metadata filter of a list, as pairs for the store. */
struct sandbox_metadata_filter {
    struct http_req *req;
    const char *pairs[2 * SPEC_METADATA_MAX + 1];
    size_t n;
    bool is_bad;
};

static void sandbox_metadata_filter_add(void *arg, const char *name, const char *value)
{
    struct sandbox_metadata_filter *f = arg;
    size_t len = strcspn(value, "=");

    if (!str_eq(name, "metadata"))
        return;
    if (len == 0 || value[len] != '=' || f->n + 2 >= ARRAY_LEN(f->pairs)) {
        f->is_bad = true;
        return;
    }
    char *key = str_dup_n(value, len);
    http_free_with_request(f->req, key, free);
    f->pairs[f->n++] = key;
    f->pairs[f->n++] = value + len + 1;
}

static int api_check_template_name(const char *name, struct err *err)
{
    return !name || api_is_valid_slug(name)
               ? 0
               : err_set(err, ERR_INVALID, "template: not the name of a template; GET /v1/templates lists them");
}

static void api_sandbox_list(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "state", "name", "template", "metadata", NULL };
    struct api *api = ctx;
    struct store_list q = { .name = http_query(req, "name"), .template = http_query(req, "template") };
    struct sandbox_metadata_filter f = { .req = req };
    struct err err = { 0 };

    if (api_read_page(req, names, &q, &err) < 0 ||
        api_read_set_query(req, "state", api_sandbox_states, &q.states, &err) < 0 ||
        (q.name && spec_check_name(q.name, &err) < 0) || api_check_template_name(q.template, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    http_query_each(req, sandbox_metadata_filter_add, &f);
    if (f.is_bad) {
        http_refuse(req, ERR_INVALID, "metadata: must be key=value, at most %d times", SPEC_METADATA_MAX);
        return;
    }
    q.meta = f.pairs;
    store_sandbox_list(api->settings.store, &q, api_sandbox_on_rows, req);
}

/* --- one sandbox --- */

static void api_sandbox_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "sandboxId", "sb", "sandbox");

    if (id)
        store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, api_sandbox_on_row, req);
}

typedef void sandbox_order_fn(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);

static void api_sandbox_order(struct http_req *req, struct api *api, sandbox_order_fn *fn)
{
    const char *id = api_id_or_refuse(req, "sandboxId", "sb", "sandbox");

    if (id)
        fn(api->settings.manager, gateway_visible_owner(req), id, api_sandbox_on_row, req);
}

static void api_sandbox_delete(struct http_req *req, void *ctx)
{
    api_sandbox_order(req, ctx, manager_delete);
}

static void api_sandbox_pause(struct http_req *req, void *ctx)
{
    api_sandbox_order(req, ctx, manager_pause);
}

static void api_sandbox_resume(struct http_req *req, void *ctx)
{
    api_sandbox_order(req, ctx, manager_resume);
}

static int api_sandbox_read_update(const struct http_req *req, struct api *api, struct sandbox_update *ret,
                                   struct err *err)
{
    auto_json *body = NULL;

    *ret = (struct sandbox_update){ 0 };
    if (api_read_body(req, &body, err) < 0 || sandbox_update_read(body, ret, err) < 0 ||
        custom_policy_apply_network(api->settings.operator_limits, &ret->network, err) < 0 ||
        custom_policy_check_operator_limit(api->settings.operator_limits, LIMIT_LIFETIME, "lifetimeMs",
                                           ret->lifetime_ms, err) < 0)
        return -1;
    return custom_policy_check_operator_limit(api->settings.operator_limits, LIMIT_IDLE, "idleTimeoutMs",
                                              ret->idle_timeout_ms, err);
}

/* A change of the network has a name of its own in the audit trail, and a credential that may be
 * inside of the sandbox cannot make it. False: the request was refused. */
static bool api_sandbox_authorize_network(struct http_req *req, const char *id, const struct network_policy *network)
{
    const struct gateway_action action = { .name = "sandbox.network.update", .sandbox = id, .is_change = true };

    if (!gateway_authorize_action(req, &permission_sandboxes_write, &action))
        return false;
    api_record_network(req, network);
    if (!gateway_principal(req)->sandbox[0])
        return true;
    http_refuse(req, ERR_DENIED, "network: a token of a sandbox cannot change its network; use a key");
    return false;
}

static void api_sandbox_update(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "sandboxId", "sb", "sandbox");
    struct sandbox_update update;
    struct err err = { 0 };

    if (!id)
        return;
    if (api_sandbox_read_update(req, api, &update, &err) < 0)
        http_answer_err(req, &err);
    else if (!update.sets_network || api_sandbox_authorize_network(req, id, &update.network))
        manager_update(api->settings.manager, gateway_visible_owner(req), id, &update, api_sandbox_on_row, req);
    sandbox_update_done(&update);
}

/* --- usage --- */

static void api_sandbox_on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (http_answer_if_err(req, err))
        return;
    const struct {
        const char *name;
        uint64_t v;
        bool is_time; /* in nanoseconds */
    } figures[] = {
        { "cpuMs", u->cpu_ns, true },         { "throttledMs", u->throttled_ns, true },
        { "memoryBytes", u->memory, false },  { "memoryPeakBytes", u->memory_peak, false },
        { "oomKills", u->oom_kills, false },  { "pids", u->pids, false },
        { "pidsPeak", u->pids_peak, false },  { "pidsRefused", u->pids_refused, false },
        { "ioReadBytes", u->io_read, false }, { "ioWrittenBytes", u->io_write, false },
    };
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "sandboxId", http_param(req, "sandboxId"));
    api_write_time(&w, "at", clock_real_ms());
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        if (figures[i].v != SANDBOX_USAGE_UNKNOWN && figures[i].is_time)
            jsonw_kms(&w, figures[i].name, figures[i].v);
        else if (figures[i].v != SANDBOX_USAGE_UNKNOWN)
            jsonw_ku64(&w, figures[i].name, figures[i].v);
    jsonw_kobject(&w, "absent");
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        if (figures[i].v == SANDBOX_USAGE_UNKNOWN)
            jsonw_kstr(&w, figures[i].name, "not counted by the cgroups of this host");
    jsonw_end_object(&w);
    api_object_end(req, 200, &w);
}

static void api_sandbox_usage(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "sandboxId", "sb", "sandbox");

    if (id)
        manager_sandbox_usage(api->settings.manager, gateway_visible_owner(req), id, api_sandbox_on_usage, req);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 256 * KIB, "application/json"

const struct http_route sandbox_routes[] = {
    { "POST", "/v1/sandboxes", api_sandbox_create, JSON_BODY, &permission_sandbox_create },
    { "GET", "/v1/sandboxes", api_sandbox_list, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/v1/sandboxes/{sandboxId}", api_sandbox_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "DELETE", "/v1/sandboxes/{sandboxId}", api_sandbox_delete, HTTP_BODY_NONE, .data = &permission_sandboxes_write },
    { "GET", "/v1/sandboxes/{sandboxId}/usage", api_sandbox_usage, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "PATCH", "/v1/sandboxes/{sandboxId}", api_sandbox_update, JSON_BODY, &permission_sandboxes_write },
    { "POST", "/v1/sandboxes/{sandboxId}/pause", api_sandbox_pause, HTTP_BODY_NONE,
      .data = &permission_sandboxes_write },
    { "POST", "/v1/sandboxes/{sandboxId}/resume", api_sandbox_resume, HTTP_BODY_NONE,
      .data = &permission_sandboxes_write },
    { 0 },
};
