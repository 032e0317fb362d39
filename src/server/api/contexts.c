/* /v1/sandboxes/{sandboxId}/contexts, and the reply to a context execution that requests a line of
 * input. */
#include "server/api/api_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/context.h"
#include "service/language_kernel.h"

#define CWD_MAX 4000

/* --- JSON --- */

static void api_context_write_json(const struct context_info *c, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", c->id);
    jsonw_kstr(w, "sandboxId", c->sandbox);
    jsonw_kstr(w, "language", c->language);
    jsonw_kstr_if(w, "version", c->version);
    jsonw_kbool(w, "default", c->is_default);
    jsonw_kstr(w, "state", context_states[c->state]);
    jsonw_kstr(w, "cwd", c->cwd[0] ? c->cwd : "/workspace");
    jsonw_kstr_if(w, "createdBy", c->created_by);
    jsonw_kstr_if(w, "forkedFrom", c->forked_from);
    api_write_time(w, "createdAt", c->created_ms);
    jsonw_kstr_if(w, "executionId", c->running);
    jsonw_ku64(w, "queued", c->queued);
    jsonw_ku64(w, "executions", c->executions);
    jsonw_ku64(w, "restarts", c->restarts);
    jsonw_ku64(w, "refusedEvents", c->rejected_lines);
    if (c->state == CONTEXT_DEAD && c->death_error.id != ERR_NONE) { /* a deleted context has no reason */
        jsonw_kobject(w, "reason");
        jsonw_kstr(w, "code", err_info(c->death_error.id)->code);
        jsonw_kstr(w, "message", c->death_error.msg);
        jsonw_end_object(w);
    }
    jsonw_kstr_if(w, "outcome", c->outcome);
    jsonw_end_object(w);
}

static void api_context_answer(struct http_req *req, int status, const struct context_info *info)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_context_write_json(info, &w);
    http_answer_json(req, status, &out);
}

static void api_context_on_info(void *arg, const struct err *err, const struct context_info *info)
{
    if (!http_answer_if_err(arg, err))
        api_context_answer(arg, 200, info);
}

/* --- requests --- */

int api_context_read_ids(const struct http_req *req, const char **sandbox, const char **context, struct err *err)
{
    if (http_query_require_none(req, err) < 0 || api_read_sandbox_id(req, sandbox, err) < 0)
        return -1;
    if (!context)
        return 0;
    *context = http_param(req, "contextId");
    return id_valid(*context, "cx") ? 0 : err_set(err, ERR_MISSING, "there is no such context in this sandbox");
}

static int api_context_find(const struct http_req *req, struct api *api, const char *sandbox, const char *id,
                            struct context_info *ret, struct err *err)
{
    struct context_info all[CONTEXTS_LISTED_MAX];
    size_t n = 0;

    if (manager_contexts(api->settings.manager, gateway_visible_owner(req), sandbox, all, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].id, id)) {
            *ret = all[i];
            return 0;
        }
    return err_set(err, ERR_MISSING, "there is no such context in this sandbox");
}

struct context_creation { /* creates a context, either new or as a fork of another one */
    struct http_req *req;
    struct api *api;
    const char *sandbox, *fork_of; /* valid as long as the request; fork_of NULL: a new context */
    json_t *body;
    char **env;
    struct context_spec spec;
};

static void context_creation_free(void *arg)
{
    struct context_creation *m = arg;

    json_decref(m->body);
    spec_env_free(m->env);
    free(m);
}

static void context_creation_answer(struct http_req *req, const struct context_info *info)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/contexts/%s", info->sandbox, info->id);

    http_set_header(req, "Location", path);
    api_context_answer(req, 201, info);
}

static void context_creation_on_made(void *arg, const struct err *err, const struct context_info *info)
{
    struct context_creation *m = arg;

    if (err) {
        idempotency_release_key(m->req, m->api->settings.gateway, err);
        http_answer_err(m->req, err);
    } else {
        context_creation_answer(m->req, info);
    }
}

