/* GET /v1/sandboxes/{sandboxId}/stream: a WebSocket on which a client starts and follows executions
 * of a sandbox, sends them input and ends them, several at the same time. docs/streaming.md
 * describes the messages.
 *
 * 1. Every message from the server carries the next `seq` of its socket. A client that reconnects
 *    resumes not by `seq` but by the offsets of each execution: they mean the same on every socket,
 *    and after a restart of the server.
 * 2. A message that cannot be carried out is answered with `error`, and the socket stays open. The
 *    server closes it when the credential becomes invalid (4401), when the sandbox has ended
 *    (4410), and when the server stops (1001).
 * 3. Executions do not end with the socket that started them. */
#include "server/api/sandbox_socket.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <stdio.h>

#define SOCKET_EXECUTIONS_MAX 64u
#define INPUT_HIGH_WATER (256 * KIB) /* per execution; beyond it the server stops reading from the socket */
#define DATA_MAX (1 * MIB)
#define FINAL_OUTPUT_TIMEOUT_NS (30 * NS_PER_S)
#define CLOSE_UNAUTHORIZED 4401
#define CLOSE_ENDED 4410

/* --- messages from the server --- */

struct jsonw *sandbox_socket_begin_message(struct sandbox_socket *so, const char *type, const char *id,
                                           const char *label)
{
    message_begin(&so->writer, &so->message, type);
    jsonw_ku64(&so->writer, "seq", ++so->seq);
    api_write_time(&so->writer, "at", clock_real_ms());
    jsonw_kstr_if(&so->writer, "executionId", id);
    jsonw_kstr_if(&so->writer, "label", label);
    return &so->writer;
}

void sandbox_socket_send_message(struct sandbox_socket *so)
{
    jsonw_end_object(&so->writer);
    (void)ws_send(so->ws, so->message.data, so->message.len);
    buf_done(&so->message); /* an idle socket holds no memory */
}

void sandbox_socket_send_error(struct sandbox_socket *so, const char *id, const char *label, const struct err *err)
{
    auto_buf error = { 0 };
    struct jsonw *w = sandbox_socket_begin_message(so, "error", id, label);

    http_error_json(err, so->request_id, NULL, NULL, &error); /* {"error":{...}} */
    error.data[error.len - 1] = '\0';
    api_write_raw_json(w, "error", error.data + strlen("{\"error\":"));
    sandbox_socket_send_message(so);
}

uint64_t sandbox_socket_record_action(struct sandbox_socket *so, const char *action, const char *outcome,
                                      const char *execution, const char *details)
{
    struct audit_pair target[2] = { { "sandbox", so->sandbox }, { "execution", execution } };

    return audit_trail_record_action(so->api->settings.gateway, &so->principal, so->address, NULL, action, outcome,
                                     target, execution[0] ? 2 : 1, details);
}

/* --- status --- */

struct socket_usage_query {
    struct sandbox_socket *so; /* NULL: the socket is closed */
};

static void sandbox_socket_send_status(struct sandbox_socket *so, const struct sandbox_handle_usage *u)
{
    struct jsonw *w = sandbox_socket_begin_message(so, "status", NULL, NULL);

    jsonw_kstr(w, "state", api_sandbox_states[sandbox_subscription_state(so->subscription)]);
    if (u && u->cpu_ns != SANDBOX_USAGE_UNKNOWN)
        jsonw_kms(w, "cpuMs", u->cpu_ns);
    if (u && u->memory != SANDBOX_USAGE_UNKNOWN)
        jsonw_ku64(w, "memoryBytes", u->memory);
    sandbox_socket_send_message(so);
}

static void sandbox_socket_on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    auto_free struct socket_usage_query *ask = arg;

    if (!ask->so)
        return;
    ask->so->usage_query = NULL;
    if (!err)
        sandbox_socket_send_status(ask->so, u);
}

