/* One execution on a WebSocket: its output from an offset on (output_pump.h), its input, its end.
 * Input that the program has not read yet waits here; while much of it waits, the server does not
 * read from the socket.
 *
 * 1. An execution is recorded in the audit trail before it starts. An execution whose id the client
 *    chose is started once: if it already exists, the socket joins it.
 * 2. The order of messages is: started, output and events in the order of the pump, end. */
#include "server/api/sandbox_socket.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define PIECE (16 * KIB)

struct socket_execution *socket_execution_find(const struct sandbox_socket *so, const char *id, const char *label)
{
    struct socket_execution *a = so->executions;

    while (a && !(*label && str_eq(a->label, label)) && !(*id && str_eq(a->id, id)))
        a = a->next;
    return a;
}

static void socket_execution_free(struct socket_execution *a)
{
    if (a->api->settings.audit)
        audit_wait_clear(a->api->settings.audit, &a->record_wait);
    output_pump_done(&a->pump);
    execution_writer_free(a->writer);
    execution_request_done(&a->request);
    buf_done(&a->pending_input);
    free(a);
}

static void socket_execution_unlink(struct socket_execution **p, const struct socket_execution *a)
{
    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
}

void socket_execution_detach(struct socket_execution *a)
{
    socket_execution_unlink(&a->socket->executions, a);
    a->socket->nexecutions--;
    a->socket = NULL;
    if (!a->awaiting_reply) {
        socket_execution_free(a);
        return;
    }
    a->next = a->api->orphaned_executions;
    a->api->orphaned_executions = a;
}

void socket_executions_free_orphans(struct api *api)
{
    for (struct socket_execution *a = api->orphaned_executions, *next; a; a = next) {
        next = a->next;
        socket_execution_free(a);
    }
    api->orphaned_executions = NULL;
}

static void socket_execution_fail(struct socket_execution *a, const struct err *err)
{
    sandbox_socket_send_error(a->socket, a->id, a->label, err);
    socket_execution_detach(a);
}

/* --- messages --- */

static struct jsonw *socket_execution_begin_message(const struct socket_execution *a, const char *type)
{
    return sandbox_socket_begin_message(a->socket, type, a->id, a->label);
}

static void socket_execution_send_start(struct socket_execution *a, const struct store_execution *row)
{
    const struct output_pump *p = &a->pump;
    auto_buf execution = { 0 };

    struct jsonw writer, *w;

    jsonw_init(&writer, &execution, 0);
    stored_output_write_execution(p->manager, row, (struct execution_view){ 0 }, &writer);
    w = socket_execution_begin_message(a, "started");
    jsonw_ku64(w, "stdoutOffset", p->offset[0]);
    jsonw_ku64(w, "stderrOffset", p->offset[1]);
    if (output_pump_has_events(p))
        jsonw_ku64(w, "eventsOffset", p->offset[2]);
    if (p->watch && execution_watch_terminal_size(p->watch, &a->rows, &a->cols)) {
        jsonw_ku64(w, "rows", a->rows);
        jsonw_ku64(w, "cols", a->cols);
    }
    if (p->watch)
        jsonw_ku64(w, "stdinBytes", a->acked_input_bytes = execution_watch_input_bytes(p->watch));
    api_write_raw_json(w, "execution", execution.data);
    sandbox_socket_send_message(a->socket);
}

static void socket_execution_send_tty_size(struct socket_execution *a)
{
    uint16_t rows, cols;

    if (!a->pump.watch || !execution_watch_terminal_size(a->pump.watch, &rows, &cols) ||
        (rows == a->rows && cols == a->cols))
        return;
    if (ws_room(a->socket->ws) == 0)
        return; /* while this client does not read, others may resize: only the last size is sent */
    a->rows = rows;
    a->cols = cols;
    struct jsonw *w = socket_execution_begin_message(a, "resized");
    jsonw_ku64(w, "rows", rows);
    jsonw_ku64(w, "cols", cols);
    sandbox_socket_send_message(a->socket);
}

