/* One message of the client: sent by POST, answered by JSON or by a stream.
 *
 * A call of a tool is sent at most once: after a broken connection its client gets an error, unless
 * the stream can be resumed or the server has said that it did not accept the call. Other requests
 * are repeated once.
 *
 * Invariants: 1. a request is answered exactly once, except after its cancellation; 2. only
 * complete messages of JSON-RPC reach the output. */
#include "client/mcp/bridge_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define RESUMES_MAX 10u
#define RESUME_MS 1000u
#define SILENCE_MS 3600000u /* a call may be silent for this long; its client has a shorter limit */

bool bridge_message_is_awaited(const struct bridge_message *m)
{
    return m->rpc.kind == JSONRPC_REQUEST && !m->is_answered && !m->is_cancelled;
}

static bool bridge_message_is(const struct bridge_message *m, const char *method)
{
    return m->rpc.method && str_eq(m->rpc.method, method);
}

static bool bridge_message_initializes(const struct bridge_message *m)
{
    return !m->version && m->rpc.kind == JSONRPC_REQUEST && bridge_message_is(m, "initialize");
}

/* The server must know the session before it gets a message in it. */
bool bridge_message_is_barrier(const struct bridge_message *m)
{
    return bridge_message_is(m, "initialize") || bridge_message_is(m, "notifications/initialized");
}

struct bridge_message *bridge_message_find(struct bridge *b, const json_t *id)
{
    for (struct bridge_message *m = b->messages; m; m = m->next)
        if (bridge_message_is_awaited(m) && json_equal(m->rpc.id, id))
            return m;
    return NULL;
}

void bridge_message_free(struct bridge_message *m)
{
    struct bridge *b = m->bridge;

    list_remove(&b->messages, m);
    b->nmessages--;
    b->bytes -= m->len;
    if (b->barrier == m)
        b->barrier = NULL;
    exchange_cancel(m->exchange);
    ev_timer_clear(b->settings.ev, &m->resume_timer);
    jsonrpc_message_done(&m->rpc);
    free(m->version);
    free(m->text);
    free(m);
    bridge_pump_later(b);
}

static void bridge_message_answer_error(struct bridge_message *m, int64_t code, const char *text, const char *data)
{
    if (m->rpc.kind != JSONRPC_REQUEST)
        report_note("a message was not delivered: %.300s", text);
    else if (bridge_message_is_awaited(m))
        bridge_write_error(m->bridge, m->rpc.id, code, text, data);
    m->is_answered = true;
}

void bridge_message_fail(struct bridge_message *m, const struct err *err)
{
    auto_free char *text = NULL, *data = NULL;

    bridge_explain_err(m->bridge, err, &text, &data);
    bridge_message_answer_error(m, BRIDGE_SERVER_ERROR, text, data);
    bridge_message_free(m);
}

/* --- answers --- */

static void bridge_message_learn(struct bridge_message *m, const struct jsonrpc_message *answer)
{
    if (answer->kind != JSONRPC_RESULT)
        return;
    if (m->version && bridge_message_is(m, "tools/list"))
        mirror_learn(m->bridge->mirror, answer->result);
    else if (bridge_message_initializes(m))
        bridge_link_initialized(&m->bridge->link, m, answer->result);
}