static void sandbox_socket_on_status_timer(void *arg)
{
    struct sandbox_socket *so = arg;

    ev_timer_set(so->api->settings.ev, &so->status_timer, ev_now(so->api->settings.ev) + so->status_ms * NS_PER_MS,
                 sandbox_socket_on_status_timer, so);
    if (so->usage_query || ws_room(so->ws) == 0 ||
        sandbox_subscription_state(so->subscription) != STORE_SANDBOX_RUNNING)
        return;
    so->usage_query = mem_new(struct socket_usage_query);
    so->usage_query->so = so;
    manager_sandbox_usage(so->api->settings.manager, so->owner, so->sandbox, sandbox_socket_on_usage, so->usage_query);
}

/* --- messages from the client --- */

struct socket_message {
    struct sandbox_socket *socket;
    json_t *body;
    char id[ID_SIZE]; /* executionId; "": absent. Copies, because errors outlive the body */
    char label[SOCKET_EXECUTION_LABEL_MAX + 1];
    struct socket_execution *execution; /* that they name; NULL: the socket does not follow it */
};

static bool socket_message_is_valid_label(const char *label)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return label[0] && label[strspn(label, letters)] == '\0';
}

static int socket_message_check_capacity(const struct socket_message *m, struct err *err)
{
    if (m->socket->nexecutions >= SOCKET_EXECUTIONS_MAX) {
        err_set(err, ERR_LIMIT, "this socket already follows %u executions; detach one first", SOCKET_EXECUTIONS_MAX);
        return err_set_limit(err, "socketExecutions", m->socket->nexecutions, SOCKET_EXECUTIONS_MAX);
    }
    if (m->execution)
        return err_set(err, ERR_EXISTS, "execution %s is already followed on this socket",
                       m->label[0] ? m->label : m->id);
    return 0;
}

/* Reads the context to run in; "": none. */
static int socket_message_read_context(const struct socket_message *m, char ret[ID_SIZE], struct err *err)
{
    const char *id = NULL;

    ret[0] = '\0';
    if (json_input_text(m->body, "", "contextId", 1, 64, &id, err) < 0)
        return -1;
    if (id && !id_valid(id, "cx"))
        return err_set(err, ERR_MISSING, "contextId: there is no such context in this sandbox");
    if (id)
        (void)str_copy(ret, ID_SIZE, id);
    json_object_del(m->body, "contextId");
    return 0;
}

static int socket_message_on_execute(struct socket_message *m, struct err *err)
{
    struct sandbox_socket *so = m->socket;
    struct execution_request launch = { 0 };
    struct context_execution_spec call = { 0 };
    struct ratelimit_answer rate;
    char context[ID_SIZE];

    if (socket_message_check_capacity(m, err) < 0)
        return -1;
    if (so->api->settings.audit && audit_state(so->api->settings.audit, NULL) != AUDIT_OPEN)
        return err_set(err, ERR_AUDIT,
                       "the audit trail cannot be written, so no execution is started; try again later");
    if (!auth_rate_take(so->api->settings.auth, &so->principal, AUTH_CLASS_EXECUTE, ev_now(so->api->settings.ev),
                        &rate))
        return err_set(err, ERR_RATE_LIMITED, "too many executions started with this key; try again later");
    json_object_del(m->body, "type");
    json_object_del(m->body, "executionId");
    json_object_del(m->body, "label");
    if (socket_message_read_context(m, context, err) < 0)
        return -1;
    launch.body = json_incref(m->body);
    if ((context[0] ? api_context_read_call(launch.body, so->api, &call, err)
                    : execution_request_read(&launch, so->api, err)) < 0) {
        execution_request_done(&launch);
        return -1;
    }
    socket_execution_start(so, m->label, m->id, &launch, context, &call);
    return 0;
}

