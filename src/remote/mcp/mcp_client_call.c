/* One call is one request of the caller; to the server it may be several: a page each, or a
 * round of questions each. The state says what a call waits for, and only mcp_client_call_end()
 * ends it.
 *
 * Invariants:
 * 1. on_done runs in a callback of its own, and the call is freed before it.
 * 2. Every call that was sent has a deadline, except MCP_LISTEN. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#define TIMEOUT_MS 60000u
#define NAME_MAX_BYTES 4096u /* of a URI; names of tools are shorter */

const char *mcp_client_call_method(enum mcp_client_call_kind m)
{
    static const char *const names[MCP_REQUEST_KIND_COUNT] = {
        [MCP_LIST_TOOLS] = "tools/list",
        [MCP_LIST_RESOURCES] = "resources/list",
        [MCP_LIST_TEMPLATES] = "resources/templates/list",
        [MCP_LIST_PROMPTS] = "prompts/list",
        [MCP_CALL_TOOL] = "tools/call",
        [MCP_READ_RESOURCE] = "resources/read",
        [MCP_GET_PROMPT] = "prompts/get",
        [MCP_DISCOVER] = "server/discover",
        [MCP_INITIALIZE] = "initialize",
        [MCP_LISTEN] = "subscriptions/listen",
    };

    return names[m];
}

static bool mcp_client_call_is_handshake(enum mcp_client_call_kind m)
{
    return m == MCP_DISCOVER || m == MCP_INITIALIZE;
}

struct mcp_client_call *mcp_client_call_find(const struct mcp_client *c, json_int_t id)
{
    for (struct mcp_client_call *call = c->calls; call; call = call->next)
        if (call->state == MCP_REQUEST_SENT && call->id == id)
            return call;
    return NULL;
}

/* --- the end --- */

void mcp_client_call_free(struct mcp_client_call *call)
{
    struct mcp_client *c = call->client;

    list_remove(&c->calls, call);
    c->call_count--;
    mcp_exchange_cancel(call->exchange);
    mcp_question_drop_all(c, call);
    ev_timer_clear(c->ev, &call->deadline);
    ev_defer_clear(c->ev, &call->end_defer);
    free(call->name);
    free(call->cursor);
    json_decref(call->arguments);
    json_decref(call->items);
    json_decref(call->input_responses);
    json_decref(call->request_state);
    json_decref(call->result);
    json_decref(call->error_data);
    free(call);
}

static void mcp_client_call_on_end(void *arg)
{
    struct mcp_client_call *call = arg;
    struct mcp_client *c = call->client;
    const struct mcp_client_call_ops ops = call->ops;
    void *ops_arg = call->arg;
    const struct err err = call->err;

    if (call->method == MCP_DISCOVER)
        mcp_client_on_discover(c, call);
    else if (call->method == MCP_INITIALIZE)
        mcp_client_on_initialize(c, call);
    else if (call->method == MCP_LISTEN && err.id != ERR_MCP_UNSUPPORTED)
        mcp_listen_retry(c);
    json_t *result = take_ptr(&call->result);
    mcp_client_call_free(call);
    if (ops.on_done)
        ops.on_done(ops_arg, result, err.id != ERR_NONE ? &err : NULL);
    json_decref(result);
}

static void mcp_client_call_end(struct mcp_client_call *call)
{
    struct mcp_client *c = call->client;

    call->state = MCP_REQUEST_ENDED;
    mcp_exchange_cancel(take_ptr(&call->exchange));
    mcp_question_drop_all(c, call);
    ev_timer_clear(c->ev, &call->deadline);
    ev_defer(c->ev, &call->end_defer, mcp_client_call_on_end, call);
}

void mcp_client_call_fail(struct mcp_client_call *call, const struct err *err)
{
    if (call->state == MCP_REQUEST_ENDED)
        return;
    call->err = *err;
    str_strip_control_chars(call->err.msg);
    mcp_client_call_end(call);
}

void mcp_client_call_finish(struct mcp_client_call *call, json_t *result)
{
    if (call->state == MCP_REQUEST_ENDED) {
        json_decref(result);
        return;
    }
    call->client->noise = 0;
    call->client->bytes = 0;
    call->result = result;
    mcp_client_call_end(call);
}

static void mcp_client_call_on_deadline(void *arg)
{
    struct mcp_client_call *call = arg;
    struct err err = { 0 };

    if (call->state == MCP_REQUEST_WAITING)
        err_set(&err, ERR_TIMEOUT, "%s: the server was not open in time", mcp_client_call_method(call->method));
    else if (call->state == MCP_REQUEST_ASKING)
        err_set(&err, ERR_TIMEOUT, "%s: a question of the server was not answered in time",
                mcp_client_call_method(call->method));
    else
        err_set(&err, ERR_TIMEOUT, "%s: the server did not answer in time", mcp_client_call_method(call->method));
    mcp_send_cancel(call);
    mcp_client_call_fail(call, &err);
}

