/* /v1/tools and /v1/sandboxes/{sandboxId}/tools: the tools of service/tools over REST.
 *
 * The body of a call is the object of its arguments. A call that was begun is answered with 200 and
 * `isError`, even if its work failed; a call that is refused gets an error like every other
 * request. Nothing is stored for a retry, so an Idempotency-Key is refused, and the work is ended
 * when the client disconnects. */
#include "server/api/api_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"
#include "server/gateway/tool_access.h"
#include "service/tools/tools.h"

#include <stdio.h>

/* --- descriptions --- */

static const char *const tool_places[] = {
    [TOOL_IN_SANDBOX] = "sandbox", [TOOL_IN_FRESH] = "fresh_sandbox", [TOOL_ON_SERVER] = "server"
};

static void api_tool_write_scopes(const struct tool *tool, struct jsonw *w)
{
    uint32_t scopes = tool_access_scopes(tool->rights);

    jsonw_karray(w, "scopes");
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (scopes & (1u << i))
            jsonw_str(w, scope_name((enum scope)i));
    jsonw_end_array(w);
}

static void api_tool_write(const struct tool *tool, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", tool->name);
    jsonw_kstr(w, "title", tool->title);
    jsonw_kstr(w, "description", tool->description);
    jsonw_kstr(w, "place", tool_places[tool->place]);
    api_tool_write_scopes(tool, w);
    jsonw_kobject(w, "annotations");
    jsonw_kbool(w, "readOnlyHint", tool->is_read_only);
    jsonw_kbool(w, "destructiveHint", tool->is_destructive);
    jsonw_kbool(w, "idempotentHint", tool->is_idempotent);
    jsonw_kbool(w, "openWorldHint", tool->is_open_world);
    jsonw_end_object(w);
    jsonw_kraw(w, "inputSchema", tool->input_schema);
    jsonw_kraw(w, "outputSchema", tool->output_schema);
    jsonw_end_object(w);
}

static void api_tool_list(struct http_req *req, void *ctx UNUSED)
{
    struct buf out = { 0 };
    struct jsonw w;
    size_t n;
    const struct tool *all = tools_all(&n);

    if (!api_has_no_query(req))
        return;
    (void)api_list_begin(req, NULL, &w, &out);
    for (size_t i = 0; i < n; i++)
        api_tool_write(&all[i], &w);
    api_list_end(req, &w, NULL);
}

/* NULL: the request was refused. */
static const struct tool *api_tool_or_refuse(struct http_req *req)
{
    const char *name = http_param(req, "tool");
    const struct tool *tool = tool_find(name);
    struct suggest s;
    size_t n;
    const struct tool *all = tools_all(&n);

    if (tool)
        return tool;
    suggest_init(&s, name);
    for (size_t i = 0; i < n; i++)
        suggest_offer(&s, all[i].name);
    if (s.best)
        http_refuse(req, ERR_MISSING, "there is no tool '%.60s'; did you mean %s?", name, s.best);
    else
        http_refuse(req, ERR_MISSING, "there is no tool '%.60s'; GET /v1/tools lists the tools", name);
    return NULL;
}

static void api_tool_get(struct http_req *req, void *ctx UNUSED)
{
    const struct tool *tool = api_has_no_query(req) ? api_tool_or_refuse(req) : NULL;
    struct buf out = { 0 };
    struct jsonw w;

    if (!tool)
        return;
    jsonw_init(&w, &out, 0);
    api_tool_write(tool, &w);
    http_answer_json(req, 200, &out);
}

/* --- calls --- */

struct api_tool_call {
    struct http_req *req;
    struct api *api;
    const struct tool *tool;
    const char *sandbox; /* NULL: none */
    json_t *arguments;
    struct tool_call *call; /* NULL: not begun, or ended */
    struct open_stream open_stream;
};

static void api_tool_call_free(struct api_tool_call *c)
{
    open_stream_unregister(&c->open_stream);
    json_decref(c->arguments);
    free(c);
}

static void api_tool_write_images(const struct tool_result *r, struct jsonw *w)
{
    if (r->nimages == 0)
        return;
    jsonw_karray(w, "images");
    for (size_t i = 0; i < r->nimages; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "type", r->images[i].type);
        jsonw_kstr(w, "contentBase64", r->images[i].data);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void api_tool_answer(struct api_tool_call *c, const struct tool_result *r)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "tool", c->tool->name);
    jsonw_kbool(&w, "isError", r->is_error);
    jsonw_kbool(&w, "truncated", r->is_truncated);
    jsonw_kstr(&w, "text", r->text);
    jsonw_kraw(&w, "result", r->json);
    api_tool_write_images(r, &w);
    jsonw_kstr_if(&w, "executionId", r->execution);
    jsonw_end_object(&w);
    if (r->execution)
        audit_trail_add_target(c->req, "execution", r->execution);
    unread_responses_add(c->req, c->api->settings.gateway, gateway_tenant(c->req), out.len);
    http_answer_json(c->req, 200, &out);
}

