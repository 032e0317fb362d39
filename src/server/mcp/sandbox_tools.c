/* The tools that make, list and end sandboxes, for clients without a session. */
#include "server/mcp/mcp_internal.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define MCP_SANDBOXES_LISTED 100u
#define MCP_LIFETIME_MAX (86400000u * 30u)

static const char *const mcp_sandbox_states[] = { "creating", "running", "paused", "ended" };

static const char mcp_create_sandbox_definition[] =
    "{\"name\":\"create_sandbox\",\"title\":\"Create a sandbox\",\"description\":\"Creates an isolated sandbox and "
    "returns its id, which other tools take as the argument sandbox. The sandbox ends at expiresAt, by default 5 "
    "minutes after its creation, and its files are then gone; ask for a longer lifetimeMs if the work takes longer, "
    "and call delete_sandbox when the work is done. In a session this tool is needed only for a second "
    "sandbox.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"template\":{\"type\":\"string\","
    "\"description\":\"Name of a template; without it, a sandbox with Python.\"},\"name\":{\"type\":\"string\","
    "\"description\":\"Name of the sandbox, unique among those of the tenant.\"},\"lifetimeMs\":{\"type\":\"integer\","
    "\"minimum\":1000,\"description\":\"Milliseconds until the sandbox ends.\"}},\"additionalProperties\":false},"
    "\"outputSchema\":{\"type\":\"object\",\"properties\":{\"sandbox\":{\"type\":\"string\"},\"state\":{\"type\":"
    "\"string\"},\"template\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"},\"createdAt\":{\"type\":\"string\"},"
    "\"expiresAt\":{\"type\":\"string\"}},\"required\":[\"sandbox\",\"state\"]},\"annotations\":{\"title\":\"Create a "
    "sandbox\",\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":false,\"openWorldHint\":false}}";

static const char mcp_list_sandboxes_definition[] =
    "{\"name\":\"list_sandboxes\",\"title\":\"List sandboxes\",\"description\":\"Lists the sandboxes that have not "
    "ended, newest first, at most 100, with the time at which each expires.\",\"inputSchema\":{\"type\":\"object\","
    "\"properties\":{},\"additionalProperties\":false},\"outputSchema\":{\"type\":\"object\",\"properties\":{"
    "\"sandboxes\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"sandbox\":{\"type\":\"string\"}"
    ","
    "\"state\":{\"type\":\"string\"},\"template\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"},\"createdAt\":{"
    "\"type\":\"string\"},\"expiresAt\":{\"type\":\"string\"}},\"required\":[\"sandbox\",\"state\"]}},\"truncated\":{"
    "\"type\":\"boolean\"}},\"required\":[\"sandboxes\",\"truncated\"]},\"annotations\":{\"title\":\"List sandboxes\","
    "\"readOnlyHint\":true,\"destructiveHint\":false,\"idempotentHint\":true,\"openWorldHint\":false}}";

static const char mcp_delete_sandbox_definition[] =
    "{\"name\":\"delete_sandbox\",\"title\":\"Delete a sandbox\",\"description\":\"Ends a sandbox now: its programs "
    "are "
    "killed and its files removed.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"sandbox\":{\"type\":"
    "\"string\",\"description\":\"Id of the sandbox.\"}},\"required\":[\"sandbox\"],\"additionalProperties\":false},"
    "\"outputSchema\":{\"type\":\"object\",\"properties\":{\"sandbox\":{\"type\":\"string\"},\"state\":{\"type\":"
    "\"string\"},\"template\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"},\"createdAt\":{\"type\":\"string\"},"
    "\"expiresAt\":{\"type\":\"string\"}},\"required\":[\"sandbox\",\"state\"]},\"annotations\":{\"title\":\"Delete a "
    "sandbox\",\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,\"openWorldHint\":false}}";

static void mcp_write_sandbox(const struct store_sandbox *row, struct jsonw *w)
{
    char text[32];

    jsonw_object(w);
    jsonw_kstr(w, "sandbox", row->id);
    jsonw_kstr(w, "state", mcp_sandbox_states[row->state]);
    jsonw_kstr_if(w, "template", row->template);
    jsonw_kstr_if(w, "name", row->name);
    jsonw_kstr(w, "createdAt", clock_rfc3339_ms(row->created_ms, text));
    if (row->expires_ms && row->state != STORE_SANDBOX_ENDED)
        jsonw_kstr(w, "expiresAt", clock_rfc3339_ms(row->expires_ms, text));
    jsonw_end_object(w);
}

/* The same JSON as text and as structured content. */
static void mcp_own_tool_result(struct mcp_server_call *c, const struct buf *json)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "content");
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "text");
    jsonw_kstr(&w, "text", json->data);
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    jsonw_kraw(&w, "structuredContent", json->data);
    jsonw_kbool(&w, "isError", false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

static void mcp_own_tool_answer_row(struct mcp_server_call *c, const struct store_sandbox *row)
{
    auto_buf json = { 0 };
    struct jsonw w;

    jsonw_init(&w, &json, 0);
    mcp_write_sandbox(row, &w);
    mcp_own_tool_result(c, &json);
}

static void mcp_on_sandbox_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    if (err)
        mcp_tool_failed(arg, err);
    else
        mcp_own_tool_answer_row(arg, row);
}

