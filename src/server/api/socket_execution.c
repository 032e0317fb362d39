/* One execution on a WebSocket: its output from an offset on, its input, its end.
 *
 * Output is read from the execution's files, as in follow.c. Starting, resuming and reading an
 * ended execution are therefore the same operation, and a client that does not read costs nothing
 * but its offset. Input that the program has not read yet waits here; while much of it waits, the
 * server does not read from the socket. An execution in a context has a third file, for its events.
 *
 * 1. An execution is recorded in the audit trail before it starts. An execution whose id the client
 *    chose is started once: if it already exists, the socket joins it.
 * 2. The order of messages is: execution_start, output in the order of offsets with events after
 *    the output that preceded them, execution_complete. */
#include "server/api/sandbox_socket.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <sys/stat.h>
#include <unistd.h>

#define PIECE (16 * KIB)

struct socket_execution *socket_execution_find(const struct sandbox_socket *so, const char *name)
{
    struct socket_execution *a = so->executions;

    while (a && !str_eq(a->name, name) && !str_eq(a->id, name))
        a = a->next;
    return a;
}

static struct socket_execution *socket_execution_new(struct sandbox_socket *so, const char *name, const char *id)
{
    struct socket_execution *a = mem_new(struct socket_execution);

    a->socket = so;
    a->api = so->api;
    a->fd[0] = a->fd[1] = a->fd[2] = -1;
    a->tail_bytes = UINT64_MAX;
    (void)str_copy(a->name, sizeof(a->name), name);
    (void)str_copy(a->id, sizeof(a->id), id);
    a->next = so->executions;
    so->executions = a;
    so->nexecutions++;
    return a;
}

static void socket_execution_free(struct socket_execution *a)
{
    if (a->api->settings.audit)
        audit_wait_clear(a->api->settings.audit, &a->record_wait);
    execution_watch_free(a->watch);
    execution_writer_free(a->writer);
    fd_close(&a->fd[0]);
    fd_close(&a->fd[1]);
    fd_close(&a->fd[2]);
    execution_request_done(&a->request);
    buf_done(&a->pending_input);
    buf_done(&a->end_json);
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
    execution_watch_free(take_ptr(&a->watch));
    execution_writer_free(take_ptr(&a->writer));
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
    sandbox_socket_send_error(a->socket, a->name, NULL, err);
    socket_execution_detach(a);
}

/* --- messages --- */

static const char *socket_execution_end_error_code(const struct store_execution *row)
{
    static const char *const clocks[] = { "wall", "cpu", "lifetime", "idle" };

    for (size_t i = 0; row->ended_by && i < ARRAY_LEN(clocks); i++)
        if (str_eq(row->ended_by, clocks[i]))
            return "execution_timeout";
    return row->state == STORE_EXECUTION_FAILED ? "execution_failed" : NULL;
}

/* The row is only valid during the call, so the final message is prepared now. */
static void socket_execution_store_end(struct socket_execution *a, const struct store_execution *row)
{
    struct jsonw w;

    jsonw_init(&w, &a->end_json, 0);
    api_write_execution(row, &w);
    jsonw_end_object(&w);
    a->end_error_code = socket_execution_end_error_code(row);
}

static bool socket_execution_send_start(struct socket_execution *a, const struct store_execution *row)
{
    auto_buf out = { 0 }, execution = { 0 };
    struct jsonw w;

    jsonw_init(&w, &execution, 0);
    api_write_execution(row, &w);
    jsonw_end_object(&w);
    sandbox_socket_begin_message(a->socket, &w, &out, "execution_start", a);
    jsonw_ku64(&w, "stdoutOffset", a->offset[0]);
    jsonw_ku64(&w, "stderrOffset", a->offset[1]);
    if (a->has_events)
        jsonw_ku64(&w, "eventsOffset", a->offset[2]);
    if (a->watch && execution_watch_terminal_size(a->watch, &a->rows, &a->cols)) {
        jsonw_ku64(&w, "rows", a->rows);
        jsonw_ku64(&w, "cols", a->cols);
    }
    if (a->watch)
        jsonw_ku64(&w, "stdinBytes", a->acked_input_bytes = execution_watch_input_bytes(a->watch));
    api_write_raw_json(&w, "execution", execution.data);
    a->start_sent = true;
    return sandbox_socket_send_message(a->socket, &w);
}

