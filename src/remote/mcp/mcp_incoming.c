/* Messages of the server. An answer belongs to the call whose id it has, and over HTTP it must come
 * in the response to that call. All other messages are noise: they are ignored, and after
 * MCP_NOISE_MAX of them without an answer the server is given up.
 *
 * A modern server never sends requests; a legacy one may, and is answered. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/str.h"

#define LOG_TEXT_MAX 4096u
#define ERROR_TEXT_MAX 160u

void mcp_client_add_noise(struct mcp_client *c, struct mcp_client_call *call)
{
    struct err err = { 0 };

    if (++c->noise <= MCP_NOISE_MAX)
        return;
    err_set(&err, ERR_MCP_PROTOCOL, "the server sent more than %u messages that answer no request", MCP_NOISE_MAX);
    if (call)
        mcp_client_call_fail(call, &err);
    else
        mcp_client_close(c, &err);
}

/* --- answers --- */

static void mcp_incoming_error(struct mcp_client_call *call, const struct jsonrpc_message *m)
{
    auto_free char *text = mcp_clean_text(m->text, ERROR_TEXT_MAX);
    struct err err = { 0 };

    call->error_code = m->code;
    call->error_data = m->data ? json_incref((json_t *)m->data) : NULL;
    err_set(&err, m->code == JSONRPC_METHOD_NOT_FOUND ? ERR_MCP_UNSUPPORTED : ERR_MCP_REFUSED,
            "%s: the server answered with error %" PRId64 ": %s", mcp_client_call_method(call->method), m->code, text);
    mcp_client_call_fail(call, &err);
}

/* An error without id is about the only request that it can be about: that of its response. */
static struct mcp_client_call *mcp_incoming_find(struct mcp_client *c, struct mcp_client_call *call,
                                                 const struct jsonrpc_message *m)
{
    struct mcp_client_call *found = json_is_integer(m->id) ? mcp_client_call_find(c, json_integer_value(m->id)) : NULL;

    if (c->http && !m->id && m->kind == JSONRPC_ERROR && call && call->state == MCP_REQUEST_SENT)
        return call;
    return c->http && found != call ? NULL : found;
}

static void mcp_incoming_answer(struct mcp_client *c, struct mcp_client_call *call, const struct jsonrpc_message *m)
{
    struct mcp_client_call *found = mcp_incoming_find(c, call, m);

    if (!found) {
        mcp_client_add_noise(c, call);
        return;
    }
    if (m->kind == JSONRPC_ERROR)
        mcp_incoming_error(found, m);
    else
        mcp_result_accept(found, m->result);
}

/* --- notifications --- */

static void mcp_incoming_progress(struct mcp_client *c, struct mcp_client_call *call, const json_t *params)
{
    const json_t *token = json_object_get(params, "progressToken"), *value = json_object_get(params, "progress");
    const json_t *total = json_object_get(params, "total"), *text = json_object_get(params, "message");
    struct mcp_client_call *of = json_is_integer(token) ? mcp_client_call_find(c, json_integer_value(token)) : NULL;

    if (!of || !of->ops.on_progress || (c->http && of != call) || !json_is_number(value) ||
        json_number_value(value) <= of->last_progress) {
        mcp_client_add_noise(c, call);
        return;
    }
    auto_free char *message = mcp_clean_text(json_is_string(text) ? json_string_value(text) : "", LOG_TEXT_MAX);
    const struct mcp_progress p = { .progress = json_number_value(value),
                                    .total = json_is_number(total) ? json_number_value(total) : 0,
                                    .message = message };
    of->last_progress = p.progress;
    of->ops.on_progress(of->arg, &p);
}

static void mcp_incoming_log(struct mcp_client *c, const json_t *params)
{
    const json_t *data = json_object_get(params, "data"), *level = json_object_get(params, "level");

    if (!c->ops.on_log)
        return;
    auto_free char *raw = json_is_string(data) ? str_dup(json_string_value(data))
                                               : json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY);
    auto_free char *text = mcp_clean_text(raw ? raw : "", LOG_TEXT_MAX);
    auto_free char *name = mcp_clean_text(json_is_string(level) ? json_string_value(level) : "info", 16);
    c->ops.on_log(c->arg, name, text);
}

static void mcp_incoming_notification(struct mcp_client *c, struct mcp_client_call *call,
                                      const struct jsonrpc_message *m)
{
    if (str_eq(m->method, "notifications/progress")) {
        mcp_incoming_progress(c, call, m->params);
        return;
    }
    if (str_eq(m->method, "notifications/message")) {
        mcp_incoming_log(c, m->params);
    } else if (str_eq(m->method, "notifications/tools/list_changed")) {
        c->tools_fresh_ns = 0;
        if (c->ops.on_tools_changed)
            c->ops.on_tools_changed(c->arg);
    } else {
        mcp_client_add_noise(c, call);
    }
}

/* --- requests --- */

static void mcp_incoming_request(struct mcp_client *c, struct mcp_client_call *call, const struct jsonrpc_message *m)
{
    mcp_client_add_noise(c, call);
    if (c->state == MCP_CLIENT_CLOSED || c->era == MCP_ERA_MODERN)
        return;
    if (str_eq(m->method, "ping")) {
        json_t *empty = json_object();
        mcp_send_answer(c, m->id, empty);
        json_decref(empty);
    } else if (mcp_question_is_enabled(c, m->method) && (!call || call->open_questions < MCP_QUESTIONS_MAX)) {
        mcp_question_add(c, call, m->method, m->params, m->id, NULL);
    } else {
        mcp_send_answer(c, m->id, NULL);
    }
}