static int socket_message_on_resume(struct socket_message *m, struct err *err)
{
    static const char *const names[] = { "type",         "executionId",  "label",     "stdoutOffset",
                                         "stderrOffset", "eventsOffset", "tailBytes", NULL };
    struct output_join join = { 0 };

    if (!m->id[0])
        return err_set(err, ERR_INVALID, "executionId: required");
    if (json_input_require_known_fields(m->body, "", names, err) < 0 || socket_message_check_capacity(m, err) < 0 ||
        json_input_u64(m->body, "", "stdoutOffset", 0, INT64_MAX, &join.offset[0], NULL, err) < 0 ||
        json_input_u64(m->body, "", "stderrOffset", 0, INT64_MAX, &join.offset[1], NULL, err) < 0 ||
        json_input_u64(m->body, "", "eventsOffset", 0, INT64_MAX, &join.offset[2], NULL, err) < 0 ||
        json_input_u64(m->body, "", "tailBytes", 0, INT64_MAX, &join.tail_bytes, &join.has_tail, err) < 0)
        return -1;
    socket_execution_resume(m->socket, m->label, m->id, &join);
    return 0;
}

static int socket_message_on_cancel(struct socket_message *m, struct err *err UNUSED)
{
    const struct socket_execution *a = m->execution;

    if (a->pump.watch) {
        (void)sandbox_socket_record_action(m->socket, "execution.cancel", "success", a->id, NULL);
        execution_watch_kill(a->pump.watch);
    }
    return 0;
}

static int socket_message_on_detach(struct socket_message *m, struct err *err UNUSED)
{
    socket_execution_detach(m->execution);
    return 0;
}

static int socket_message_on_signal(struct socket_message *m, struct err *err)
{
    const struct socket_execution *a = m->execution;
    int signo;

    if (terminal_read_signal(m->body, &signo, err) < 0)
        return -1;
    if (a->pump.watch) {
        (void)sandbox_socket_record_action(m->socket, "execution.signal", "success", a->id, NULL);
        execution_watch_signal(a->pump.watch, signo);
    }
    return 0;
}

static int socket_message_on_resize(struct socket_message *m, struct err *err)
{
    struct socket_execution *a = m->execution;
    uint16_t rows = 0, cols = 0;

    if (execution_request_read_tty_size(m->body, &rows, &cols, err) < 0)
        return -1;
    if (!rows || !cols)
        return err_set(err, ERR_INVALID, "rows and cols are both required");
    if (a->pump.watch && !execution_watch_resize(a->pump.watch, rows, cols))
        return err_set(err, ERR_EXISTS, "execution %s is not a terminal: it was started without tty", a->id);
    a->rows = rows; /* the client that set the size gets no message about it */
    a->cols = cols;
    return 0;
}

static int socket_message_on_stdin(struct socket_message *m, struct err *err)
{
    const char *text = NULL, *coded = NULL;
    auto_buf bytes = { 0 };
    uint64_t offset = 0;
    bool placed = false, ends = false;

    if (json_input_text(m->body, "", "data", 0, DATA_MAX, &text, err) < 0 ||
        json_input_text(m->body, "", "base64", 0, 2 * DATA_MAX, &coded, err) < 0 ||
        json_input_u64(m->body, "", "offset", 0, INT64_MAX, &offset, &placed, err) < 0 ||
        json_input_bool(m->body, "", "close", &ends, err) < 0)
        return -1;
    if (text && coded)
        return err_set(err, ERR_INVALID, "data and base64 cannot be combined; give one of them");
    if (coded && !text_from_base64(&bytes, coded, strlen(coded)))
        return err_set(err, ERR_INVALID, "base64: not valid base64");
    if (!text)
        text = bytes.data ? bytes.data : "";
    socket_execution_add_input(m->execution, text, coded ? bytes.len : strlen(text), placed ? &offset : NULL, ends);
    return 0;
}