/* Answers with the context that an earlier request with the same key created. */
static void context_creation_answer_known(const struct context_creation *m, const char *id)
{
    struct context_info info;
    struct err err = { 0 };

    if (api_context_find(m->req, m->api, m->sandbox, id, &info, &err) < 0)
        http_answer_err(m->req, &err);
    else
        context_creation_answer(m->req, &info);
}

static void context_creation_on_claimed(struct http_req *req, bool fresh, const char *id, void *arg)
{
    struct context_creation *m = arg;
    struct api *api = m->api;

    m->spec.created_by = gateway_actor_id(req);
    if (!fresh)
        context_creation_answer_known(m, id);
    else if (m->fork_of)
        manager_context_fork(api->settings.manager, gateway_visible_owner(req), m->sandbox, m->fork_of, id,
                             m->spec.created_by, context_creation_on_made, m);
    else
        manager_context_create(api->settings.manager, gateway_visible_owner(req), m->sandbox, id, &m->spec,
                               context_creation_on_made, m);
}

static int context_creation_read_language(const json_t *body, const char **ret, struct err *err)
{
    const char *said = NULL;

    if (json_input_text(body, "", "language", 1, 40, &said, err) < 0)
        return -1;
    *ret = language_kernel_language(said ? said : "python");
    if (!*ret)
        return err_set(err, ERR_INVALID, "language: must be python, node or bash");
    return 0;
}

static int context_creation_read(struct context_creation *m, struct err *err)
{
    static const char *const names[] = { "language", "cwd", "env", NULL };
    json_t *env = NULL;
    size_t n = 0;

    if (api_context_read_ids(m->req, &m->sandbox, NULL, err) < 0 || api_read_body(m->req, &m->body, err) < 0 ||
        json_input_require_known_fields(m->body, "", names, err) < 0 ||
        context_creation_read_language(m->body, &m->spec.language, err) < 0 ||
        json_input_text(m->body, "", "cwd", 1, CWD_MAX, &m->spec.cwd, err) < 0 ||
        json_input_object(m->body, "", "env", &env, err) < 0 ||
        (env && spec_read_env(env, "env", &m->env, &n, err) < 0))
        return -1;
    m->spec.env = (const char *const *)m->env;
    return 0;
}

static struct context_creation *context_creation_new(struct http_req *req, struct api *api)
{
    struct context_creation *m = mem_new(struct context_creation);

    m->req = req;
    m->api = api;
    http_free_with_request(req, m, context_creation_free);
    return m;
}