/* --- the client of the pump --- */

static bool socket_execution_has_room(void *client)
{
    const struct socket_execution *a = client;

    return ws_room(a->socket->ws) > 0;
}

static void socket_execution_send_output(void *client, const struct output_piece *piece)
{
    const struct socket_execution *a = client;
    struct jsonw *w = socket_execution_begin_message(a, "output");

    output_piece_write(piece, w);
    sandbox_socket_send_message(a->socket);
}

/* The event is an object that begins with its type; its other members become members of the
 * message. */
static void socket_execution_send_event(void *client, const char *type, const struct buf *json)
{
    const struct socket_execution *a = client;
    struct jsonw *w = socket_execution_begin_message(a, type);
    const char *members = strchr(json->data, ',');

    jsonw_ku64(w, "eventsOffset", a->pump.offset[CONTEXT_EVENTS - 1]);
    if (members)
        buf_add(w->out, members, json->len - (size_t)(members - json->data) - 1);
    sandbox_socket_send_message(a->socket);
}

static void socket_execution_send_end(void *client, const char *execution_json)
{
    const struct socket_execution *a = client;
    struct jsonw *w = socket_execution_begin_message(a, "end");

    api_write_raw_json(w, "execution", execution_json);
    sandbox_socket_send_message(a->socket);
}

static const struct output_client_ops socket_execution_output_ops = { .piece_max = PIECE,
                                                                      .turn_max = PIECE,
                                                                      .has_room = socket_execution_has_room,
                                                                      .send_output = socket_execution_send_output,
                                                                      .send_event = socket_execution_send_event,
                                                                      .send_end = socket_execution_send_end };

bool socket_execution_pump(struct socket_execution *a)
{
    struct err err = { 0 };

    if (a->awaiting_reply)
        return true;
    socket_execution_send_tty_size(a);
    enum output_pump_result rc = output_pump_run(&a->pump, &err);
    if (rc == OUTPUT_PUMP_FAILED)
        socket_execution_fail(a, &err);
    else if (rc == OUTPUT_PUMP_ENDED)
        socket_execution_detach(a);
    return rc != OUTPUT_PUMP_MORE;
}

/* --- join --- */

static void socket_execution_on_progress(void *arg)
{
    struct socket_execution *a = arg;

    sandbox_socket_schedule_pump(a->socket);
}

static struct socket_execution *socket_execution_new(struct sandbox_socket *so, const char *label, const char *id)
{
    struct socket_execution *a = mem_new(struct socket_execution);

    a->socket = so;
    a->api = so->api;
    output_pump_init(&a->pump, so->api->settings.manager, &socket_execution_output_ops, a, socket_execution_on_progress,
                     a);
    (void)str_copy(a->label, sizeof(a->label), label);
    (void)str_copy(a->id, sizeof(a->id), id);
    a->next = so->executions;
    so->executions = a;
    so->nexecutions++;
    return a;
}

static int socket_execution_join(struct socket_execution *a, const struct store_execution *row, struct err *err)
{
    (void)str_copy(a->id, sizeof(a->id), row->id);
    a->join.owner = a->socket->owner;
    a->join.sandbox = a->socket->sandbox;
    a->join.channels = OUTPUT_ALL_CHANNELS;
    return output_pump_join(&a->pump, &a->join, row, err);
}

static bool socket_execution_reply_arrived(struct socket_execution *a)
{
    a->awaiting_reply = false;
    if (a->socket)
        return true;
    socket_execution_unlink(&a->api->orphaned_executions, a);
    socket_execution_free(a);
    return false;
}

static const char *socket_execution_audit_action(const struct socket_execution *a)
{
    return a->context[0] ? "context.execute" : "execution.create";
}