static void bridge_message_take(struct bridge_message *m, const char *data, size_t len)
{
    struct jsonrpc_message rpc;
    struct err err;
    int code;

    if (jsonrpc_parse(data, len, &rpc, &code, &err) < 0) {
        report_note("the server sent a message that is not valid: %.200s", err.msg);
    } else if (rpc.kind == JSONRPC_REQUEST || rpc.kind == JSONRPC_NOTIFICATION) {
        line_writer_add(m->bridge->writer, data, len);
    } else if (m->rpc.kind != JSONRPC_REQUEST || !bridge_message_is_awaited(m)) {
        report_note("the server answered a request twice, or one that was cancelled");
    } else if (rpc.id && json_equal(rpc.id, m->rpc.id)) {
        bridge_message_learn(m, &rpc);
        m->is_answered = true;
        line_writer_add(m->bridge->writer, data, len);
    } else if (rpc.kind == JSONRPC_ERROR) { /* the server could not read the id */
        auto_free char *more = rpc.data ? json_dumps(rpc.data, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

        bridge_message_answer_error(m, rpc.code, rpc.text, more);
    } else {
        report_note("the server sent the answer to another request");
    }
    jsonrpc_message_done(&rpc);
}

void bridge_forward(struct bridge *b, const char *data, size_t len)
{
    struct jsonrpc_message rpc;
    struct err err;
    int code;

    if (jsonrpc_parse(data, len, &rpc, &code, &err) < 0)
        report_note("the server sent a message that is not valid: %.200s", err.msg);
    else
        line_writer_add(b->writer, data, len);
    jsonrpc_message_done(&rpc);
}

static bool bridge_message_on_event(void *arg, const char *data, size_t len)
{
    struct bridge_message *m = arg;

    m->resumes = 0;
    bridge_message_take(m, data, len);
    return true;
}

static bool bridge_message_is_rpc(const struct exchange_result *r)
{
    struct jsonrpc_message rpc;
    struct err err;
    int code;
    bool ok = jsonrpc_parse(r->body, r->len, &rpc, &code, &err) == 0;

    jsonrpc_message_done(&rpc);
    return ok;
}

static void bridge_message_wait_again(struct bridge_message *m)
{
    m->was_repeated = true;
    m->state = BRIDGE_MESSAGE_WAITING;
    bridge_pump_later(m->bridge);
}

static void bridge_message_on_resume(void *arg)
{
    bridge_message_send(arg);
}

/* True: the stream broke or was closed before the answer, and is resumed. */
static bool bridge_message_resume(struct bridge_message *m, const struct exchange_result *r)
{
    uint32_t wait = r->retry_ms ? r->retry_ms : RESUME_MS;

    if (*r->last_id)
        (void)str_copy(m->last_id, sizeof(m->last_id), r->last_id);
    if (m->version || !m->last_id[0] || m->resumes++ >= RESUMES_MAX || (r->status >= 400 && !r->err))
        return false;
    m->state = BRIDGE_MESSAGE_BROKEN;
    ev_timer_set(m->bridge->settings.ev, &m->resume_timer, ev_now(m->bridge->settings.ev) + wait * NS_PER_MS,
                 bridge_message_on_resume, m);
    return true;
}

static void bridge_message_end_early(struct bridge_message *m, const struct err *err)
{
    bool is_call = bridge_message_is(m, "tools/call");
    struct err why = { 0 };

    if (err && err->id == ERR_CUT_OFF && !is_call && !m->was_repeated) {
        bridge_message_wait_again(m);
        return;
    }
    if (err && err->id != ERR_CUT_OFF)
        why = *err;
    else
        err_set(&why, ERR_CUT_OFF, "the connection ended before the answer; the call may have been carried out");
    bridge_message_fail(m, &why);
}

static void bridge_message_refused(struct bridge_message *m, const struct exchange_result *r)
{
    auto_free char *text = NULL, *data = NULL;

    bridge_explain(m->bridge, r, &text, &data);
    bridge_message_answer_error(m, BRIDGE_SERVER_ERROR, text, data);
    bridge_message_free(m);
}

static void bridge_message_on_end(void *arg, const struct exchange_result *r)
{
    struct bridge_message *m = arg;
    struct bridge *b = m->bridge;
    bool starts_listener = !m->version && bridge_message_is(m, "notifications/initialized");

    m->exchange = NULL;
    if (bridge_message_initializes(m) && !r->err && r->status < 300)
        bridge_link_set_session(&b->link, r->session);
    if (bridge_is_session_lost(r) && !m->was_repeated && (b->link.secret || b->link.session)) {
        bridge_link_lost(b, m->link_generation);
        bridge_message_wait_again(m);
        return;
    }
    if (!r->err && !r->is_stream && r->len > 0 && bridge_message_is_rpc(r))
        bridge_message_take(m, r->body, r->len);
    if (!bridge_message_is_awaited(m) && (m->rpc.kind == JSONRPC_REQUEST || (!r->err && r->status < 300))) {
        bridge_message_free(m);
        if (starts_listener)
            bridge_listener_start(b);
        return;
    }
    if (bridge_message_is_awaited(m) && (r->err || r->is_stream) && bridge_message_resume(m, r))
        return;
    if (r->err || r->is_stream || r->status < 400)
        bridge_message_end_early(m, r->err);
    else
        bridge_message_refused(m, r);
}

/* --- sending --- */

static size_t bridge_message_headers(const struct bridge_message *m, char *own[MIRROR_HEADERS_MAX],
                                     const char *ret[MIRROR_HEADERS_MAX + 4])
{
    const struct bridge_link *l = &m->bridge->link;
    bool initializes = bridge_message_initializes(m);
    size_t n = 0, owned = 0;

    if (m->version)
        owned = mirror_headers(m->bridge->mirror, m->rpc.method, m->rpc.params, m->version, own);
    for (size_t i = 0; i < owned; i++)
        ret[n++] = own[i];
    if (l->secret)
        ret[n++] = l->secret;
    if (!m->version && !initializes && l->session)
        ret[n++] = l->session;
    if (!m->version && !initializes && l->version)
        ret[n++] = l->version;
    return owned;
}

void bridge_message_send(struct bridge_message *m)
{
    static const struct exchange_ops ops = { .on_event = bridge_message_on_event, .on_end = bridge_message_on_end };
    char *own[MIRROR_HEADERS_MAX];
    const char *headers[MIRROR_HEADERS_MAX + 5] = { 0 };
    auto_free char *last = m->state == BRIDGE_MESSAGE_BROKEN ? str_printf("Last-Event-ID: %s", m->last_id) : NULL;
    bool is_endless = bridge_message_is(m, "subscriptions/listen");
    struct exchange_spec spec = { .method = last ? "GET" : "POST",
                                  .path = BRIDGE_PATH,
                                  .headers = headers,
                                  .body = last ? NULL : m->text,
                                  .len = last ? 0 : m->len,
                                  .silence_ms = is_endless ? 0 : SILENCE_MS };
    struct err err = { 0 };
    size_t n = bridge_message_headers(m, own, headers), at = 0;

    while (headers[at])
        at++;
    headers[at] = last;
    m->state = BRIDGE_MESSAGE_SENT;
    m->link_generation = m->bridge->link.generation;
    int bad = exchange_start(m->bridge->settings.client, &spec, &ops, m, &m->exchange, &err);
    for (size_t i = 0; i < n; i++)
        free(own[i]);
    if (bad)
        bridge_message_fail(m, &err);
    else if (m->bridge->is_held)
        exchange_hold(m->exchange, true);
}

/* --- arrival --- */

/* A notification or an answer names no revision: it belongs to the era of the session, if there is
 * one. */
static const char *bridge_message_version(const struct bridge *b, const struct jsonrpc_message *rpc)
{
    const char *version = mirror_version(rpc->params);

    if (version || b->link.version || b->link.initialize || !rpc->method || rpc->kind == JSONRPC_REQUEST)
        return version;
    return b->last_version;
}

void bridge_message_add(struct bridge *b, struct jsonrpc_message *rpc, const char *text, size_t len)
{
    const char *version = bridge_message_version(b, rpc);

    if (rpc->kind == JSONRPC_REQUEST && bridge_message_find(b, rpc->id)) {
        bridge_write_error(b, rpc->id, JSONRPC_INVALID_REQUEST, "id: another request with this id is not answered yet",
                           NULL);
        return;
    }
    if (b->nmessages >= BRIDGE_MESSAGES_MAX || b->bytes + len > BRIDGE_BYTES_MAX) {
        if (rpc->kind == JSONRPC_REQUEST)
            bridge_write_error(b, rpc->id, BRIDGE_SERVER_ERROR,
                               "too many requests wait for an answer; send this one again later", NULL);
        return;
    }
    struct bridge_message *m = mem_new(struct bridge_message);
    m->bridge = b;
    m->text = str_dup_n(text, len);
    m->len = len;
    m->rpc = *rpc;
    *rpc = (struct jsonrpc_message){ 0 };
    m->version = version ? str_dup(version) : NULL;
    if (version && version != b->last_version) {
        free(b->last_version);
        b->last_version = str_dup(version);
    }
    if (bridge_message_initializes(m)) {
        free(b->link.initialize);
        b->link.initialize = str_dup_n(text, len);
    }
    list_append(&b->messages, m);
    b->nmessages++;
    b->bytes += len;
    bridge_pump_later(b);
}