static int socket_message_on_input(struct socket_message *m, struct err *err)
{
    struct sandbox_socket *so = m->socket;
    const char *id = m->execution->id, *text = NULL;

    if (api_context_read_input_line(m->body, &text, err) < 0 ||
        manager_context_input(so->api->settings.manager, so->owner, so->sandbox, id, text, err) < 0)
        return -1;
    (void)sandbox_socket_record_action(so, "execution.input", "success", id, NULL);
    return 0;
}

static int socket_message_on_ping(struct socket_message *m, struct err *err UNUSED)
{
    const json_t *sent = json_object_get(m->body, "timestamp");
    struct jsonw *w = sandbox_socket_begin_message(m->socket, "pong", NULL, NULL);

    if (json_is_integer(sent))
        jsonw_ki64(w, "timestamp", json_integer_value(sent));
    sandbox_socket_send_message(m->socket);
    return 0;
}

static const struct socket_message_handler {
    const char *type;
    int (*fn)(struct socket_message *m, struct err *err);
    bool looks;            /* changes nothing, so a read-only principal may send it */
    bool counted;          /* it queries the store or is recorded, so it counts towards the rate limit */
    bool needs_execution;  /* that the socket follows */
    const char *fields[8]; /* known members, NULL-terminated; empty: fn checks them */
} socket_message_handlers[] = {
    { "execute", socket_message_on_execute },
    { "resume", socket_message_on_resume, .looks = true, .counted = true },
    { "stdin", socket_message_on_stdin, .needs_execution = true,
      .fields = { "type", "executionId", "label", "data", "base64", "offset", "close" } },
    { "input", socket_message_on_input, .counted = true, .needs_execution = true,
      .fields = { "type", "executionId", "label", "text", "eof" } },
    { "resize", socket_message_on_resize, .needs_execution = true,
      .fields = { "type", "executionId", "label", "rows", "cols" } },
    { "signal", socket_message_on_signal, .counted = true, .needs_execution = true,
      .fields = { "type", "executionId", "label", "signal" } },
    { "cancel", socket_message_on_cancel, .counted = true, .needs_execution = true,
      .fields = { "type", "executionId", "label" } },
    { "detach", socket_message_on_detach, .looks = true, .needs_execution = true,
      .fields = { "type", "executionId", "label" } },
    { "ping", socket_message_on_ping, .looks = true, .fields = { "type", "timestamp" } },
};

static bool sandbox_socket_take_rate_token(const struct sandbox_socket *so)
{
    struct ratelimit_answer rate;

    return auth_rate_take(so->api->settings.auth, &so->principal, AUTH_CLASS_DEFAULT, ev_now(so->api->settings.ev),
                          &rate);
}

static int socket_message_handle(struct socket_message *m, const struct socket_message_handler *h, struct err *err)
{
    if (!h->looks && principal_require(&m->socket->principal, SCOPE_BIT(EXECUTIONS), err) < 0)
        return -1;
    if (h->counted && !sandbox_socket_take_rate_token(m->socket))
        return err_set(err, ERR_RATE_LIMITED, "too many requests of this kind with this key; try again later");
    if (h->fields[0] && json_input_require_known_fields(m->body, "", h->fields, err) < 0)
        return -1;
    m->execution = socket_execution_find(m->socket, m->id, m->label);
    if (h->needs_execution && !m->execution)
        return err_set(err, ERR_MISSING, "executionId: this socket follows no such execution; resume it first");
    return h->fn(m, err);
}

