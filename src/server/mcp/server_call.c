/* One request of a client, from its message to its answer.
 *
 * The answer is one JSON object, or an event stream that begins with the first notification and
 * ends with the result. A client that disconnects cancels its call in the modern era. In the legacy
 * era the call continues: its messages are kept for a while, and the client may resume the stream.
 *
 * Invariants: 1. a call is in the list of the server until it is freed; 2. the HTTP request is
 * answered exactly once, and c->req is NULL afterwards; 3. a method whose work cannot be stopped
 * finds its call alive when the work ends. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/gateway/unread_responses.h"

#define MCP_PROGRESS_TEXT_MAX 200u
#define MCP_UNREAD_MIN (16 * KIB) /* smaller answers do not count as unread memory */

static void mcp_server_call_free(struct mcp_server_call *c)
{
    linked_remove(c);
    if (c->session)
        mcp_session_touch(c->session);
    open_stream_unregister(&c->open_stream);
    ev_timer_clear(c->mcp->settings.ev, &c->timer);
    mcp_replay_finish(c);
    json_decref(c->capabilities);
    jsonrpc_message_done(&c->message);
    free(c);
}

static void mcp_server_call_count(struct mcp_server_call *c, enum mcp_outcome outcome)
{
    size_t row = c->method ? (size_t)(c->method - mcp_methods) : MCP_METHODS_MAX;

    c->mcp->counts[row][outcome]++;
}

/* --- ends without an answer --- */

/* The HTTP request still needs its one answer: an empty stream. */
static void mcp_server_call_close_request(struct mcp_server_call *c)
{
    struct http_req *req = take_ptr(&c->req);

    if (!req)
        return;
    http_on_client_gone(req, NULL, NULL);
    if (c->state == MCP_ANSWER_NONE && !c->accepts_stream) {
        http_answer_empty(req, 202);
        return;
    }
    if (c->state == MCP_ANSWER_NONE)
        http_answer_events(req);
    http_stream_end(req);
}

void mcp_server_call_cancel(struct mcp_server_call *c)
{
    if (c->is_cancelled)
        return;
    mcp_server_call_count(c, MCP_CANCELLED);
    c->is_cancelled = true;
    mcp_server_call_close_request(c);
    open_stream_unregister(&c->open_stream);
    if (!c->on_cancel)
        return;
    c->on_cancel(c);
    mcp_server_call_free(c);
}

static void mcp_server_call_on_client_gone(void *arg)
{
    struct mcp_server_call *c = arg;

    if (c->is_modern)
        mcp_server_call_cancel(c);
    else
        http_stream_break(take_ptr(&c->req));
}

static void mcp_server_call_on_credential_end(void *arg, const struct err *why)
{
    struct mcp_server_call *c = arg;

    if (c->req && c->state == MCP_ANSWER_NONE) {
        http_on_client_gone(c->req, NULL, NULL);
        http_answer_err(take_ptr(&c->req), why);
    }
    mcp_server_call_cancel(c);
}

void mcp_server_call_start(struct mcp_server_call *c)
{
    linked_push(&c->mcp->calls, c);
    open_stream_register(&c->open_stream, c->mcp->settings.gateway, &c->principal, mcp_server_call_on_credential_end,
                         c);
    if (!c->is_modern || http_client_is_gone(c->req))
        return;
    http_on_client_gone(c->req, mcp_server_call_on_client_gone, c);
    http_require_client(c->req);
}

void mcp_calls_free(struct mcp *m)
{
    struct mcp_server_call *next;

    for (struct mcp_server_call *c = m->calls; c; c = next) {
        next = c->next;
        c->req = NULL; /* the HTTP server is gone */
        if (c->on_cancel)
            c->on_cancel(c);
        mcp_server_call_free(c);
    }
}

/* --- streams --- */

static void mcp_server_call_send(struct mcp_server_call *c, const struct buf *message)
{
    char id[MCP_EVENT_ID_SIZE] = "";

    if (c->replay)
        mcp_replay_add(c, message->data, id);
    if (c->req)
        http_stream_event(c->req, id[0] ? id : NULL, NULL, message->data);
}

void mcp_server_call_attach(struct mcp_server_call *c, struct http_req *req)
{
    if (c->req) {
        http_on_client_gone(c->req, NULL, NULL);
        http_stream_break(c->req);
    }
    c->req = req;
    http_on_client_gone(req, mcp_server_call_on_client_gone, c);
    http_require_client(req);
}

/* The first event has an id and no data: a client that loses the connection now can resume. */
static void mcp_server_call_prime_stream(struct mcp_server_call *c)
{
    char id[MCP_EVENT_ID_SIZE];

    c->replay = mcp_replay_new(c);
    mcp_replay_add(c, "", id);
    http_stream_write(c->req, "retry: 1000\n", 12);
    http_stream_event(c->req, id, NULL, "");
}

bool mcp_server_call_begin_stream(struct mcp_server_call *c)
{
    if (c->state == MCP_ANSWER_STREAM)
        return true;
    if (!c->req || !c->accepts_stream)
        return false;
    c->state = MCP_ANSWER_STREAM;
    http_answer_events(c->req);
    if (c->session && c->is_resumable)
        mcp_server_call_prime_stream(c);
    if (!c->is_modern) {
        http_on_client_gone(c->req, mcp_server_call_on_client_gone, c);
        http_require_client(c->req);
    }
    return true;
}

void mcp_server_call_notify(struct mcp_server_call *c, const char *method, const char *params)
{
    auto_buf out = { 0 };

    if (c->is_cancelled || !mcp_server_call_begin_stream(c) || (c->req && http_stream_room(c->req) == 0))
        return;
    jsonrpc_write_notification(&out, method, params);
    mcp_server_call_send(c, &out);
}

