/* Writes requests, notifications and answers, and adds what each revision demands: a modern request
 * says version and capabilities in _meta and repeats parts of itself in HTTP headers; a legacy one
 * names its session. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "cove_version.h"

#define POSTS_MAX 64u
#define POST_SILENCE_MS 30000u
#define META "io.modelcontextprotocol/"

struct mcp_headers {
    struct buf lines; /* each NUL-terminated */
    size_t count;
};

static void mcp_headers_add(struct mcp_headers *h, const char *name, const char *value)
{
    mcp_header_add(&h->lines, name, value);
    h->count++;
}

/* --- parameters --- */

static bool mcp_send_is_modern(const struct mcp_client_call *call)
{
    return call->method == MCP_DISCOVER || (call->method != MCP_INITIALIZE && call->client->era == MCP_ERA_MODERN);
}

json_t *mcp_client_own_info(void)
{
    return json_pack("{s:s, s:s}", "name", "cove", "version", COVE_VERSION);
}

json_t *mcp_client_own_capabilities(const struct mcp_client *c)
{
    json_t *all = json_object();

    if (c->answers_elicitation)
        json_object_set_new(all, "elicitation", json_object());
    if (c->answers_sampling)
        json_object_set_new(all, "sampling", json_object());
    if (c->answers_roots)
        json_object_set_new(all, "roots", json_object());
    return all;
}

static json_t *mcp_send_meta(const struct mcp_client_call *call)
{
    json_t *meta = json_object();

    if (mcp_send_is_modern(call)) {
        json_object_set_new(meta, META "protocolVersion", json_string(MCP_VERSION_MODERN));
        json_object_set_new(meta, META "clientCapabilities", mcp_client_own_capabilities(call->client));
        json_object_set_new(meta, META "clientInfo", mcp_client_own_info());
    }
    if (call->ops.on_progress)
        json_object_set_new(meta, "progressToken", json_integer(call->id));
    return meta;
}

static json_t *mcp_send_params(const struct mcp_client_call *call)
{
    json_t *params = json_object();

    switch (call->method) {
    case MCP_CALL_TOOL:
    case MCP_GET_PROMPT:
        json_object_set_new(params, "name", json_string(call->name));
        json_object_set_new(params, "arguments", call->arguments ? json_incref(call->arguments) : json_object());
        break;
    case MCP_READ_RESOURCE:
        json_object_set_new(params, "uri", json_string(call->name));
        break;
    case MCP_INITIALIZE:
        json_object_set_new(params, "protocolVersion", json_string(MCP_VERSION_LEGACY));
        json_object_set_new(params, "capabilities", mcp_client_own_capabilities(call->client));
        json_object_set_new(params, "clientInfo", mcp_client_own_info());
        break;
    case MCP_LISTEN:
        json_object_set_new(params, "notifications", json_pack("{s:b}", "toolsListChanged", 1));
        break;
    default:
        break;
    }
    if (call->cursor)
        json_object_set_new(params, "cursor", json_string(call->cursor));
    if (call->input_responses)
        json_object_set(params, "inputResponses", call->input_responses);
    if (call->request_state)
        json_object_set(params, "requestState", call->request_state);
    json_t *meta = mcp_send_meta(call);
    if (json_object_size(meta) > 0)
        json_object_set_new(params, "_meta", meta);
    else
        json_decref(meta);
    return params;
}

/* --- HTTP --- */

static void mcp_send_add_session(const struct mcp_client *c, struct mcp_headers *h)
{
    if (c->version[0])
        mcp_headers_add(h, "MCP-Protocol-Version", c->version);
    if (c->session)
        mcp_headers_add(h, "Mcp-Session-Id", c->session);
}

static int mcp_send_add_headers(const struct mcp_client_call *call, const struct mcp_tool *tool, struct mcp_headers *h,
                                struct err *err)
{
    size_t count = 0;

    if (!mcp_send_is_modern(call)) {
        if (call->method != MCP_INITIALIZE)
            mcp_send_add_session(call->client, h);
        return 0;
    }
    mcp_headers_add(h, "MCP-Protocol-Version", MCP_VERSION_MODERN);
    mcp_headers_add(h, "Mcp-Method", mcp_client_call_method(call->method));
    if (call->name)
        mcp_headers_add(h, "Mcp-Name", call->name);
    if (tool && mcp_tool_headers(tool, call->arguments, &h->lines, &count, err) < 0)
        return -1;
    h->count += count;
    return 0;
}

static int mcp_send_exchange(struct mcp_client_call *call, const struct mcp_tool *tool, const struct buf *text,
                             struct err *err)
{
    struct mcp_headers h = { 0 };
    int status = mcp_send_add_headers(call, tool, &h, err);

    if (status == 0) {
        const struct mcp_exchange_spec spec = { .method = "POST",
                                                .body = text->data,
                                                .body_len = text->len,
                                                .headers = h.lines.data,
                                                .header_count = h.count,
                                                .is_resumable = call->client->era == MCP_ERA_LEGACY };
        mcp_exchange_cancel(take_ptr(&call->exchange));
        status = mcp_exchange_start(call->client->http, &spec, &mcp_client_call_exchange_ops, call, &call->exchange,
                                    err);
    }
    buf_done(&h.lines);
    return status;
}

/* Writes the parameters as JSON text; the caller frees it. */
static char *mcp_send_text(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);

    json_decref(value);
    return text ? text : str_dup("{}");
}

