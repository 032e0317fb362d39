/* tools/list and tools/call.
 *
 * The tools of tools.h have no argument for their sandbox: here those that act in one get the
 * optional argument `sandbox`. The order is that of the tables and never changes, so that a client
 * can cache the list. A tool that the key may not call is not listed. */
#include "server/mcp/mcp_internal.h"

#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/gateway/tool_access.h"
#include "server/gateway/unread_responses.h"
#include "service/tools/tools.h"

#include <stdio.h>

#define MCP_TOOLS_PAGE 50u
#define MCP_TOOLS_TTL_MS 300000u
#define MCP_PROGRESS_EVERY_NS (100 * NS_PER_MS)

static const char mcp_sandbox_argument[] =
    "Id of the sandbox to act in, as create_sandbox returned it. May be omitted in a session with the server: then "
    "the sandbox of the session is used, which the first such call creates.";

/* --- permission --- */

static uint32_t mcp_tool_scopes(const struct tool *t)
{
    return tool_access_scopes(t->rights);
}

static enum auth_class mcp_tool_class(const struct tool *t)
{
    return t->rights & TOOL_EXECUTES ? AUTH_CLASS_EXECUTE : AUTH_CLASS_DEFAULT;
}

static const char *mcp_tool_action(const struct tool *t)
{
    return t->place == TOOL_IN_SANDBOX ? "tool.call_in_sandbox" : "tool.call";
}

/* --- the list --- */

/* The schemas are text of this program, so they are valid. */
static char *mcp_tool_input_schema(const struct tool *t)
{
    auto_json *schema = json_loads(t->input_schema, 0, NULL);
    json_t *properties = json_object_get(schema, "properties");

    if (t->place == TOOL_IN_SANDBOX) {
        if (!properties) {
            properties = json_object();
            json_object_set_new(schema, "properties", properties);
        }
        json_object_set_new(properties, "sandbox",
                            json_pack("{s:s, s:s}", "type", "string", "description", mcp_sandbox_argument));
    }
    return json_dumps(schema, JSON_COMPACT);
}

static void mcp_write_tool(const struct tool *t, struct jsonw *w)
{
    auto_free char *input = mcp_tool_input_schema(t);

    jsonw_object(w);
    jsonw_kstr(w, "name", t->name);
    jsonw_kstr(w, "title", t->title);
    jsonw_kstr(w, "description", t->description);
    jsonw_kraw(w, "inputSchema", input);
    jsonw_kraw(w, "outputSchema", t->output_schema);
    jsonw_kobject(w, "annotations");
    jsonw_kstr(w, "title", t->title);
    jsonw_kbool(w, "readOnlyHint", t->is_read_only);
    jsonw_kbool(w, "destructiveHint", t->is_destructive);
    jsonw_kbool(w, "idempotentHint", t->is_idempotent);
    jsonw_kbool(w, "openWorldHint", t->is_open_world);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

/* One tool at this position of all tables; false: none is left. */
static bool mcp_write_tool_at(const struct mcp_server_call *c, size_t position, struct jsonw *w)
{
    bool is_confined = c->principal.sandbox[0] != '\0'; /* the credential is for one sandbox */
    size_t nown = 0, n;
    const struct tool *all = tools_all(&n);

    while (mcp_sandbox_tools[nown].name)
        nown++;
    if (position >= nown + n)
        return false;
    if (position < nown) {
        if (!is_confined && principal_has_scopes(&c->principal, mcp_sandbox_tools[position].scopes))
            jsonw_raw(w, mcp_sandbox_tools[position].definition);
    } else {
        const struct tool *t = &all[position - nown];

        if ((!is_confined || t->place == TOOL_IN_SANDBOX) && principal_has_scopes(&c->principal, mcp_tool_scopes(t)))
            mcp_write_tool(t, w);
    }
    return true;
}

void mcp_tools_list(struct mcp_server_call *c)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t at, end;

    if (!mcp_read_cursor(c, "tools", &at))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "tools");
    for (end = at + MCP_TOOLS_PAGE; at < end; at++)
        if (!mcp_write_tool_at(c, at, &w))
            break;
    if (at < end && c->mcp->fixtures)
        mcp_fixtures_write_tools(&w);
    jsonw_end_array(&w);
    if (at == end)
        mcp_write_cursor(&w, "tools", at);
    mcp_server_call_write_cache_hints(c, &w, MCP_TOOLS_TTL_MS, false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

/* --- results --- */

void mcp_tool_failed_text(struct mcp_server_call *c, const char *text)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "content");
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "text");
    jsonw_kstr(&w, "text", text);
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "isError", true);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

void mcp_tool_failed(struct mcp_server_call *c, const struct err *err)
{
    auto_buf out = { 0 };

    if (c->req)
        audit_trail_set_error(c->req, err->id);
    buf_addf(&out, "%s [%s]", err->sys ? err_info(err->id)->cause : err->msg, err_info(err->id)->code);
    if (err_fix(err->id))
        buf_addf(&out, " %s", err_fix(err->id));
    mcp_tool_failed_text(c, out.data);
}

