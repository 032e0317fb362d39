/* The legacy era: initialize, the session of a client, and what later revisions removed. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define MCP_CAPABILITIES_MAX (16 * KIB) /* a session keeps them */

const char *const mcp_legacy_revisions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", NULL };

static const char *const mcp_log_levels[] = { "debug", "info",     "notice", "warning",
                                              "error", "critical", "alert",  "emergency" };

int mcp_log_level(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(mcp_log_levels); i++)
        if (str_eq(name, mcp_log_levels[i]))
            return (int)i;
    return -1;
}

static const char *mcp_choose_revision(const char *wanted)
{
    for (size_t i = 0; wanted && mcp_legacy_revisions[i]; i++)
        if (str_eq(wanted, mcp_legacy_revisions[i]))
            return mcp_legacy_revisions[i];
    return mcp_legacy_revisions[0];
}

static void mcp_copy_client_text(char *to, size_t cap, const json_t *info, const char *name)
{
    const char *text = json_string_value(json_object_get(info, name));
    size_t n = text ? min_size(strlen(text), cap - 1) : 0;

    if (n)
        memcpy(to, text, n);
    to[n] = '\0';
    str_strip_control_chars(to);
}

static void mcp_session_initialize(struct mcp_session *s, const struct mcp_server_call *c)
{
    const json_t *info = json_object_get(c->params, "clientInfo"), *can = json_object_get(c->params, "capabilities");

    s->revision = mcp_choose_revision(mcp_server_call_text(c, "protocolVersion"));
    s->log_level = -1;
    mcp_copy_client_text(s->client_name, sizeof(s->client_name), info, "name");
    mcp_copy_client_text(s->client_version, sizeof(s->client_version), info, "version");
    json_decref(s->capabilities);
    s->capabilities = json_is_object(can) ? json_deep_copy(can) : NULL;
}

/* A client with Cove-Session speaks in that session; others get one of their own. */
void mcp_legacy_initialize(struct mcp_server_call *c)
{
    auto_buf out = { 0 };
    struct jsonw w;
    struct err err = { 0 };
    struct mcp_session *s = c->session && c->session->is_bridge ? c->session : NULL;

    if (!mcp_server_call_text(c, "protocolVersion")) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "protocolVersion: required", NULL);
        return;
    }
    if (json_dumpb(json_object_get(c->params, "capabilities"), NULL, 0, JSON_COMPACT) > MCP_CAPABILITIES_MAX) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "capabilities: larger than 16 KiB", NULL);
        return;
    }
    if (!s)
        s = mcp_session_open(c->mcp, &c->principal, &err);
    if (!s) {
        mcp_server_call_refuse(c, &err);
        return;
    }
    mcp_session_initialize(s, c);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "protocolVersion", s->revision);
    jsonw_key(&w, "capabilities");
    mcp_write_capabilities(c->mcp, false, &w);
    jsonw_key(&w, "serverInfo");
    mcp_write_server_info(c->mcp, &w);
    jsonw_kstr(&w, "instructions", mcp_instructions);
    jsonw_end_object(&w);
    http_set_header(c->req, "Mcp-Session-Id", s->secret);
    mcp_server_call_result(c, out.data);
}

void mcp_legacy_ping(struct mcp_server_call *c)
{
    mcp_server_call_result(c, "{}");
}

void mcp_legacy_set_level(struct mcp_server_call *c)
{
    const char *level = mcp_server_call_text(c, "level");
    int n = level ? mcp_log_level(level) : -1;

    if (n < 0) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS,
                              "level: must be debug, info, notice, warning, error, critical, alert or emergency", NULL);
        return;
    }
    c->session->log_level = n;
    mcp_server_call_result(c, "{}");
}

static struct mcp_server_call *mcp_session_find_call(const struct mcp_session *s, const json_t *id)
{
    for (struct mcp_server_call *c = s->mcp->calls; c; c = c->next)
        if (c->session == s && c->id && json_equal(c->id, id) && !c->is_cancelled)
            return c;
    return NULL;
}

void mcp_legacy_notification(struct mcp_session *s, const struct jsonrpc_message *message)
{
    struct mcp_server_call *c;

    mcp_session_touch(s);
    if (!str_eq(message->method, "notifications/cancelled"))
        return;
    c = mcp_session_find_call(s, json_object_get(message->params, "requestId"));
    if (c && (!c->method || !str_eq(c->method->name, "initialize")))
        mcp_server_call_cancel(c);
}

void mcp_legacy_reply(struct mcp_session *s, const struct jsonrpc_message *message)
{
    void (*on_reply)(struct mcp_server_call *, const struct jsonrpc_message *);

    mcp_session_touch(s);
    for (struct mcp_server_call *c = s->mcp->calls; c; c = c->next) {
        if (c->session != s || !c->on_reply || !json_is_integer(message->id) ||
            json_integer_value(message->id) != c->asked_id)
            continue;
        on_reply = c->on_reply;
        c->on_reply = NULL;
        on_reply(c, message);
        return;
    }
}

/* --- GET and DELETE --- */

static struct mcp_session *mcp_legacy_session(struct http_req *req, struct mcp *m)
{
    const char *secret = http_header(req, "Mcp-Session-Id");
    const char *revision = http_header(req, "MCP-Protocol-Version");
    struct mcp_session *s = secret ? mcp_session_find(m, gateway_principal(req), secret) : NULL;

    if (!secret && revision && str_eq(revision, MCP_MODERN_REVISION)) {
        http_set_header(req, "Allow", "POST");
        http_refuse(req, ERR_HTTP_METHOD, "revision " MCP_MODERN_REVISION " uses only POST");
        return NULL;
    }
    if (!secret)
        http_refuse(req, ERR_INVALID, "Mcp-Session-Id: required; POST initialize returns it");
    else if (!s)
        http_refuse(req, ERR_MISSING,
                    "Mcp-Session-Id: there is no such session; it has ended, or the server was "
                    "restarted; send initialize again");
    return s;
}

void mcp_legacy_get(struct http_req *req, struct mcp *m)
{
    struct mcp_session *s = mcp_legacy_session(req, m);
    const char *last = http_header(req, "Last-Event-ID");

    if (!s)
        return;
    mcp_session_touch(s);
    if (last)
        mcp_replay_resume(req, s, last);
    else
        mcp_listener_open(req, s);
}

void mcp_legacy_delete(struct http_req *req, struct mcp *m)
{
    struct mcp_session *s = mcp_legacy_session(req, m);

    if (!s)
        return;
    audit_trail_add_target(req, "mcp_session", s->id);
    mcp_session_end(s);
    http_answer_empty(req, 204);
}