static void api_tool_refuse(struct api_tool_call *c, const struct err *err)
{
    char seconds[24];

    if (err->id == ERR_EXECUTOR_FULL && c->api->settings.executor) {
        snprintf(seconds, sizeof(seconds), "%" PRIu64, (executor_retry_ms(c->api->settings.executor) + 999) / 1000);
        http_set_header(c->req, "Retry-After", seconds);
    }
    http_answer_err(c->req, err);
    api_tool_call_free(c);
}

static void api_tool_on_end(void *arg, const struct err *err, const struct tool_result *r)
{
    struct api_tool_call *c = arg;

    c->call = NULL;
    http_on_client_gone(c->req, NULL, NULL);
    if (err) {
        api_tool_refuse(c, err);
        return;
    }
    api_tool_answer(c, r);
    api_tool_call_free(c);
}

/* why: NULL if the client is gone. */
static void api_tool_abort(void *arg, const struct err *why)
{
    struct api_tool_call *c = arg;

    tool_call_cancel(take_ptr(&c->call));
    http_on_client_gone(c->req, NULL, NULL);
    if (why)
        http_answer_err(c->req, why);
    else
        http_answer_empty(c->req, 204);
    api_tool_call_free(c);
}

static void api_tool_on_client_gone(void *arg)
{
    api_tool_abort(arg, NULL);
}

static int api_tool_check_place(const struct api_tool_call *c, struct err *err)
{
    if (c->tool->place == TOOL_IN_SANDBOX && !c->sandbox)
        return err_set(err, ERR_INVALID, "the tool %s acts in a sandbox; use POST /v1/sandboxes/{id}/tools/%s",
                       c->tool->name, c->tool->name);
    if (c->tool->place != TOOL_IN_SANDBOX && c->sandbox)
        return err_set(err, ERR_INVALID, "the tool %s does not act in a sandbox that exists; use POST /v1/tools/%s",
                       c->tool->name, c->tool->name);
    return 0;
}

static int api_tool_start(struct api_tool_call *c, struct err *err)
{
    static const struct tool_ops ops = { .on_end = api_tool_on_end };
    struct http_req *req = c->req;
    struct tool_request request = { .tool = c->tool,
                                    .owner = gateway_visible_owner(req),
                                    .tenant = gateway_tenant(req),
                                    .created_by = gateway_actor_id(req),
                                    .request_id = http_id(req),
                                    .is_for_one_sandbox = gateway_principal(req)->sandbox[0] != '\0' };

    if (http_header(req, "Idempotency-Key"))
        return err_set(err, ERR_INVALID,
                       "Idempotency-Key: a tool call stores nothing that the same request could find again; omit it");
    if (http_param(req, "sandboxId") && api_read_sandbox_id(req, &c->sandbox, err) < 0)
        return -1;
    if (http_query_require_none(req, err) < 0 || api_tool_check_place(c, err) < 0 ||
        tool_access_require(req, c->tool, err) < 0 ||
        unread_responses_check(c->api->settings.gateway, gateway_tenant(req), err) < 0 ||
        api_read_body(req, &c->arguments, err) < 0)
        return -1;
    request.sandbox = c->sandbox;
    request.arguments = c->arguments;
    tool_access_record(req, c->tool, c->arguments);
    return tool_call_start(c->api->settings.tools, &request, &ops, c, &c->call, err);
}

static void api_tool_call(struct http_req *req, void *ctx)
{
    const struct tool *tool = api_tool_or_refuse(req);
    struct api_tool_call *c = tool ? mem_new(struct api_tool_call) : NULL;
    struct err err = { 0 };

    if (!c)
        return;
    c->req = req;
    c->api = ctx;
    c->tool = tool;
    if (api_tool_start(c, &err) < 0) {
        api_tool_refuse(c, &err);
        return;
    }
    audit_trail_record_accepted(req);
    http_on_client_gone(req, api_tool_on_client_gone, c);
    http_require_client(req);
    open_stream_register(&c->open_stream, c->api->settings.gateway, gateway_principal(req), api_tool_abort, c);
}

const struct http_route tool_routes[] = {
    { "GET", "/v1/tools", api_tool_list, HTTP_BODY_NONE, .data = &permission_self },
    { "GET", "/v1/tools/{tool}", api_tool_get, HTTP_BODY_NONE, .data = &permission_self },
    { "POST", "/v1/tools/{tool}", api_tool_call, HTTP_BODY_BUFFERED, JSON_INPUT_SIZE_MAX, "application/json",
      &permission_authenticated },
    { "POST", "/v1/sandboxes/{sandboxId}/tools/{tool}", api_tool_call, HTTP_BODY_BUFFERED, JSON_INPUT_SIZE_MAX,
      "application/json", &permission_authenticated },
    { 0 },
};