static int socket_message_dispatch(struct socket_message *m, struct err *err)
{
    const char *type = NULL, *id = NULL, *label = NULL;

    if (json_input_text(m->body, "", "executionId", 1, SOCKET_EXECUTION_LABEL_MAX, &id, err) < 0 ||
        json_input_text(m->body, "", "label", 1, SOCKET_EXECUTION_LABEL_MAX, &label, err) < 0 ||
        json_input_text(m->body, "", "type", 1, 40, &type, err) < 0)
        return -1;
    if (id && !id_valid(id, "ex"))
        return err_set(err, ERR_INVALID,
                       "executionId: must be the id of an execution, \"ex\" and 20 characters; a name of your own is "
                       "the label");
    if (label && !socket_message_is_valid_label(label))
        return err_set(err, ERR_INVALID, "label: must consist of letters, digits, '-', '_' and '.'");
    (void)str_copy(m->id, sizeof(m->id), id ? id : "");
    (void)str_copy(m->label, sizeof(m->label), label ? label : "");
    for (size_t i = 0; type && i < ARRAY_LEN(socket_message_handlers); i++)
        if (str_eq(type, socket_message_handlers[i].type))
            return socket_message_handle(m, &socket_message_handlers[i], err);
    return err_set(err, ERR_INVALID,
                   "type: must be execute, resume, stdin, input, resize, signal, cancel, detach or ping");
}

static void sandbox_socket_update_back_pressure(struct sandbox_socket *so)
{
    size_t most = 0;

    for (const struct socket_execution *a = so->executions; a; a = a->next)
        most = socket_execution_pending_input(a) > most ? socket_execution_pending_input(a) : most;
    ws_set_reading_paused(so->ws, most > INPUT_HIGH_WATER);
}

static void sandbox_socket_on_message(void *arg, bool text, const char *data, size_t len)
{
    struct sandbox_socket *so = arg;
    auto_json *body = NULL;
    struct socket_message m = { .socket = so };
    struct err err = { 0 };

    if (!text) {
        ws_close(so->ws, WS_UNSUPPORTED, "messages must be JSON text");
        return;
    }
    if (json_input_parse(data, len, &body, &err) < 0) {
        sandbox_socket_send_error(so, NULL, NULL, &err);
        return;
    }
    m.body = body;
    /* The message may name an execution whose end was just acknowledged. */
    gateway_commit_acknowledged_ends(so->api->settings.gateway);
    if (socket_message_dispatch(&m, &err) < 0)
        sandbox_socket_send_error(so, m.id, m.label, &err);
    sandbox_socket_update_back_pressure(so);
}

/* --- open and close --- */

static void sandbox_socket_free(struct sandbox_socket *so)
{
    open_stream_unregister(&so->open_stream);
    ev_defer_clear(so->api->settings.ev, &so->pump_defer);
    ev_timer_clear(so->api->settings.ev, &so->status_timer);
    if (so->usage_query)
        so->usage_query->so = NULL;
    while (so->executions)
        socket_execution_detach(so->executions);
    sandbox_subscription_free(so->subscription);
    free(so);
}

/* The sandbox has ended and all output was sent, or the client reads too slowly. */
static void sandbox_socket_close_ended(void *arg)
{
    struct sandbox_socket *so = arg;

    ev_timer_clear(so->api->settings.ev, &so->status_timer);
    sandbox_socket_send_status(so, NULL);
    ws_close(so->ws, CLOSE_ENDED, so->end_reason);
}

/* Serves one execution after the other, so that one with much output does not delay the others: the
 * first moves to the end of the list. */
static void sandbox_socket_pump(void *arg)
{
    struct sandbox_socket *so = arg;
    size_t n = so->nexecutions;
    bool more = false;

    for (size_t i = 0; i < n && so->executions; i++) {
        struct socket_execution *a = so->executions, **end = &so->executions;

        so->executions = a->next;
        a->next = NULL;
        while (*end)
            end = &(*end)->next;
        *end = a;
        more = !socket_execution_pump(a) || more;
    }
    sandbox_socket_update_back_pressure(so);
    if (so->sandbox_ended && !so->executions)
        sandbox_socket_close_ended(so);
    else if (more && ws_room(so->ws) > 0)
        ev_defer(so->api->settings.ev, &so->pump_defer, sandbox_socket_pump, so);
}

void sandbox_socket_schedule_pump(struct sandbox_socket *so)
{
    ev_defer(so->api->settings.ev, &so->pump_defer, sandbox_socket_pump, so);
}