/* --- all messages --- */

static void mcp_incoming_malformed(struct mcp_client *c, struct mcp_client_call *call, const char *text, size_t len,
                                   const struct err *why)
{
    struct err err = { 0 };

    if (call) {
        err_set(&err, ERR_MCP_PROTOCOL, "the server sent a message that is not valid: %.160s", why->msg);
        mcp_client_call_fail(call, &err);
        return;
    }
    /* On stdio a program may print a few lines of its own; too many end the server. */
    if (c->noise + 10 > MCP_NOISE_MAX) {
        auto_free char *start = str_dup_n(text, len < 60 ? len : 60);
        str_strip_control_chars(start);
        err_set(&err, ERR_MCP_PROTOCOL, "the server's output is not MCP, for example '%s'", start);
        mcp_client_close(c, &err);
    } else {
        c->noise += 10;
    }
}

/* Over HTTP the bytes of a stream without a call are bounded by its exchange. */
static bool mcp_incoming_is_within_bounds(struct mcp_client *c, struct mcp_client_call *call, size_t len)
{
    size_t *bytes = call ? &call->bytes : &c->bytes;
    struct err err = { 0 };

    *bytes += len;
    if (*bytes <= MCP_CALL_BYTES_MAX || (c->http && !call))
        return true;
    err_set(&err, ERR_MCP_LIMIT, "the server sent more than %llu bytes without an answer", MCP_CALL_BYTES_MAX);
    if (call)
        mcp_client_call_fail(call, &err);
    else
        mcp_client_close(c, &err);
    return false;
}

void mcp_incoming(struct mcp_client *c, struct mcp_client_call *call, const char *text, size_t len)
{
    struct jsonrpc_message m;
    struct err err = { 0 };
    int code;

    if (c->state == MCP_CLIENT_CLOSED || !mcp_incoming_is_within_bounds(c, call, len))
        return;
    if (jsonrpc_parse(text, len, &m, &code, &err) < 0)
        mcp_incoming_malformed(c, call, text, len, &err);
    else if (m.kind == JSONRPC_NOTIFICATION)
        mcp_incoming_notification(c, call, &m);
    else if (m.kind == JSONRPC_REQUEST)
        mcp_incoming_request(c, call, &m);
    else
        mcp_incoming_answer(c, call, &m);
    jsonrpc_message_done(&m);
}

/* --- HTTP --- */

static bool mcp_incoming_session_expired(const struct mcp_client_call *call, int status)
{
    const struct mcp_client *c = call->client;

    return status == 404 && c->era == MCP_ERA_LEGACY && c->session && call->method != MCP_INITIALIZE &&
           !call->is_reopened;
}

static void mcp_incoming_on_message(void *arg, const char *text, size_t len)
{
    struct mcp_client_call *call = arg;
    struct mcp_client *c = call->client;
    const char *session = mcp_exchange_session(call->exchange);

    if (mcp_incoming_session_expired(call, mcp_exchange_status(call->exchange)))
        return; /* on_end follows, and the call is repeated */
    if (call->method == MCP_INITIALIZE && session && !c->session && strlen(session) <= 1024 &&
        strspn(session,
               "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") ==
            strlen(session))
        c->session = str_dup(session);
    mcp_incoming(c, call, text, len);
}

static int mcp_incoming_status_error(const struct mcp_client_call *call, int status, struct err *err)
{
    const char *method = mcp_client_call_method(call->method);

    if (status == 401 || status == 403)
        return err_set(err, ERR_MCP_REFUSED,
                       "%s: the server answered with HTTP status %d; give it a credential, for "
                       "example with the header 'Authorization: Bearer TOKEN'",
                       method, status);
    if (status >= 400)
        return err_set(err, ERR_MCP_REFUSED, "%s: the server answered with HTTP status %d", method, status);
    return err_set(err, ERR_MCP_ENDED, "%s: the server's response ended without an answer", method);
}

static void mcp_incoming_on_end(void *arg, int status, const struct err *err)
{
    struct mcp_client_call *call = arg;
    struct err why = { 0 };

    call->exchange = NULL;
    if (call->state != MCP_REQUEST_SENT)
        return;
    if (mcp_incoming_session_expired(call, status)) {
        call->is_reopened = true;
        call->state = MCP_REQUEST_WAITING;
        mcp_client_reopen(call->client);
        return;
    }
    call->error_code = 0;
    if (err)
        why = *err;
    else
        mcp_incoming_status_error(call, status, &why);
    mcp_client_call_fail(call, &why);
}

const struct mcp_exchange_ops mcp_client_call_exchange_ops = { NULL, mcp_incoming_on_message, mcp_incoming_on_end };

/* --- stdio --- */

static void mcp_incoming_on_line(void *arg, const char *text, size_t len)
{
    mcp_incoming(arg, NULL, text, len);
}

static void mcp_incoming_on_closed(void *arg, const struct err *err)
{
    mcp_client_close(arg, err);
}

const struct mcp_pipe_ops mcp_client_pipe_ops = { mcp_incoming_on_line, mcp_incoming_on_closed };