static void mcp_write_tool_result(const struct tool_result *r, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_karray(w, "content");
    jsonw_object(w);
    jsonw_kstr(w, "type", "text");
    jsonw_kstr(w, "text", r->text ? r->text : "");
    jsonw_end_object(w);
    for (size_t i = 0; i < r->nimages; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "type", "image");
        jsonw_kstr(w, "data", r->images[i].data);
        jsonw_kstr(w, "mimeType", r->images[i].type);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    if (r->json)
        jsonw_kraw(w, "structuredContent", r->json);
    jsonw_kbool(w, "isError", r->is_error);
    jsonw_end_object(w);
}

/* --- a call --- */

struct mcp_tool_work {
    const struct tool *tool;
    struct tool_call *active;    /* NULL: not started, or ended */
    json_t *arguments;           /* without `sandbox` */
    struct tool_request request; /* borrowed by the call */
    char request_id[80];
    char sandbox[ID_SIZE];
    bool is_own; /* the sandbox is that of the session */
    uint64_t output_bytes, progress_ns;
};

static void mcp_tool_work_free(struct mcp_tool_work *t)
{
    json_decref(t->arguments);
    free(t);
}

static void mcp_tool_cancel(struct mcp_server_call *c)
{
    struct mcp_tool_work *t = take_ptr(&c->work);

    c->sandbox_job = NULL;
    if (t->active)
        tool_call_cancel(t->active);
    mcp_tool_work_free(t);
}

/* Progress is the number of bytes of output so far; its message is the latest output. */
static void mcp_tool_on_output(void *arg, int channel UNUSED, const void *data, size_t len)
{
    struct mcp_server_call *c = arg;
    struct mcp_tool_work *t = c->work;
    uint64_t now = ev_now(c->mcp->settings.ev);

    t->output_bytes += len;
    if (!c->progress_token || len == 0 || (t->progress_ns && now - t->progress_ns < MCP_PROGRESS_EVERY_NS))
        return;
    t->progress_ns = now;
    while (len > 0 && strchr("\r\n", ((const char *)data)[len - 1]))
        len--;
    auto_free char *text = str_dup_n(data, strnlen(data, min_size(len, 160)));
    str_strip_control_chars(text);
    mcp_server_call_progress(c, t->output_bytes, 0, text);
}

/* A call also fails with ERR_MISSING or ERR_LOST for an execution, a context or a script. */
static bool mcp_tool_lost_sandbox(const struct mcp_server_call *c, const struct mcp_tool_work *t, const struct err *err)
{
    if (!err || !t->is_own)
        return false;
    return err->id == ERR_SANDBOX_ENDED ||
           ((err->id == ERR_MISSING || err->id == ERR_LOST) &&
            !manager_sandbox_is_live(c->mcp->settings.manager, STORE_ANY_OWNER, t->sandbox));
}

static void mcp_tool_end(struct mcp_server_call *c, const struct err *err)
{
    struct mcp_tool_work *t = take_ptr(&c->work);
    bool is_lost = mcp_tool_lost_sandbox(c, t, err);

    c->on_cancel = NULL;
    if (is_lost && c->session)
        mcp_session_sandbox_lost(c->session, t->sandbox);
    mcp_tool_work_free(t);
    if (is_lost)
        mcp_tool_failed_text(c, "the sandbox of this session has ended, and its files and processes are gone; call the "
                                "tool again to start in a new sandbox [sandbox_ended]");
    else if (err)
        mcp_tool_failed(c, err);
}

static void mcp_tool_on_end(void *arg, const struct err *err, const struct tool_result *r)
{
    struct mcp_server_call *c = arg;
    struct mcp_tool_work *t = c->work;
    auto_buf out = { 0 };
    struct jsonw w;

    t->active = NULL;
    if (!err) {
        jsonw_init(&w, &out, 0);
        mcp_write_tool_result(r, &w);
    }
    mcp_tool_end(c, err);
    if (!err)
        mcp_server_call_result(c, out.data);
}

static const struct tool_ops mcp_tool_ops = { .on_output = mcp_tool_on_output, .on_end = mcp_tool_on_end };

static void mcp_tool_record(const struct mcp_server_call *c, const struct mcp_tool_work *t)
{
    if (t->sandbox[0])
        audit_trail_add_target(c->req, "sandbox", t->sandbox);
    tool_access_record(c->req, t->tool, t->arguments);
}

static void mcp_tool_start(struct mcp_server_call *c)
{
    struct mcp_tool_work *t = c->work;
    struct err err = { 0 };

    t->request = (struct tool_request){ .tool = t->tool,
                                        .owner = mcp_server_call_visible_owner(c),
                                        .tenant = mcp_server_call_tenant(c),
                                        .created_by = principal_id(&c->principal),
                                        .request_id = t->request_id,
                                        .sandbox = t->sandbox[0] ? t->sandbox : NULL,
                                        .arguments = t->arguments,
                                        .is_for_one_sandbox = c->principal.sandbox[0] != '\0' };
    (void)str_copy(t->request_id, sizeof(t->request_id), http_id(c->req));
    mcp_tool_record(c, t);
    c->on_cancel = mcp_tool_cancel;
    if (tool_call_start(c->mcp->settings.tools, &t->request, &mcp_tool_ops, c, &t->active, &err) < 0) {
        mcp_tool_end(c, &err);
        return;
    }
    audit_trail_record_accepted(c->req);
    if (c->is_resumable && (t->tool->rights & TOOL_EXECUTES))
        mcp_server_call_begin_stream(c);
}