static void socket_execution_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct socket_execution *a = arg;
    struct err why = { 0 };

    if (!socket_execution_reply_arrived(a))
        return;
    if (a->request.body)
        (void)sandbox_socket_record_action(a->socket, socket_execution_audit_action(a), err ? "failed" : "success",
                                           err ? a->id : row->id, NULL);
    execution_request_done(&a->request);
    if (err || socket_execution_join(a, row, &why) < 0) {
        socket_execution_fail(a, err ? err : &why);
        return;
    }
    socket_execution_send_start(a, row);
    sandbox_socket_schedule_pump(a->socket);
}

static void socket_execution_on_recorded(void *arg)
{
    struct socket_execution *a = arg;

    if (!socket_execution_reply_arrived(a))
        return;
    struct sandbox_socket *so = a->socket;
    a->awaiting_reply = true;
    a->request.spec.created_by = a->context_call.created_by = principal_id(&so->principal);
    a->request.spec.request_id = a->context_call.request_id = so->request_id;
    if (a->context[0] && !a->id[0])
        id_new("ex", a->id);
    if (a->context[0])
        manager_context_execute(so->api->settings.manager, so->owner, so->sandbox, a->context, a->id, &a->context_call,
                                socket_execution_on_row, a);
    else
        manager_execute(so->api->settings.manager, so->owner, so->sandbox, a->id[0] ? a->id : NULL, &a->request.spec,
                        socket_execution_on_row, a);
}

static void socket_execution_write_hash(struct jsonw *w, const char *key, const void *data, size_t len)
{
    uint8_t sum[CHAIN_HASH];
    char hex[2 * CHAIN_HASH + 1];
    auto_free char *name = str_printf("%sSha256", key), *size = str_printf("%sBytes", key);

    chain_sha256(data, len, sum);
    chain_hex(sum, CHAIN_HASH, hex);
    jsonw_kstr(w, name, hex);
    jsonw_ku64(w, size, len);
}

static void socket_execution_record_and_start(struct socket_execution *a)
{
    const struct execution_spec *s = &a->request.spec;
    const char *code = a->context[0] ? a->context_call.code : s->code;
    struct audit *audit = a->socket->api->settings.audit;
    auto_buf details = { 0 }, words = { 0 };
    struct jsonw w;

    a->awaiting_reply = true;
    api_object_begin(&w, &details);
    jsonw_kstr(&w, "by", "stream");
    jsonw_kstr_if(&w, "contextId", a->context);
    if (code)
        socket_execution_write_hash(&w, "code", code, strlen(code));
    for (size_t i = 0; s->argv && s->argv[i]; i++)
        buf_add(&words, s->argv[i], strlen(s->argv[i]) + 1);
    if (words.len)
        socket_execution_write_hash(&w, "command", words.data, words.len);
    jsonw_end_object(&w);
    uint64_t seq = sandbox_socket_record_action(a->socket, socket_execution_audit_action(a), "accepted", a->id,
                                                details.data);
    if (!audit || audit_wait(audit, &a->record_wait, seq, socket_execution_on_recorded, a))
        socket_execution_on_recorded(a);
}

static void socket_execution_on_looked_up(void *arg, const struct err *err, const struct store_execution *row)
{
    struct socket_execution *a = arg;

    if (err && err->id == ERR_MISSING) {
        if (socket_execution_reply_arrived(a))
            socket_execution_record_and_start(a);
    } else {
        socket_execution_on_row(a, err, row);
    }
}

void socket_execution_start(struct sandbox_socket *so, const char *label, const char *id,
                            struct execution_request *launch, const char *context,
                            const struct context_execution_spec *call)
{
    struct socket_execution *a = socket_execution_new(so, label, id);

    (void)api_read_receipt_detail(launch->body, &a->join.receipt, NULL);
    a->request = *launch;
    *launch = (struct execution_request){ 0 };
    (void)str_copy(a->context, sizeof(a->context), context);
    a->context_call = *call;
    a->request.spec.background = a->context_call.background = true; /* it does not end when its client disconnects */
    if (!id[0]) {
        socket_execution_record_and_start(a);
        return;
    }
    a->awaiting_reply = true;
    store_execution_get(so->api->settings.store, so->owner, id, socket_execution_on_looked_up, a);
}