int mcp_send_request(struct mcp_client_call *call, struct err *err)
{
    struct mcp_client *c = call->client;
    const struct mcp_tool *tool = NULL;
    auto_buf text = { 0 };

    if (call->method == MCP_CALL_TOOL && mcp_tool_list_find(c, call->name, &tool, err) < 0)
        return -1;
    call->id = ++c->last_id;
    auto_free char *params = mcp_send_text(mcp_send_params(call));
    json_t *id = json_integer(call->id);
    jsonrpc_write_request(&text, id, mcp_client_call_method(call->method), params);
    json_decref(id);
    if (text.len > JSONRPC_MESSAGE_MAX)
        return err_set(err, ERR_INVALID, "the arguments have %zu bytes; use at most %llu", text.len,
                       JSONRPC_MESSAGE_MAX);
    if (c->http)
        return mcp_send_exchange(call, tool, &text, err);
    return mcp_pipe_send(c->pipe, text.data, text.len, err);
}

/* --- notifications and answers --- */

static void mcp_post_free(struct mcp_post *p)
{
    list_remove(&p->client->posts, p);
    p->client->post_count--;
    mcp_exchange_cancel(p->exchange);
    free(p);
}

void mcp_post_free_all(struct mcp_client *c)
{
    while (c->posts)
        mcp_post_free(c->posts);
}

static void mcp_post_on_message(void *arg UNUSED, const char *text UNUSED, size_t len UNUSED)
{
}

static void mcp_post_on_end(void *arg, int status, const struct err *err)
{
    struct mcp_post *p = arg;
    struct mcp_client *c = p->client;
    void (*on_sent)(struct mcp_client *, int) = p->on_sent;

    p->exchange = NULL; /* freed by its own end */
    mcp_post_free(p);
    if (on_sent)
        on_sent(c, err && status == 0 ? -1 : status);
}

/* `text` is NULL for a request without a body, `mcp_method` for a message without a method. */
static int mcp_send_post(struct mcp_client *c, const char *http_method, const struct buf *text, const char *mcp_method,
                         void (*on_sent)(struct mcp_client *c, int status), struct err *err)
{
    static const struct mcp_exchange_ops ops = { NULL, mcp_post_on_message, mcp_post_on_end };
    struct mcp_headers h = { 0 };

    if (c->post_count >= POSTS_MAX)
        return err_set(err, ERR_MCP_LIMIT, "the server does not take messages: %u wait", POSTS_MAX);
    struct mcp_post *p = mem_new(struct mcp_post);
    p->client = c;
    p->on_sent = on_sent;
    list_push(&c->posts, p);
    c->post_count++;
    if (c->era == MCP_ERA_MODERN && mcp_method)
        mcp_headers_add(&h, "Mcp-Method", mcp_method);
    mcp_send_add_session(c, &h);
    const struct mcp_exchange_spec spec = { .method = http_method,
                                            .body = text ? text->data : NULL,
                                            .body_len = text ? text->len : 0,
                                            .headers = h.lines.data,
                                            .header_count = h.count,
                                            .silence_ms = POST_SILENCE_MS };
    int status = mcp_exchange_start(c->http, &spec, &ops, p, &p->exchange, err);
    buf_done(&h.lines);
    if (status < 0)
        mcp_post_free(p);
    return status;
}

void mcp_client_end_session(struct mcp_client *c)
{
    if (c->http && c->session && c->state == MCP_CLIENT_READY)
        (void)mcp_send_post(c, "DELETE", NULL, NULL, NULL, NULL);
}

bool mcp_client_is_sending(const struct mcp_client *c)
{
    return c->posts != NULL;
}

int mcp_send_notification(struct mcp_client *c, const char *method, const char *params,
                          void (*on_sent)(struct mcp_client *c, int status), struct err *err)
{
    auto_buf text = { 0 };

    jsonrpc_write_notification(&text, method, params);
    if (c->http)
        return mcp_send_post(c, "POST", &text, method, on_sent, err);
    if (mcp_pipe_send(c->pipe, text.data, text.len, err) < 0)
        return -1;
    if (on_sent)
        on_sent(c, 202);
    return 0;
}

void mcp_send_answer(struct mcp_client *c, const json_t *id, const json_t *result)
{
    auto_free char *value = result ? json_dumps(result, JSON_COMPACT) : NULL;
    auto_buf text = { 0 };

    if (value)
        jsonrpc_write_result(&text, id, value);
    else
        jsonrpc_write_error(&text, id, JSONRPC_METHOD_NOT_FOUND, "this client does not answer this request", NULL);
    if (c->http)
        (void)mcp_send_post(c, "POST", &text, NULL, NULL, NULL);
    else
        (void)mcp_pipe_send(c->pipe, text.data, text.len, NULL);
}

/* A modern server sees over HTTP that its stream is closed. */
void mcp_send_cancel(struct mcp_client_call *call)
{
    struct mcp_client *c = call->client;

    if (call->state != MCP_REQUEST_SENT || call->method == MCP_INITIALIZE || call->method == MCP_DISCOVER ||
        (c->http && c->era == MCP_ERA_MODERN))
        return;
    auto_free char *params = str_printf("{\"requestId\":%" JSON_INTEGER_FORMAT ",\"reason\":\"the caller gave up\"}",
                                        call->id);
    (void)mcp_send_notification(c, "notifications/cancelled", params, NULL, NULL);
}