static void api_context_create(struct http_req *req, void *ctx)
{
    struct context_creation *m = context_creation_new(req, ctx);
    struct err err = { 0 };

    if (context_creation_read(m, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    audit_trail_add_detail(req, "language", m->spec.language);
    idempotency_begin(req, m->api->settings.gateway, "cx", context_creation_on_claimed, m, NULL);
}

static void api_context_fork(struct http_req *req, void *ctx)
{
    struct context_creation *m = context_creation_new(req, ctx);
    struct err err = { 0 };

    if (api_context_read_ids(req, &m->sandbox, &m->fork_of, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    audit_trail_add_detail(req, "forkedFrom", m->fork_of);
    idempotency_begin(req, m->api->settings.gateway, "cx", context_creation_on_claimed, m, NULL);
}

static void api_context_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct context_info all[CONTEXTS_LISTED_MAX];
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;
    const char *sandbox;
    size_t n = 0;

    if (api_context_read_ids(req, &sandbox, NULL, &err) < 0 ||
        manager_contexts(api->settings.manager, gateway_visible_owner(req), sandbox, all, &n, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    (void)api_list_begin(req, NULL, &w, &out);
    for (size_t i = 0; i < n; i++)
        api_context_write_json(&all[i], &w);
    api_list_end(req, &w, NULL);
}

static void api_context_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct context_info info;
    struct err err = { 0 };
    const char *sandbox, *id;

    if (api_context_read_ids(req, &sandbox, &id, &err) < 0 || api_context_find(req, api, sandbox, id, &info, &err) < 0)
        http_answer_err(req, &err);
    else
        api_context_answer(req, 200, &info);
}

typedef void context_order_fn(struct manager *m, const char *owner, const char *sandbox, const char *id,
                              context_fn *done, void *arg);

static void api_context_order(struct http_req *req, struct api *api, context_order_fn *fn)
{
    struct err err = { 0 };
    const char *sandbox, *id;

    if (api_context_read_ids(req, &sandbox, &id, &err) < 0)
        http_answer_err(req, &err);
    else
        fn(api->settings.manager, gateway_visible_owner(req), sandbox, id, api_context_on_info, req);
}

static void api_context_delete(struct http_req *req, void *ctx)
{
    api_context_order(req, ctx, manager_context_delete);
}

static void api_context_interrupt(struct http_req *req, void *ctx)
{
    api_context_order(req, ctx, manager_context_interrupt);
}

static void api_context_restart(struct http_req *req, void *ctx)
{
    api_context_order(req, ctx, manager_context_restart);
}

/* --- execute --- */

int api_context_read_call(const json_t *body, struct api *api, struct context_execution_spec *ret, struct err *err)
{
    static const char *const names[] = { "code", "timeoutMs", "outputBytes", "background", "receipt", "stream", NULL };
    const struct limit_info *wall = limit_info(LIMIT_WALL);

    if (json_input_require_known_fields(body, "", names, err) < 0 ||
        json_input_text(body, "", "code", 0, CONTEXT_CODE_MAX, &ret->code, err) < 0 ||
        json_input_u64(body, "", "timeoutMs", wall->min, wall->max, &ret->timeout_ms, NULL, err) < 0 ||
        json_input_u64(body, "", "outputBytes", 1, EXECUTION_OUTPUT_MAX, &ret->output_max, NULL, err) < 0 ||
        json_input_bool(body, "", "background", &ret->background, err) < 0)
        return -1;
    if (!ret->code)
        return err_set(err, ERR_INVALID, "code: required");
    return api_check_operator_limits(api, ret->timeout_ms, ret->output_max, err);
}

/* --- complete and inspect --- */

static void api_context_on_kernel_reply(void *arg, const struct err *err, const char *json)
{
    struct http_req *req = arg;

    if (!http_answer_if_err(req, err))
        http_answer(req, 200, "application/json", json, strlen(json));
}

/* The text is valid UTF-8. */
static size_t count_utf8_characters(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void api_context_ask_kernel(struct http_req *req, struct api *api, bool inspect)
{
    static const char *const names[] = { "code", "cursor", NULL };
    auto_json *body = NULL;
    struct err err = { 0 };
    const char *sandbox = NULL, *id = NULL, *code = NULL;
    uint64_t cursor = 0;
    bool placed = false;

    if (api_context_read_ids(req, &sandbox, &id, &err) == 0 && api_read_body(req, &body, &err) == 0 &&
        json_input_require_known_fields(body, "", names, &err) == 0 &&
        json_input_text(body, "", "code", 0, CONTEXT_CODE_MAX, &code, &err) == 0 &&
        json_input_u64(body, "", "cursor", 0, CONTEXT_CODE_MAX, &cursor, &placed, &err) == 0 && (!code || !placed))
        err_set(&err, ERR_INVALID, "code and cursor are both required");
    if (err.id == ERR_NONE && code && cursor > count_utf8_characters(code))
        err_set(&err, ERR_INVALID, "cursor: the code has only %zu characters", count_utf8_characters(code));
    if (err.id != ERR_NONE)
        http_answer_err(req, &err);
    else
        manager_context_query(api->settings.manager, gateway_visible_owner(req), sandbox, id, inspect, code, cursor,
                              api_context_on_kernel_reply, req);
}

static void api_context_complete(struct http_req *req, void *ctx)
{
    api_context_ask_kernel(req, ctx, false);
}

static void api_context_inspect(struct http_req *req, void *ctx)
{
    api_context_ask_kernel(req, ctx, true);
}

/* --- the reply to input() --- */

struct context_input_line {
    struct http_req *req;
    struct api *api;
    const char *sandbox;
    char *text; /* NULL: end of input */
};

static void context_input_line_free(void *arg)
{
    struct context_input_line *l = arg;

    free(l->text);
    free(l);
}

static void context_input_line_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct context_input_line *l = arg;
    struct err why = { 0 };

    if (!err && !str_eq(row->sandbox, l->sandbox))
        err = (err_set(&why, ERR_MISSING, "there is no such execution in this sandbox"), &why);
    if (!err && row->ended_ms)
        err = (err_set(&why, ERR_EXISTS, "execution %s has ended", row->id), &why);
    if (!err && manager_context_input(l->api->settings.manager, gateway_visible_owner(l->req), l->sandbox, row->id,
                                      l->text, &why) < 0)
        err = &why;
    if (!http_answer_if_err(l->req, err))
        follow_answer_row(l->req, l->api, 200, row, (struct execution_view){ 0 });
}

int api_context_read_input_line(const json_t *body, const char **ret, struct err *err)
{
    const char *text = NULL;
    bool eof = false;

    if (json_input_text(body, "", "text", 0, CONTEXT_INPUT_MAX, &text, err) < 0 ||
        json_input_bool(body, "", "eof", &eof, err) < 0)
        return -1;
    if (!text == !eof)
        return err_set(err, ERR_INVALID, "give either text, or eof: true for the end of input");
    *ret = text;
    return 0;
}

static int context_input_line_read(struct context_input_line *l, const json_t *body, struct err *err)
{
    static const char *const names[] = { "text", "eof", NULL };
    const char *text = NULL;

    if (json_input_require_known_fields(body, "", names, err) < 0 || api_context_read_input_line(body, &text, err) < 0)
        return -1;
    l->text = text ? str_dup(text) : NULL;
    return 0;
}

static void api_context_input(struct http_req *req, void *ctx)
{
    struct context_input_line *l = mem_new(struct context_input_line);
    auto_json *body = NULL;
    struct err err = { 0 };
    const char *id;

    l->req = req;
    l->api = ctx;
    http_free_with_request(req, l, context_input_line_free);
    if (api_context_read_ids(req, &l->sandbox, NULL, &err) < 0 || api_read_execution_id(req, &id, &err) < 0 ||
        api_read_body(req, &body, &err) < 0 || context_input_line_read(l, body, &err) < 0)
        http_answer_err(req, &err);
    else
        store_execution_get(l->api->settings.store, gateway_visible_owner(req), id, context_input_line_on_row, l);
}

#define ALL "/v1/sandboxes/{sandboxId}/contexts"
#define ONE ALL "/{contextId}"
#define JSON_BODY HTTP_BODY_BUFFERED, JSON_INPUT_SIZE_MAX, "application/json"

const struct http_route context_routes[] = {
    { "POST", ALL, api_context_create, JSON_BODY, &permission_execute },
    { "GET", ALL, api_context_list, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "GET", ONE, api_context_get, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "DELETE", ONE, api_context_delete, HTTP_BODY_NONE, .data = &permission_executions },
    { "POST", ONE "/execute", api_execution_create, JSON_BODY, &permission_execute },
    { "POST", ONE "/interrupt", api_context_interrupt, HTTP_BODY_NONE, .data = &permission_executions },
    { "POST", ONE "/restart", api_context_restart, HTTP_BODY_NONE, .data = &permission_executions },
    { "POST", ONE "/fork", api_context_fork, HTTP_BODY_NONE, .data = &permission_execute },
    { "POST", ONE "/complete", api_context_complete, JSON_BODY, &permission_executions },
    { "POST", ONE "/inspect", api_context_inspect, JSON_BODY, &permission_executions },
    { "POST", "/v1/sandboxes/{sandboxId}/executions/{executionId}/input", api_context_input, JSON_BODY,
      &permission_executions },
    { 0 },
};