static void socket_execution_send_tty_size(struct socket_execution *a)
{
    auto_buf out = { 0 };
    struct jsonw w;
    uint16_t rows, cols;

    if (!a->watch || !execution_watch_terminal_size(a->watch, &rows, &cols) || (rows == a->rows && cols == a->cols))
        return;
    if (ws_room(a->socket->ws) == 0)
        return; /* while this client does not read, others may resize: only the last size is sent */
    a->rows = rows;
    a->cols = cols;
    sandbox_socket_begin_message(a->socket, &w, &out, "resized", a);
    jsonw_ku64(&w, "rows", rows);
    jsonw_ku64(&w, "cols", cols);
    (void)sandbox_socket_send_message(a->socket, &w);
}

static void socket_execution_send_end(struct socket_execution *a)
{
    auto_json *row = json_loads(a->end_json.data, 0, NULL);
    const json_t *why = json_object_get(row, "error");
    auto_buf out = { 0 };
    struct jsonw w;

    if (a->end_error_code) {
        const char *text = json_string_value(json_object_get(why, "message"));
        struct err err;

        err_set(&err, ERR_TIMEOUT, "%.200s",
                text ? text : "a time limit of the execution or of its sandbox was reached");
        sandbox_socket_send_error(a->socket, a->name, a->end_error_code, &err);
    }
    sandbox_socket_begin_message(a->socket, &w, &out, "execution_complete", a);
    const json_t *code = json_object_get(row, "exitCode");
    jsonw_key(&w, "exitCode");
    if (json_is_integer(code))
        jsonw_i64(&w, json_integer_value(code));
    else
        jsonw_null(&w);
    api_write_raw_json(&w, "execution", a->end_json.data);
    (void)sandbox_socket_send_message(a->socket, &w);
}

static bool socket_execution_send_output(struct socket_execution *a, int i, const char *data, size_t n, bool last)
{
    auto_buf out = { 0 };
    struct jsonw w;

    sandbox_socket_begin_message(a->socket, &w, &out, "output", a);
    jsonw_kstr(&w, "stream", i == 0 ? "stdout" : "stderr");
    jsonw_ku64(&w, "offset", a->offset[i]);
    a->offset[i] += output_chunk_write_json(&w, "content", data, n, last);
    return sandbox_socket_send_message(a->socket, &w);
}

/* --- output --- */

enum socket_pump_result { PUMP_NOTHING, PUMP_MORE, PUMP_FULL, PUMP_FAILED };

/* Sends one chunk of one channel. PUMP_FULL: wait for the client to read. PUMP_FAILED: the file
 * exists and cannot be read. */
static enum socket_pump_result socket_execution_pump_output(struct socket_execution *a, int i, struct err *err)
{
    char data[PIECE] __attribute__((uninitialized));

    if (a->watch)
        a->end[i] = execution_watch_output_bytes(a->watch, i + 1);
    if (a->offset[i] >= a->end[i])
        return PUMP_NOTHING;
    if (ws_room(a->socket->ws) == 0)
        return PUMP_FULL;
    if (a->fd[i] < 0 && output_chunk_open_file(a->socket->api, a->id, i + 1, &a->fd[i], err) < 0)
        return PUMP_FAILED;
    if (a->fd[i] < 0)
        return PUMP_NOTHING; /* removed by retention in the meantime */
    if (a->tty && a->watch && i == 0)
        a->offset[0] = max_u64(a->offset[0], execution_watch_first_kept_offset(a->watch));
    else if (a->tty)
        a->offset[i] = output_first_kept_offset(a->fd[i], a->offset[i]);
    size_t want = (size_t)min_u64(a->end[i] - a->offset[i], sizeof(data));
    ssize_t n = pread(a->fd[i], data, want, (off_t)a->offset[i]);
    bool last = !a->watch && a->offset[i] + want == a->end[i];