static void mcp_tool_on_sandbox(struct mcp_server_call *c, const char *sandbox, const struct store_sandbox *row UNUSED,
                                const struct err *err)
{
    struct mcp_tool_work *t = c->work;

    if (err) {
        mcp_tool_end(c, err);
        return;
    }
    (void)str_copy(t->sandbox, sizeof(t->sandbox), sandbox);
    t->is_own = c->session && !c->session->borrows_sandbox;
    mcp_tool_start(c);
}

/* The sandbox of a call: the argument, that of the credential, or that of the session. */
static void mcp_tool_choose_sandbox(struct mcp_server_call *c)
{
    struct mcp_tool_work *t = c->work;

    if (t->tool->place != TOOL_IN_SANDBOX || t->sandbox[0]) {
        mcp_tool_start(c);
    } else if (c->session) {
        c->on_cancel = mcp_tool_cancel;
        mcp_session_sandbox(c, mcp_tool_on_sandbox);
    } else {
        c->work = NULL;
        mcp_tool_work_free(t);
        mcp_tool_failed_text(c, "sandbox: required, because this request belongs to no session; create_sandbox returns "
                                "an id, list_sandboxes lists them, and delete_sandbox ends one [invalid_request]");
    }
}

static int mcp_tool_read_sandbox(struct mcp_server_call *c, struct mcp_tool_work *t, struct err *err)
{
    const json_t *given = json_object_get(t->arguments, "sandbox");
    const char *id = given ? json_string_value(given) : c->principal.sandbox;

    if (t->tool->place != TOOL_IN_SANDBOX)
        return 0;
    if (!id || (*id && !id_valid(id, "sb")))
        return err_set(err, ERR_INVALID, "sandbox: not the id of a sandbox; list_sandboxes lists them");
    (void)str_copy(t->sandbox, sizeof(t->sandbox), id);
    json_object_del(t->arguments, "sandbox");
    return 0;
}

static void mcp_tool_call(struct mcp_server_call *c, const struct tool *tool, const json_t *arguments)
{
    struct mcp_tool_work *t = mem_new(struct mcp_tool_work);
    struct err err = { 0 };

    t->tool = tool;
    t->arguments = arguments ? json_copy((json_t *)arguments) : json_object();
    if (mcp_tool_read_sandbox(c, t, &err) < 0) {
        mcp_tool_work_free(t);
        mcp_tool_failed(c, &err);
        return;
    }
    if (!mcp_server_call_authorize(c, mcp_tool_scopes(tool), mcp_tool_class(tool),
                                   &(struct gateway_action){ .name = mcp_tool_action(tool),
                                                             .sandbox = t->sandbox[0] ? t->sandbox : NULL,
                                                             .tool = tool->name,
                                                             .is_change = true })) {
        mcp_tool_work_free(t);
        return;
    }
    if (unread_responses_check(c->mcp->settings.gateway, mcp_server_call_tenant(c), &err) < 0) {
        mcp_tool_work_free(t);
        http_set_header(c->req, "Retry-After", "1");
        mcp_server_call_refuse(c, &err);
        return;
    }
    c->work = t;
    mcp_tool_choose_sandbox(c);
}

static const struct mcp_own_tool *mcp_own_tool_find(const char *name)
{
    for (const struct mcp_own_tool *t = mcp_sandbox_tools; t->name; t++)
        if (str_eq(t->name, name))
            return t;
    return NULL;
}

static void mcp_own_tool_call(struct mcp_server_call *c, const struct mcp_own_tool *own, const json_t *arguments)
{
    if (!mcp_server_call_authorize(
            c, own->scopes, own->class,
            &(struct gateway_action){ .name = "tool.call", .tool = own->name, .is_change = true }))
        return;
    own->fn(c, arguments);
}

void mcp_tools_call(struct mcp_server_call *c)
{
    const char *name = mcp_server_call_text(c, "name");
    const json_t *arguments = json_object_get(c->params, "arguments");
    const struct mcp_own_tool *own = name ? mcp_own_tool_find(name) : NULL;
    const struct tool *tool = name ? tool_find(name) : NULL;

    if (!name || (arguments && !json_is_object(arguments))) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, name ? "arguments: must be an object" : "name: required",
                              NULL);
        return;
    }
    if (c->mcp->fixtures && mcp_fixtures_call_tool(c, name, arguments))
        return;
    if (own) {
        mcp_own_tool_call(c, own, arguments);
    } else if (tool) {
        mcp_tool_call(c, tool, arguments);
    } else {
        auto_free char *text = str_printf("name: there is no tool '%.64s'; tools/list lists them", name);

        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, text, NULL);
    }
}