void mcp_server_call_progress(struct mcp_server_call *c, uint64_t progress, uint64_t total, const char *message)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (!c->progress_token)
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    if (json_is_string(c->progress_token))
        jsonw_kstr(&w, "progressToken", json_string_value(c->progress_token));
    else
        jsonw_ki64(&w, "progressToken", json_integer_value(c->progress_token));
    jsonw_ku64(&w, "progress", progress);
    if (total)
        jsonw_ku64(&w, "total", total);
    if (message && *message) {
        jsonw_key(&w, "message");
        jsonw_strn(&w, message, min_size(strlen(message), MCP_PROGRESS_TEXT_MAX));
    }
    jsonw_end_object(&w);
    mcp_server_call_notify(c, "notifications/progress", out.data);
}

bool mcp_server_call_ask(struct mcp_server_call *c, const char *method, const char *params,
                         void (*on_reply)(struct mcp_server_call *c, const struct jsonrpc_message *m))
{
    auto_buf out = { 0 };

    if (!c->session || !mcp_server_call_begin_stream(c))
        return false;
    c->asked_id = ++c->session->asked;
    c->on_reply = on_reply;
    json_t *id = json_integer(c->asked_id);
    jsonrpc_write_request(&out, id, method, params);
    json_decref(id);
    mcp_server_call_send(c, &out);
    return true;
}

/* --- answers --- */

static void mcp_server_call_finish(struct mcp_server_call *c, int status, struct buf *message, enum mcp_outcome outcome)
{
    struct http_req *req = c->req;

    if (!c->is_cancelled)
        mcp_server_call_count(c, outcome);
    if (req)
        http_on_client_gone(req, NULL, NULL);
    if (req && message->len > MCP_UNREAD_MIN)
        unread_responses_add(req, c->mcp->settings.gateway, c->principal.owner, message->len);
    if (c->state == MCP_ANSWER_STREAM) {
        mcp_server_call_send(c, message);
        if (req)
            http_stream_end(req);
    } else if (req) {
        http_answer_json(req, status, message);
        *message = (struct buf){ 0 };
    }
    c->req = NULL;
    mcp_server_call_free(c);
}

/* The result is written by this server, so it begins with a brace. */
static void mcp_server_call_write_modern_result(struct mcp_server_call *c, const char *object, struct buf *out)
{
    struct jsonw w;

    if (str_starts(object, "{\"resultType\":"))
        buf_adds(out, "{");
    else
        buf_adds(out, "{\"resultType\":\"complete\",");
    buf_adds(out, "\"_meta\":{\"" MCP_META "serverInfo\":");
    jsonw_init(&w, out, 0);
    mcp_write_server_info(c->mcp, &w);
    buf_adds(out, object[1] == '}' ? "}" : "},");
    buf_adds(out, object + 1);
}

void mcp_server_call_result(struct mcp_server_call *c, const char *object)
{
    auto_buf out = { 0 };
    auto_buf result = { 0 };

    if (c->is_modern)
        mcp_server_call_write_modern_result(c, object, &result);
    jsonrpc_write_result(&out, c->id, c->is_modern ? result.data : object);
    mcp_server_call_finish(c, 200, &out, MCP_ANSWERED);
}

void mcp_server_call_error_status(struct mcp_server_call *c, int status, int64_t code, const char *text,
                                  const char *data)
{
    auto_buf out = { 0 };

    jsonrpc_write_error(&out, c->id, code, text, data);
    mcp_server_call_finish(c, status, &out, MCP_FAILED);
}

void mcp_server_call_error(struct mcp_server_call *c, int64_t code, const char *text, const char *data)
{
    mcp_server_call_error_status(c, 200, code, text, data);
}

void mcp_server_call_end_refused(struct mcp_server_call *c)
{
    mcp_server_call_count(c, MCP_FAILED);
    c->req = NULL;
    mcp_server_call_free(c);
}

void mcp_server_call_refuse(struct mcp_server_call *c, const struct err *err)
{
    if (c->req) {
        http_on_client_gone(c->req, NULL, NULL);
        http_answer_err(c->req, err);
    }
    mcp_server_call_end_refused(c);
}

/* --- what methods ask of a call --- */

const char *mcp_server_call_visible_owner(const struct mcp_server_call *c)
{
    return principal_has_scopes(&c->principal, SCOPE_BIT(ADMIN)) ? STORE_ANY_OWNER : c->principal.owner;
}

const char *mcp_server_call_text(const struct mcp_server_call *c, const char *name)
{
    return json_string_value(json_object_get(c->params, name));
}

bool mcp_server_call_authorize(struct mcp_server_call *c, uint32_t scopes, enum auth_class class,
                               const struct gateway_action *action)
{
    const struct gateway_permission right = { .scopes = scopes, .class = class };

    http_on_client_gone(c->req, NULL, NULL);
    if (!gateway_authorize_action(c->req, &right, action)) {
        mcp_server_call_end_refused(c);
        return false;
    }
    if (c->is_modern && !http_client_is_gone(c->req))
        http_on_client_gone(c->req, mcp_server_call_on_client_gone, c);
    return true;
}

void mcp_server_call_write_cache_hints(const struct mcp_server_call *c, struct jsonw *w, uint64_t ttl_ms,
                                       bool is_public)
{
    if (!c->is_modern)
        return;
    jsonw_ku64(w, "ttlMs", ttl_ms);
    jsonw_kstr(w, "cacheScope", is_public ? "public" : "private");
}
