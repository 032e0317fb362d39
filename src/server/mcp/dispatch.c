/* From the body of POST /mcp to the function of a method. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <stdio.h>
#include <strings.h>

#define MCP_CURSOR_MAX 64u
#define MCP_PENDING_BYTES_MAX (64 * MIB) /* messages of a tenant that are not answered */
#define MCP_VALUE_BYTES 96u              /* of memory for one value of JSON, at most */
#define MCP_CALL_BYTES (4 * KIB)         /* of memory for a call besides its message, at most */

const struct mcp_served_method mcp_methods[] = {
    { "initialize", mcp_legacy_initialize, .is_legacy = true },
    { "ping", mcp_legacy_ping, .is_legacy = true },
    { "logging/setLevel", mcp_legacy_set_level, .is_legacy = true },
    { "resources/subscribe", mcp_resources_subscribe, .is_legacy = true },
    { "resources/unsubscribe", mcp_resources_unsubscribe, .is_legacy = true },
    { "server/discover", mcp_modern_discover, .is_modern = true },
    { "subscriptions/listen", mcp_subscriptions_listen, .is_modern = true },
    { "tools/list", mcp_tools_list, .is_legacy = true, .is_modern = true },
    { "tools/call", mcp_tools_call, .is_legacy = true, .is_modern = true, .name_param = "name" },
    { "resources/list", mcp_resources_list, .is_legacy = true, .is_modern = true },
    { "resources/templates/list", mcp_resource_templates_list, .is_legacy = true, .is_modern = true },
    { "resources/read", mcp_resources_read, .is_legacy = true, .is_modern = true, .name_param = "uri" },
    { "prompts/list", mcp_prompts_list, .is_legacy = true, .is_modern = true },
    { "prompts/get", mcp_prompts_get, .is_legacy = true, .is_modern = true, .name_param = "name" },
    { "completion/complete", mcp_complete, .is_legacy = true, .is_modern = true },
    { 0 },
};
_Static_assert(ARRAY_LEN(mcp_methods) <= MCP_METHODS_MAX, "a method has a row of counters");

static const struct mcp_served_method *mcp_method_find(const char *name, bool is_modern)
{
    for (const struct mcp_served_method *m = mcp_methods; m->name; m++)
        if (str_eq(m->name, name) && (is_modern ? m->is_modern : m->is_legacy))
            return m;
    return NULL;
}

/* --- cursors --- */

void mcp_write_cursor(struct jsonw *w, const char *list, size_t position)
{
    auto_buf out = { 0 };
    char text[MCP_CURSOR_MAX];

    snprintf(text, sizeof(text), "%s:%zu", list, position);
    text_base64url(&out, text, strlen(text));
    jsonw_kstr(w, "nextCursor", out.data);
}

bool mcp_read_cursor(struct mcp_server_call *c, const char *list, size_t *ret)
{
    const json_t *given = json_object_get(c->params, "cursor");
    const char *text = json_string_value(given), *p;
    uint8_t plain[MCP_CURSOR_MAX + 2];
    size_t len = 0;
    uint64_t position = 0;

    *ret = 0;
    if (!given)
        return true;
    if (text && strlen(text) <= MCP_CURSOR_MAX && text_from_base64url(text, strlen(text), plain, &len)) {
        plain[len] = '\0';
        p = (const char *)plain;
        if (str_eat(&p, list) && str_eat(&p, ":") && str_to_u64(p, UINT32_MAX, &position)) {
            *ret = (size_t)position;
            return true;
        }
    }
    mcp_server_call_error(c, JSONRPC_INVALID_PARAMS,
                          "cursor: not a cursor of this list; pass the nextCursor of the previous page", NULL);
    return false;
}

/* --- requests --- */

/* An answer to a message that is not a call: its id is known only in part. */
static void mcp_refuse_message(struct http_req *req, int status, const json_t *id, int64_t code, const char *text)
{
    struct buf out = { 0 };

    jsonrpc_write_error(&out, id, code, text, NULL);
    http_answer_json(req, status, &out);
}

static bool mcp_accepts(const struct http_req *req, const char *type)
{
    const char *accept = http_header(req, "Accept");

    return accept && (strcasestr(accept, type) || strstr(accept, "*/*"));
}

/* The session that a request names. *ret NULL: none. False: the request was answered. */
static bool mcp_find_session(struct http_req *req, struct mcp *m, bool is_modern, const json_t *id,
                             struct mcp_session **ret)
{
    const char *legacy = is_modern ? NULL : http_header(req, "Mcp-Session-Id"),
               *bridge = http_header(req, "Cove-Session");
    const struct principal *p = gateway_principal(req);

    *ret = NULL;
    if (legacy)
        *ret = mcp_session_find(m, p, legacy);
    else if (bridge)
        *ret = mcp_session_find(m, p, bridge);
    if (*ret || (!legacy && !bridge))
        return true;
    mcp_refuse_message(req, 404, id, JSONRPC_INVALID_REQUEST,
                       legacy ? "Mcp-Session-Id: there is no such session; it has ended, or the server was restarted; "
                                "send initialize again"
                              : "Cove-Session: there is no such session; open one with POST /v1/mcp/sessions");
    return false;
}