    if (n <= 0 || (!last && output_chunk_is_partial_utf8(data, (size_t)n)))
        return PUMP_NOTHING;
    return socket_execution_send_output(a, i, data, (size_t)n, last) ? PUMP_MORE : PUMP_FULL;
}

/* Sends one event: a line, which is already a JSON object. */
static enum socket_pump_result socket_execution_pump_event(struct socket_execution *a, struct err *err)
{
    auto_buf out = { 0 }, line = { 0 };
    struct jsonw w;
    char type[16];

    if (a->watch)
        a->end[2] = execution_watch_output_bytes(a->watch, CONTEXT_EVENTS);
    if (!a->has_events || a->offset[2] >= a->end[2])
        return PUMP_NOTHING;
    if (ws_room(a->socket->ws) == 0)
        return PUMP_FULL;
    if (a->fd[2] < 0 && output_chunk_open_file(a->socket->api, a->id, CONTEXT_EVENTS, &a->fd[2], err) < 0)
        return PUMP_FAILED;
    if (a->fd[2] < 0 || !kernel_events_read_line(a->fd[2], a->offset[2], &line, type))
        return PUMP_NOTHING; /* removed by retention in the meantime */
    a->offset[2] += line.len + 1;
    sandbox_socket_begin_message(a->socket, &w, &out, "event", a);
    jsonw_ku64(&w, "eventsOffset", a->offset[2]);
    api_write_raw_json(&w, "event", line.data);
    return sandbox_socket_send_message(a->socket, &w) ? PUMP_MORE : PUMP_FULL;
}

bool socket_execution_pump(struct socket_execution *a)
{
    struct err err = { 0 };

    if (a->awaiting_reply || !a->start_sent)
        return true;
    socket_execution_send_tty_size(a);
    for (int i = 0; i < 3; i++) {
        enum socket_pump_result rc = i < 2 ? socket_execution_pump_output(a, i, &err)
                                           : socket_execution_pump_event(a, &err);

        if (rc == PUMP_FAILED) { /* no execution_complete: a client that resumes at its offsets misses nothing */
            socket_execution_fail(a, &err);
            return true;
        }
        if (rc != PUMP_NOTHING)
            return false;
    }
    if (a->watch)
        return true;
    socket_execution_send_end(a);
    socket_execution_detach(a);
    return true;
}

static void socket_execution_on_progress(void *arg, const struct store_execution *ended)
{
    struct socket_execution *a = arg;

    if (ended) {
        for (int i = 0; i < 3; i++)
            a->end[i] = max_u64(execution_watch_output_bytes(a->watch, i + 1), ended->out_bytes[i] - ended->dropped[i]);
        execution_watch_free(take_ptr(&a->watch));
        socket_execution_store_end(a, ended);
    }
    sandbox_socket_schedule_pump(a->socket);
}

/* --- join --- */

static bool socket_execution_row_is_live(const struct store_execution *row)
{
    return row->state == STORE_EXECUTION_STARTING || row->state == STORE_EXECUTION_RUNNING;
}