static void sandbox_socket_on_room(void *arg)
{
    sandbox_socket_schedule_pump(arg);
}

static void sandbox_socket_on_closed(void *arg, unsigned code UNUSED)
{
    sandbox_socket_free(arg);
}

static void sandbox_socket_on_revoked(void *arg, const struct err *why)
{
    struct sandbox_socket *so = arg;

    sandbox_socket_send_error(so, NULL, NULL, why);
    ws_close(so->ws, CLOSE_UNAUTHORIZED, why->msg);
}

static void sandbox_socket_on_sandbox_change(void *arg, const struct err *ended)
{
    struct sandbox_socket *so = arg;

    if (!ended) {
        sandbox_socket_send_status(so, NULL);
        return;
    }
    so->sandbox_ended = true;
    snprintf(so->end_reason, sizeof(so->end_reason), "%s", ended->msg);
    ev_timer_set(so->api->settings.ev, &so->status_timer, ev_now(so->api->settings.ev) + FINAL_OUTPUT_TIMEOUT_NS,
                 sandbox_socket_close_ended, so);
    sandbox_socket_schedule_pump(so);
}

static void sandbox_socket_refuse_ended(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct http_req *req = arg;
    struct err why;

    if (!err && row->state == STORE_SANDBOX_ENDED)
        err_set(&why, ERR_SANDBOX_ENDED, "sandbox %s has ended (%s)", row->id,
                row->ended_by ? row->ended_by : "unmade");
    else if (!err)
        err_set(&why, ERR_BUSY, "the sandbox is still being created or recovered; try again");
    http_answer_err(req, err ? err : &why);
}

static void api_sandbox_socket_open(struct http_req *req, void *ctx)
{
    static const struct ws_ops ops = { sandbox_socket_on_message, sandbox_socket_on_room, sandbox_socket_on_closed };
    static const char *const protocols[] = { "cove.v1", NULL };
    struct api *api = ctx;
    struct err err = { 0 };
    const char *id;
    uint64_t status_ms;

    if (http_query_require_known(req, (const char *const[]){ "statusIntervalMs", "ticket", NULL }, &err) < 0 ||
        http_query_u64(req, "statusIntervalMs", 500, 3600000, 0, &status_ms, &err) < 0 ||
        api_read_sandbox_id(req, &id, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct sandbox_socket *so = mem_new(struct sandbox_socket);
    so->api = api;
    so->principal = *gateway_principal(req);
    so->status_ms = status_ms;
    (void)str_copy(so->owner, sizeof(so->owner), gateway_visible_owner(req));
    (void)str_copy(so->sandbox, sizeof(so->sandbox), id);
    (void)str_copy(so->request_id, sizeof(so->request_id), http_id(req));
    (void)str_copy(so->address, sizeof(so->address), http_peer(req)->is_unix ? "local" : http_peer(req)->addr);
    so->subscription = sandbox_subscribe(api->settings.manager, so->owner, id, sandbox_socket_on_sandbox_change, so,
                                         &err);
    if (!so->subscription) {
        free(so);
        if (err.id == ERR_MISSING)
            store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, sandbox_socket_refuse_ended, req);
        else
            http_answer_err(req, &err);
        return;
    }
    so->ws = http_answer_ws(req, protocols, &ops, so);
    if (!so->ws) {
        sandbox_socket_free(so);
        return;
    }
    open_stream_register(&so->open_stream, api->settings.gateway, &so->principal, sandbox_socket_on_revoked, so);
    sandbox_socket_send_status(so, NULL);
    if (status_ms)
        sandbox_socket_on_status_timer(so);
}

const struct http_route sandbox_socket_routes[] = {
    { "GET", "/v1/sandboxes/{sandboxId}/stream", api_sandbox_socket_open, HTTP_BODY_NONE,
      .data = &permission_executions_read },
    { 0 },
};