/* --- create_sandbox --- */

static void mcp_create_sandbox_done(struct mcp_server_call *c, const char *sandbox UNUSED,
                                    const struct store_sandbox *row, const struct err *err)
{
    mcp_on_sandbox_row(c, err, row);
}

/* Hints about a failed connection name the field of the REST interface. */
static int mcp_create_sandbox_check_network(const json_t *arguments, struct err *err)
{
    if (!json_object_get(arguments, "network"))
        return 0;
    return err_set(err, ERR_INVALID,
                   "network: a tool does not choose it; name a template that has a network, or ask the user for one "
                   "(cove template set --allow HOST NAME, or cove mcp --local --allow HOST)");
}

static void mcp_tool_create_sandbox(struct mcp_server_call *c, const json_t *arguments)
{
    static const char *const names[] = { "template", "name", "lifetimeMs", NULL };
    auto_json *empty = json_object();
    const json_t *a = arguments ? arguments : empty;
    struct mcp_sandbox_spec spec = { 0 };
    struct err err = { 0 };

    if (mcp_create_sandbox_check_network(a, &err) < 0 || json_input_require_known_fields(a, "", names, &err) < 0 ||
        json_input_text(a, "", "template", 1, STORE_NAME_MAX, &spec.template, &err) < 0 ||
        json_input_text(a, "", "name", 1, SPEC_NAME_MAX, &spec.name, &err) < 0 ||
        json_input_u64(a, "", "lifetimeMs", 1000, MCP_LIFETIME_MAX, &spec.lifetime_ms, NULL, &err) < 0)
        mcp_tool_failed(c, &err);
    else
        mcp_create_sandbox(c, &spec, NULL, mcp_create_sandbox_done);
}

/* --- list_sandboxes --- */

static void mcp_on_sandbox_rows(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n,
                                const char *next)
{
    auto_buf json = { 0 };
    struct jsonw w;

    if (err) {
        mcp_tool_failed(arg, err);
        return;
    }
    jsonw_init(&w, &json, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "sandboxes");
    for (size_t i = 0; i < n; i++)
        mcp_write_sandbox(&rows[i], &w);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "truncated", next != NULL);
    jsonw_end_object(&w);
    mcp_own_tool_result(arg, &json);
}

static void mcp_tool_list_sandboxes(struct mcp_server_call *c, const json_t *arguments)
{
    struct store_list q = { .owner = mcp_server_call_tenant(c),
                            .limit = MCP_SANDBOXES_LISTED,
                            .states = STORE_BIT(STORE_SANDBOX_CREATING) | STORE_BIT(STORE_SANDBOX_RUNNING) |
                                      STORE_BIT(STORE_SANDBOX_PAUSED) };
    static const char *const names[] = { NULL };
    struct err err = { 0 };

    if (arguments && json_input_require_known_fields(arguments, "", names, &err) < 0)
        mcp_tool_failed(c, &err);
    else
        store_sandbox_list(c->mcp->settings.store, &q, mcp_on_sandbox_rows, c);
}

/* --- delete_sandbox --- */

static void mcp_tool_delete_sandbox(struct mcp_server_call *c, const json_t *arguments)
{
    static const char *const names[] = { "sandbox", NULL };
    const char *id = NULL;
    struct err err = { 0 };

    if ((arguments && (json_input_require_known_fields(arguments, "", names, &err) < 0 ||
                       json_input_text(arguments, "", "sandbox", 1, 64, &id, &err) < 0)) ||
        !id || !id_valid(id, "sb")) {
        if (err.id == ERR_NONE)
            err_set(&err, ERR_INVALID, "sandbox: must be the id of a sandbox; list_sandboxes lists them");
        mcp_tool_failed(c, &err);
        return;
    }
    audit_trail_add_target(c->req, "sandbox", id);
    if (c->session)
        mcp_session_sandbox_lost(c->session, id);
    manager_delete(c->mcp->settings.manager, mcp_server_call_visible_owner(c), id, mcp_on_sandbox_row, c);
}

const struct mcp_own_tool mcp_sandbox_tools[] = {
    { mcp_create_sandbox_definition, "create_sandbox", SCOPE_BIT(SANDBOXES_WRITE), AUTH_CLASS_DEFAULT,
      mcp_tool_create_sandbox },
    { mcp_list_sandboxes_definition, "list_sandboxes", SCOPE_BIT(SANDBOXES_READ), AUTH_CLASS_DEFAULT,
      mcp_tool_list_sandboxes },
    { mcp_delete_sandbox_definition, "delete_sandbox", SCOPE_BIT(SANDBOXES_WRITE), AUTH_CLASS_DEFAULT,
      mcp_tool_delete_sandbox },
    { 0 },
};