static int socket_execution_find_output_ends(struct socket_execution *a, struct err *err)
{
    struct stat st;

    for (int i = 0; i < (a->has_events ? 3 : 2); i++) {
        if (output_chunk_open_file(a->socket->api, a->id, i + 1, &a->fd[i], err) < 0)
            return -1;
        a->end[i] = a->fd[i] >= 0 && fstat(a->fd[i], &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    for (int i = 0; i < 2; i++) {
        if (a->tail_bytes != UINT64_MAX)
            a->offset[i] = a->end[i] - min_u64(a->end[i], a->tail_bytes);
        if (a->fd[i] >= 0 && a->offset[i] < a->end[i])
            a->offset[i] = output_first_kept_offset(a->fd[i], a->offset[i]);
    }
    return 0;
}

static int socket_execution_join(struct socket_execution *a, const struct store_execution *row, struct err *err)
{
    static const char *const names[] = { "stdout has", "stderr has", "events have" };
    struct sandbox_socket *so = a->socket;

    if (!str_eq(row->sandbox, so->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    (void)str_copy(a->id, sizeof(a->id), row->id);
    if (!a->name[0])
        (void)str_copy(a->name, sizeof(a->name), row->id);
    if (socket_execution_row_is_live(row))
        a->watch = manager_watch_execution(so->api->settings.manager, so->owner, so->sandbox, row->id,
                                           socket_execution_on_progress, a);
    if (socket_execution_row_is_live(row) && !a->watch)
        return err_set(err, ERR_BUSY, "the server has just started and is still recovering its executions; try again");
    a->tty = row->tty;
    a->has_events = row->context[0] != '\0';
    if (socket_execution_find_output_ends(a, err) < 0)
        return -1;
    for (int i = 0; i < 3 && !a->watch; i++)
        if (a->offset[i] > a->end[i])
            return err_set(err, ERR_HTTP_RANGE, "%s %" PRIu64 " bytes so far, none at offset %" PRIu64, names[i],
                           a->end[i], a->offset[i]);
    if (!a->watch)
        socket_execution_store_end(a, row);
    return 0;
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
    (void)socket_execution_send_start(a, row);
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
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "by", "stream");
    if (a->context[0])
        jsonw_kstr(&w, "contextId", a->context);
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

void socket_execution_start(struct sandbox_socket *so, const char *name, const char *id,
                            struct execution_request *launch, const char *context,
                            const struct context_execution_spec *call)
{
    struct socket_execution *a = socket_execution_new(so, name, id);

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

void socket_execution_resume(struct sandbox_socket *so, const char *name, const char *id, const uint64_t offset[3],
                             uint64_t tail)
{
    struct socket_execution *a = socket_execution_new(so, name, id);

    memcpy(a->offset, offset, sizeof(a->offset));
    a->tail_bytes = tail;
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
    auto_buf out = { 0 };
    struct jsonw w;

    if (execution_writer_bytes(a->writer) == a->acked_input_bytes)
        return;
    a->acked_input_bytes = execution_writer_bytes(a->writer);
    sandbox_socket_begin_message(a->socket, &w, &out, "stdin_ack", a);
    jsonw_ku64(&w, "stdinBytes", a->acked_input_bytes);
    (void)sandbox_socket_send_message(a->socket, &w);
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
    struct socket_execution *a = arg;

    socket_execution_write_input(a);
    sandbox_socket_schedule_pump(a->socket);
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

    if (a->input_closed || (!a->watch && !a->awaiting_reply))
        return err_set(err, ERR_EXISTS, "execution %s accepts no more input", a->name);
    if (a->awaiting_reply)
        return err_set(err, ERR_BUSY, "execution %s has not started yet; wait for execution_start", a->name);
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
        sandbox_socket_send_error(a->socket, a->name, NULL, &err);
        return;
    }
    if (!a->input_recorded)
        (void)sandbox_socket_record_action(a->socket, "execution.stdin", "success", a->id, NULL);
    a->input_recorded = true;
    uint64_t have = execution_writer_bytes(a->writer) + a->pending_input.len;
    if (offset && *offset > have) {
        err_set(&err, ERR_EXISTS, "offset: the standard input has only %" PRIu64 " bytes so far", have);
        sandbox_socket_send_error(a->socket, a->name, NULL, &err);
        return;
    }
    size_t known = offset ? (size_t)min_u64(have - *offset, len) : 0;
    buf_add(&a->pending_input, data + known, len - known);
    a->input_eof_received = a->input_eof_received || ends;
    socket_execution_write_input(a);
}