void mcp_client_call_cancel(struct mcp_client_call *call)
{
    if (!call)
        return;
    mcp_send_cancel(call);
    mcp_client_call_free(call);
}

/* --- the start --- */

static struct mcp_client_call *mcp_client_call_add(struct mcp_client *c, enum mcp_client_call_kind method,
                                                   uint32_t timeout_ms)
{
    struct mcp_client_call *call = mem_new(struct mcp_client_call);

    call->client = c;
    call->method = method;
    call->last_progress = -1;
    if (timeout_ms)
        ev_timer_set(c->ev, &call->deadline, ev_now(c->ev) + timeout_ms * NS_PER_MS, mcp_client_call_on_deadline, call);
    list_append(&c->calls, call);
    c->call_count++;
    return call;
}

void mcp_client_call_start_internal(struct mcp_client *c, enum mcp_client_call_kind method, uint32_t timeout_ms,
                                    const struct mcp_client_call_ops *ops)
{
    struct mcp_client_call *call = mcp_client_call_add(c, method, timeout_ms);

    call->is_internal = true;
    call->arg = c;
    if (ops)
        call->ops = *ops;
    mcp_client_call_proceed(call);
}

static int mcp_client_call_check(const struct mcp_client *c, const struct mcp_client_call_spec *spec, struct err *err)
{
    bool is_named = spec->method == MCP_CALL_TOOL || spec->method == MCP_READ_RESOURCE ||
                    spec->method == MCP_GET_PROMPT;

    if (c->state == MCP_CLIENT_CLOSED) {
        if (err)
            *err = c->err;
        return -1;
    }
    if (spec->method >= MCP_DISCOVER)
        return err_set(err, ERR_BUG, "%s is not a call", mcp_client_call_method(spec->method));
    if (is_named && (!spec->name || !*spec->name || strlen(spec->name) > NAME_MAX_BYTES))
        return err_set(err, ERR_INVALID, "%s: the name or URI is missing or longer than %u bytes",
                       mcp_client_call_method(spec->method), NAME_MAX_BYTES);
    if (is_named && !text_is_utf8(spec->name, strlen(spec->name)))
        return err_set(err, ERR_INVALID, "%s: the name or URI is not UTF-8", mcp_client_call_method(spec->method));
    if (spec->arguments && !json_is_object(spec->arguments))
        return err_set(err, ERR_INVALID, "the arguments are not a JSON object; write {\"name\": value, ...}");
    if (c->call_count >= MCP_CALLS_MAX)
        return err_set(err, ERR_MCP_LIMIT, "%u calls of this MCP server are open; wait for one of them", MCP_CALLS_MAX);
    return 0;
}

int mcp_client_call_start(struct mcp_client *c, const struct mcp_client_call_spec *spec,
                          const struct mcp_client_call_ops *ops, void *arg, struct mcp_client_call **ret,
                          struct err *err)
{
    if (mcp_client_call_check(c, spec, err) < 0)
        return -1;
    struct mcp_client_call *call = mcp_client_call_add(c, spec->method,
                                                       spec->timeout_ms ? spec->timeout_ms : TIMEOUT_MS);

    call->ops = *ops;
    call->arg = arg;
    call->name = spec->name ? str_dup(spec->name) : NULL;
    call->arguments = spec->arguments ? json_incref((json_t *)spec->arguments) : NULL;
    mcp_client_call_proceed(call);
    *ret = call;
    return 0;
}

void mcp_client_call_proceed(struct mcp_client_call *call)
{
    struct mcp_client *c = call->client;
    struct err err = { 0 };

    if (call->state == MCP_REQUEST_ENDED)
        return;
    if (c->state != MCP_CLIENT_READY && !mcp_client_call_is_handshake(call->method)) {
        call->state = MCP_REQUEST_WAITING;
    } else if (call->method == MCP_CALL_TOOL && call->rounds == 0 && call->state != MCP_REQUEST_WAITING_TOOLS &&
               !mcp_tool_list_is_fresh(c)) {
        call->state = MCP_REQUEST_WAITING_TOOLS;
        mcp_tool_list_refresh(c);
    } else {
        call->state = MCP_REQUEST_SENT;
        if (mcp_send_request(call, &err) < 0)
            mcp_client_call_fail(call, &err);
    }
}