static bool mcp_check_legacy_revision(struct http_req *req, const json_t *id)
{
    const char *revision = http_header(req, "MCP-Protocol-Version");

    for (size_t i = 0; revision && mcp_legacy_revisions[i]; i++)
        if (str_eq(revision, mcp_legacy_revisions[i]))
            return true;
    if (!revision)
        return true;
    mcp_refuse_message(req, 400, id, JSONRPC_INVALID_REQUEST,
                       "MCP-Protocol-Version: this server does not support the version; use 2025-11-25");
    return false;
}

static void mcp_server_call_read_meta(struct mcp_server_call *c)
{
    const json_t *token, *level;

    c->meta = json_object_get(c->params, "_meta");
    token = json_object_get(c->meta, "progressToken");
    c->progress_token = json_is_string(token) || json_is_integer(token) ? token : NULL;
    c->log_level = c->session && !c->is_modern ? c->session->log_level : -1;
    if (!c->is_modern) {
        c->capabilities = c->session ? json_incref(c->session->capabilities) : NULL;
        return;
    }
    c->capabilities = json_incref(json_object_get(c->meta, MCP_META "clientCapabilities"));
    level = json_object_get(c->meta, MCP_META "logLevel");
    if (json_is_string(level))
        c->log_level = mcp_log_level(json_string_value(level));
}

/* A message is kept until its call ends, and in the legacy era a call outlives its connection. */
static size_t mcp_message_bytes(const struct http_req *req)
{
    size_t len, bytes;
    const char *text = http_body(req, &len);

    bytes = len + (size_t)MCP_CALL_BYTES;
    for (size_t i = 0; i < len; i++)
        if (text[i] == ',' || text[i] == '[' || text[i] == '{')
            bytes += MCP_VALUE_BYTES;
    return bytes;
}

static bool mcp_may_keep_message(struct http_req *req, const struct mcp *m, size_t bytes)
{
    const char *tenant = gateway_principal(req)->owner;
    size_t kept = 0;

    for (const struct mcp_server_call *c = m->calls; c; c = c->next)
        kept += str_eq(c->principal.owner, tenant) ? c->message_bytes : 0;
    if (kept == 0 || kept + bytes <= MCP_PENDING_BYTES_MAX)
        return true;
    http_set_header(req, "Retry-After", "1");
    http_refuse(req, ERR_EXECUTOR_FULL,
                "%zu MiB of requests are not answered yet; wait for their answers before you send more",
                kept / (size_t)MIB);
    return false;
}

static void mcp_start_request(struct http_req *req, struct mcp *m, struct mcp_session *s,
                              struct jsonrpc_message *message, bool is_modern)
{
    size_t bytes = mcp_message_bytes(req);
    struct mcp_server_call *c;

    if (!mcp_may_keep_message(req, m, bytes))
        return;
    c = mem_new(struct mcp_server_call);
    *c = (struct mcp_server_call){ .mcp = m,
                                   .session = s,
                                   .req = req,
                                   .principal = *gateway_principal(req),
                                   .message = *message,
                                   .message_bytes = bytes,
                                   .id = message->id,
                                   .params = message->params,
                                   .is_modern = is_modern,
                                   .accepts_stream = mcp_accepts(req, "text/event-stream") };
    *message = (struct jsonrpc_message){ 0 };
    c->is_resumable = s && !is_modern && s->revision && str_eq(s->revision, mcp_legacy_revisions[0]);
    mcp_server_call_read_meta(c);
    if (s)
        mcp_session_touch(s);
    mcp_server_call_start(c);
    if (is_modern && !mcp_modern_check(c))
        return;
    c->method = mcp_method_find(c->message.method, is_modern);
    if (c->method)
        c->method->fn(c);
    else
        mcp_server_call_error_status(c, is_modern ? 404 : 200, JSONRPC_METHOD_NOT_FOUND,
                                     "the server has no such method", NULL);
}

static void mcp_take_message(struct http_req *req, struct mcp *m, struct jsonrpc_message *message)
{
    bool is_modern = mcp_is_modern(req, message);
    bool opens = !is_modern && message->kind == JSONRPC_REQUEST && str_eq(message->method, "initialize");
    struct mcp_session *s = NULL;

    if ((!is_modern && !opens && !mcp_check_legacy_revision(req, message->id)) ||
        !mcp_find_session(req, m, is_modern, message->id, &s))
        return;
    if (!is_modern && !opens && !(s && s->revision)) {
        mcp_refuse_message(
            req, 400, message->id, JSONRPC_INVALID_REQUEST,
            "Mcp-Session-Id: required after initialize; or send a request of revision " MCP_MODERN_REVISION);
        return;
    }
    if (message->kind == JSONRPC_REQUEST) {
        mcp_start_request(req, m, s, message, is_modern);
        return;
    }
    if (!is_modern && message->kind == JSONRPC_NOTIFICATION)
        mcp_legacy_notification(s, message);
    else if (!is_modern)
        mcp_legacy_reply(s, message);
    http_answer_empty(req, 202);
}

void mcp_dispatch(struct http_req *req, struct mcp *m)
{
    struct jsonrpc_message message;
    struct err err = { 0 };
    size_t len;
    const char *text = http_body(req, &len);
    int code;

    if (jsonrpc_parse(text, len, &message, &code, &err) < 0)
        mcp_refuse_message(req, 400, message.id, code, err.msg);
    else
        mcp_take_message(req, m, &message);
    jsonrpc_message_done(&message);
}