void socket_execution_resume(struct sandbox_socket *so, const char *label, const char *id,
                             const struct output_join *join)
{
    struct socket_execution *a = socket_execution_new(so, label, id);

    a->join = *join;
    a->awaiting_reply = true;
    store_execution_get(so->api->settings.store, so->owner, id, socket_execution_on_row, a);
}

/* --- input --- */

size_t socket_execution_pending_input(const struct socket_execution *a)
{
    return a->pending_input.len;
}

static void socket_execution_send_stdin_ack(struct socket_execution *a)
{
    if (execution_writer_bytes(a->writer) == a->acked_input_bytes)
        return;
    a->acked_input_bytes = execution_writer_bytes(a->writer);
    struct jsonw *w = socket_execution_begin_message(a, "stdin_ack");
    jsonw_ku64(w, "stdinBytes", a->acked_input_bytes);
    sandbox_socket_send_message(a->socket);
}

static void socket_execution_write_input(struct socket_execution *a)
{
    size_t n = a->pending_input.len ? execution_writer_send(a->writer, a->pending_input.data, a->pending_input.len) : 0;

    if (n > 0)
        buf_drop(&a->pending_input, n);
    if (a->pending_input.len > 0)
        return;
    buf_done(&a->pending_input); /* an idle execution holds no memory */
    if (a->input_eof_received && !a->input_closed)
        execution_writer_close(a->writer);
    a->input_closed = a->input_eof_received;
    socket_execution_send_stdin_ack(a);
}

static void socket_execution_on_input_room(void *arg)
{
    socket_execution_write_input(arg);
    socket_execution_on_progress(arg);
}

static void socket_execution_on_input_closed(void *arg, uint64_t bytes UNUSED)
{
    struct socket_execution *a = arg;

    buf_done(&a->pending_input);
    execution_writer_free(take_ptr(&a->writer));
    a->input_closed = true;
    sandbox_socket_schedule_pump(a->socket);
}

static int socket_execution_open_writer(struct socket_execution *a, struct err *err)
{
    static const struct execution_writer_ops ops = { socket_execution_on_input_room, socket_execution_on_input_closed };
    struct sandbox_socket *so = a->socket;

    if (a->input_closed || (!a->pump.watch && !a->awaiting_reply))
        return err_set(err, ERR_EXISTS, "execution %s accepts no more input", a->id);
    if (a->awaiting_reply)
        return err_set(err, ERR_BUSY, "the execution has not started yet; wait for started");
    if (!a->writer)
        a->writer = manager_open_execution_input(so->api->settings.manager, so->owner, so->sandbox, a->id, &ops, a,
                                                 err);
    return a->writer ? 0 : -1;
}

void socket_execution_add_input(struct socket_execution *a, const char *data, size_t len, const uint64_t *offset,
                                bool ends)
{
    struct err err = { 0 };

    if (socket_execution_open_writer(a, &err) < 0) {
        sandbox_socket_send_error(a->socket, a->id, a->label, &err);
        return;
    }
    if (!a->input_recorded)
        (void)sandbox_socket_record_action(a->socket, "execution.stdin", "success", a->id, NULL);
    a->input_recorded = true;
    uint64_t have = execution_writer_bytes(a->writer) + a->pending_input.len;
    if (offset && *offset > have) {
        err_set(&err, ERR_EXISTS, "offset: the standard input has only %" PRIu64 " bytes so far", have);
        sandbox_socket_send_error(a->socket, a->id, a->label, &err);
        return;
    }
    size_t known = offset ? (size_t)min_u64(have - *offset, len) : 0;
    buf_add(&a->pending_input, data + known, len - known);
    a->input_eof_received = a->input_eof_received || ends;
    socket_execution_write_input(a);
}
