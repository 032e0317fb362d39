/* The modern era (2026-07-28): each request carries its version and the capabilities of its client,
 * and headers repeat what a proxy needs. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <strings.h>

#define MCP_DISCOVER_TTL_MS 3600000u

const char mcp_instructions[] =
    "cove runs code and commands in isolated sandboxes on a server. Tools that act in a sandbox take its id in the "
    "argument sandbox. Without it, a session with the server uses one sandbox of its own, which is created by the "
    "first such call; other clients create one with create_sandbox. Files persist in a sandbox until it ends.";

void mcp_write_server_info(const struct mcp *m, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", "cove");
    jsonw_kstr(w, "title", "cove");
    jsonw_kstr(w, "version", m->settings.version);
    jsonw_end_object(w);
}

/* The lists of the server never change while it runs; those of the fixtures do. */
static void mcp_write_list_capability(const struct mcp *m, struct jsonw *w, const char *name)
{
    jsonw_kobject(w, name);
    if (m->fixtures)
        jsonw_kbool(w, "listChanged", true);
    jsonw_end_object(w);
}

void mcp_write_capabilities(const struct mcp *m, bool is_modern, struct jsonw *w)
{
    jsonw_object(w);
    mcp_write_list_capability(m, w, "tools");
    jsonw_kobject(w, "resources");
    jsonw_kbool(w, "subscribe", true);
    jsonw_end_object(w);
    mcp_write_list_capability(m, w, "prompts");
    jsonw_kobject(w, "completions");
    jsonw_end_object(w);
    if (!is_modern) {
        jsonw_kobject(w, "logging");
        jsonw_end_object(w);
    }
    jsonw_end_object(w);
}

/* A request is modern if it says so in one of the two places, or uses a method that only the modern
 * era has. */
bool mcp_is_modern(const struct http_req *req, const struct jsonrpc_message *message)
{
    const char *header = http_header(req, "MCP-Protocol-Version");
    const json_t *meta = json_object_get(message->params, "_meta");

    if (json_object_get(meta, MCP_META "protocolVersion") || (header && str_eq(header, MCP_MODERN_REVISION)))
        return true;
    return message->method &&
           (str_eq(message->method, "server/discover") || str_eq(message->method, "subscriptions/listen"));
}

static void mcp_modern_mismatch(struct mcp_server_call *c, const char *header, const char *reason)
{
    auto_free char *text = str_printf("%s: %s", header, reason);

    mcp_server_call_error_status(c, 400, MCP_HEADER_MISMATCH, text, NULL);
}

/* A header value: outer whitespace does not count, and =?base64?...?= holds any bytes. */
static bool mcp_header_equals(const char *value, const char *expected)
{
    size_t len;
    auto_buf plain = { 0 };

    value += strspn(value, " \t");
    len = strlen(value);
    while (len > 0 && strchr(" \t", value[len - 1]))
        len--;
    if (len > 11 && strncmp(value, "=?base64?", 9) == 0 && strncmp(value + len - 2, "?=", 2) == 0)
        return text_from_base64(&plain, value + 9, len - 11) && plain.len == strlen(expected) &&
               (plain.len == 0 || memcmp(plain.data, expected, plain.len) == 0);
    return strlen(expected) == len && strncmp(value, expected, len) == 0;
}

static bool mcp_check_header(struct mcp_server_call *c, const char *name, const char *expected)
{
    const char *value = http_header(c->req, name);

    if (value && mcp_header_equals(value, expected))
        return true;
    mcp_modern_mismatch(c, name, value ? "differs from the message" : "required");
    return false;
}

static void mcp_modern_refuse_version(struct mcp_server_call *c, const char *requested)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "supported");
    jsonw_str(&w, MCP_MODERN_REVISION);
    jsonw_end_array(&w);
    jsonw_kstr(&w, "requested", requested);
    jsonw_end_object(&w);
    mcp_server_call_error_status(c, 400, MCP_VERSION_UNSUPPORTED, "this server does not support the protocol version",
                                 out.data);
}

/* The name of a tool, a prompt or a resource. A wrong type is reported by the method. */
static const char *mcp_expected_name(const struct mcp_server_call *c)
{
    for (const struct mcp_served_method *m = mcp_methods; m->name; m++)
        if (m->name_param && str_eq(m->name, c->message.method))
            return mcp_server_call_text(c, m->name_param);
    return NULL;
}

bool mcp_modern_check(struct mcp_server_call *c)
{
    const char *version = json_string_value(json_object_get(c->meta, MCP_META "protocolVersion")), *name;

    if (!version || !json_is_object(c->capabilities)) {
        mcp_server_call_error_status(c, 400, JSONRPC_INVALID_PARAMS,
                                     version ? "params._meta: " MCP_META "clientCapabilities is required"
                                             : "params._meta: " MCP_META "protocolVersion is required",
                                     NULL);
        return false;
    }
    if (!mcp_check_header(c, "MCP-Protocol-Version", version))
        return false;
    if (!str_eq(version, MCP_MODERN_REVISION)) {
        mcp_modern_refuse_version(c, version);
        return false;
    }
    name = mcp_expected_name(c);
    return mcp_check_header(c, "Mcp-Method", c->message.method) && (!name || mcp_check_header(c, "Mcp-Name", name));
}

void mcp_modern_discover(struct mcp_server_call *c)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "supportedVersions");
    jsonw_str(&w, MCP_MODERN_REVISION);
    jsonw_end_array(&w);
    jsonw_key(&w, "capabilities");
    mcp_write_capabilities(c->mcp, true, &w);
    jsonw_kstr(&w, "instructions", mcp_instructions);
    mcp_server_call_write_cache_hints(c, &w, MCP_DISCOVER_TTL_MS, true);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}
