/* One execution on a WebSocket: its output from an offset on, its input, its end.
 *
 * Output is read from the execution's files, as in follow.c, so beginning, resuming and looking at one that has ended
 * are the same, and a client that does not read costs nothing but its place in the file. Input that the program does
 * not take waits here; the socket is not read from while that is much. An execution of a context has a third file, of
 * its events.
 *
 * 1. What is started was recorded before. An execution that a client names by an id of its own is started once: if it
 *    is there already, it is joined.
 * 2. execution_start comes first, then output in the order of offsets and events behind the output that came before
 *    them, then execution_complete, and then it is over. */
#include "api/socket.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <sys/stat.h>
#include <unistd.h>

#define PIECE (16 * KIB)

struct attach *attach_find(const struct socket *so, const char *name)
{
    struct attach *a = so->attaches;

    while (a && !str_eq(a->name, name) && !str_eq(a->id, name))
        a = a->next;
    return a;
}

static struct attach *attach_new(struct socket *so, const char *name, const char *id)
{
    struct attach *a = mem_new(struct attach);

    a->so = so;
    a->api = so->api;
    a->fd[0] = a->fd[1] = a->fd[2] = -1;
    a->tail = UINT64_MAX;
    (void)str_copy(a->name, sizeof(a->name), name);
    (void)str_copy(a->id, sizeof(a->id), id);
    a->next = so->attaches;
    so->attaches = a;
    so->nattaches++;
    return a;
}

static void attach_free(struct attach *a)
{
    if (a->api->set.audit)
        audit_wait_clear(a->api->set.audit, &a->recorded);
    watch_free(a->watch);
    writer_free(a->writer);
    fd_close(&a->fd[0]);
    fd_close(&a->fd[1]);
    fd_close(&a->fd[2]);
    launch_done(&a->launch);
    buf_done(&a->input);
    buf_done(&a->last);
    free(a);
}

static void unlink_attach(struct attach **p, const struct attach *a)
{
    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
}

void attach_drop(struct attach *a)
{
    unlink_attach(&a->so->attaches, a);
    a->so->nattaches--;
    a->so = NULL;
    watch_free(take_ptr(&a->watch));
    writer_free(take_ptr(&a->writer));
    if (!a->waiting) {
        attach_free(a);
        return;
    }
    a->next = a->api->orphans;
    a->api->orphans = a;
}

void attach_done(struct api *api)
{
    for (struct attach *a = api->orphans, *next; a; a = next) {
        next = a->next;
        attach_free(a);
    }
    api->orphans = NULL;
}

static void fail(struct attach *a, const struct err *err)
{
    socket_error(a->so, a->name, NULL, err);
    attach_drop(a);
}

/* --- messages --- */

static const char *clock_error(const struct store_execution *row)
{
    static const char *const clocks[] = { "wall", "cpu", "lifetime", "idle" };

    for (size_t i = 0; row->ended_by && i < ARRAY_LEN(clocks); i++)
        if (str_eq(row->ended_by, clocks[i]))
            return "execution_timeout";
    return row->state == STORE_EX_FAILED ? "execution_failed" : NULL;
}

/* Rows are borrowed for a moment, so what will be said is written now. */
static void keep_end(struct attach *a, const struct store_execution *row)
{
    struct jsonw w;

    jsonw_init(&w, &a->last, 0);
    api_execution_json(row, &w);
    jsonw_end_object(&w);
    a->clock_error = clock_error(row);
}

static bool say_start(struct attach *a, const struct store_execution *row)
{
    auto_buf out = { 0 }, execution = { 0 };
    struct jsonw w;

    jsonw_init(&w, &execution, 0);
    api_execution_json(row, &w);
    jsonw_end_object(&w);
    socket_begin(a->so, &w, &out, "execution_start", a);
    jsonw_ku64(&w, "stdoutOffset", a->offset[0]);
    jsonw_ku64(&w, "stderrOffset", a->offset[1]);
    if (a->tells)
        jsonw_ku64(&w, "eventsOffset", a->offset[2]);
    if (a->watch && watch_size(a->watch, &a->rows, &a->cols)) {
        jsonw_ku64(&w, "rows", a->rows);
        jsonw_ku64(&w, "cols", a->cols);
    }
    if (a->watch)
        jsonw_ku64(&w, "stdinBytes", a->acked = watch_input(a->watch));
    api_raw(&w, "execution", execution.data);
    a->started = true;
    return socket_send(a->so, &w);
}

static void say_size(struct attach *a)
{
    auto_buf out = { 0 };
    struct jsonw w;
    uint16_t rows, cols;

    if (!a->watch || !watch_size(a->watch, &rows, &cols) || (rows == a->rows && cols == a->cols))
        return;
    if (ws_room(a->so->ws) == 0)
        return; /* others may resize it for as long as this one does not read: then the last size is told */
    a->rows = rows;
    a->cols = cols;
    socket_begin(a->so, &w, &out, "resized", a);
    jsonw_ku64(&w, "rows", rows);
    jsonw_ku64(&w, "cols", cols);
    (void)socket_send(a->so, &w);
}

static void say_end(struct attach *a)
{
    auto_json *row = json_loads(a->last.data, 0, NULL);
    const json_t *why = json_object_get(row, "error");
    auto_buf out = { 0 };
    struct jsonw w;

    if (a->clock_error) {
        const char *text = json_string_value(json_object_get(why, "message"));
        struct err err;

        err_set(&err, ERR_TIMEOUT, "%.200s", text ? text : "a clock of the execution or of its sandbox ran out");
        socket_error(a->so, a->name, a->clock_error, &err);
    }
    socket_begin(a->so, &w, &out, "execution_complete", a);
    const json_t *code = json_object_get(row, "exitCode");
    jsonw_key(&w, "exitCode");
    if (json_is_integer(code))
        jsonw_i64(&w, json_integer_value(code));
    else
        jsonw_null(&w);
    api_raw(&w, "execution", a->last.data);
    (void)socket_send(a->so, &w);
}

static bool say_piece(struct attach *a, int i, const char *data, size_t n, bool last)
{
    auto_buf out = { 0 };
    struct jsonw w;

    socket_begin(a->so, &w, &out, "output", a);
    jsonw_kstr(&w, "stream", i == 0 ? "stdout" : "stderr");
    jsonw_ku64(&w, "offset", a->offset[i]);
    a->offset[i] += piece_json(&w, "content", data, n, last);
    return socket_send(a->so, &w);
}

/* --- output --- */

enum pumped { PUMP_NOTHING, PUMP_MORE, PUMP_FULL, PUMP_FAILED };

/* One piece of one channel. PUMP_FULL: the client has to read first. PUMP_FAILED: it is there and cannot be read. */
static enum pumped pump_piece(struct attach *a, int i, struct err *err)
{
    char data[PIECE] __attribute__((uninitialized));

    if (a->watch)
        a->end[i] = watch_bytes(a->watch, i + 1);
    if (a->offset[i] >= a->end[i])
        return PUMP_NOTHING;
    if (ws_room(a->so->ws) == 0)
        return PUMP_FULL;
    if (a->fd[i] < 0 && piece_open(a->so->api, a->id, i + 1, &a->fd[i], err) < 0)
        return PUMP_FAILED;
    if (a->fd[i] < 0)
        return PUMP_NOTHING; /* removed by retention meanwhile */
    if (a->tty && a->watch && i == 0)
        a->offset[0] = max_u64(a->offset[0], watch_kept(a->watch));
    else if (a->tty)
        a->offset[i] = manager_output_kept(a->fd[i], a->offset[i]);
    size_t want = (size_t)min_u64(a->end[i] - a->offset[i], sizeof(data));
    ssize_t n = pread(a->fd[i], data, want, (off_t)a->offset[i]);
    bool last = !a->watch && a->offset[i] + want == a->end[i];

    if (n <= 0 || (!last && piece_waits(data, (size_t)n)))
        return PUMP_NOTHING;
    return say_piece(a, i, data, (size_t)n, last) ? PUMP_MORE : PUMP_FULL;
}

/* One event: a line, which is an object already. */
static enum pumped pump_event(struct attach *a, struct err *err)
{
    auto_buf out = { 0 }, line = { 0 };
    struct jsonw w;
    char type[16];

    if (a->watch)
        a->end[2] = watch_bytes(a->watch, CONTEXT_EVENTS);
    if (!a->tells || a->offset[2] >= a->end[2])
        return PUMP_NOTHING;
    if (ws_room(a->so->ws) == 0)
        return PUMP_FULL;
    if (a->fd[2] < 0 && piece_open(a->so->api, a->id, CONTEXT_EVENTS, &a->fd[2], err) < 0)
        return PUMP_FAILED;
    if (a->fd[2] < 0 || !told_line(a->fd[2], a->offset[2], &line, type))
        return PUMP_NOTHING; /* removed by retention meanwhile */
    a->offset[2] += line.len + 1;
    socket_begin(a->so, &w, &out, "event", a);
    jsonw_ku64(&w, "eventsOffset", a->offset[2]);
    api_raw(&w, "event", line.data);
    return socket_send(a->so, &w) ? PUMP_MORE : PUMP_FULL;
}

bool attach_pump(struct attach *a)
{
    struct err err = { 0 };

    if (a->waiting || !a->started)
        return true;
    say_size(a);
    for (int i = 0; i < 3; i++) {
        enum pumped rc = i < 2 ? pump_piece(a, i, &err) : pump_event(a, &err);

        if (rc == PUMP_FAILED) { /* no end is told: who joins again at the offset that they have misses nothing */
            fail(a, &err);
            return true;
        }
        if (rc != PUMP_NOTHING)
            return false;
    }
    if (a->watch)
        return true;
    say_end(a);
    attach_drop(a);
    return true;
}

static void on_watch(void *arg, const struct store_execution *ended)
{
    struct attach *a = arg;

    if (ended) {
        for (int i = 0; i < 3; i++)
            a->end[i] = max_u64(watch_bytes(a->watch, i + 1), ended->out_bytes[i] - ended->dropped[i]);
        watch_free(take_ptr(&a->watch));
        keep_end(a, ended);
    }
    socket_pump(a->so);
}

/* --- joining --- */

static bool is_live(const struct store_execution *row)
{
    return row->state == STORE_EX_STARTING || row->state == STORE_EX_RUNNING;
}

static int find_ends(struct attach *a, struct err *err)
{
    struct stat st;

    for (int i = 0; i < (a->tells ? 3 : 2); i++) {
        if (piece_open(a->so->api, a->id, i + 1, &a->fd[i], err) < 0)
            return -1;
        a->end[i] = a->fd[i] >= 0 && fstat(a->fd[i], &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    for (int i = 0; i < 2; i++) {
        if (a->tail != UINT64_MAX)
            a->offset[i] = a->end[i] - min_u64(a->end[i], a->tail);
        if (a->fd[i] >= 0 && a->offset[i] < a->end[i])
            a->offset[i] = manager_output_kept(a->fd[i], a->offset[i]);
    }
    return 0;
}

static int join(struct attach *a, const struct store_execution *row, struct err *err)
{
    static const char *const names[] = { "stdout has", "stderr has", "events have" };
    struct socket *so = a->so;
    char context[ID_SIZE];

    if (!str_eq(row->sandbox, so->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    (void)str_copy(a->id, sizeof(a->id), row->id);
    if (!a->name[0])
        (void)str_copy(a->name, sizeof(a->name), row->id);
    if (is_live(row))
        a->watch = manager_watch(so->api->set.manager, so->owner, so->sandbox, row->id, on_watch, a);
    if (is_live(row) && !a->watch)
        return err_set(err, ERR_BUSY, "the server has just started and is still finding its executions");
    a->tty = api_is_terminal(row);
    a->tells = api_is_of_context(row, context);
    if (find_ends(a, err) < 0)
        return -1;
    for (int i = 0; i < 3 && !a->watch; i++)
        if (a->offset[i] > a->end[i])
            return err_set(err, ERR_HTTP_RANGE, "%s %" PRIu64 " bytes, and nothing at %" PRIu64, names[i], a->end[i],
                           a->offset[i]);
    if (!a->watch)
        keep_end(a, row);
    return 0;
}

static bool answered(struct attach *a)
{
    a->waiting = false;
    if (a->so)
        return true;
    unlink_attach(&a->api->orphans, a);
    attach_free(a);
    return false;
}

static const char *action(const struct attach *a)
{
    return a->context[0] ? "context.execute" : "execution.create";
}

static void on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct attach *a = arg;
    struct err why = { 0 };

    if (!answered(a))
        return;
    if (a->launch.body)
        (void)socket_record(a->so, action(a), err ? "failed" : "success", err ? a->id : row->id, NULL);
    launch_done(&a->launch);
    if (err || join(a, row, &why) < 0) {
        fail(a, err ? err : &why);
        return;
    }
    (void)say_start(a, row);
    socket_pump(a->so);
}

static void on_recorded(void *arg)
{
    struct attach *a = arg;

    if (!answered(a))
        return;
    struct socket *so = a->so;
    a->waiting = true;
    a->launch.spec.created_by = a->call.created_by = principal_id(&so->who);
    a->launch.spec.request = a->call.request = so->request;
    if (a->context[0] && !a->id[0])
        id_new("ex", a->id);
    if (a->context[0])
        manager_context_execute(so->api->set.manager, so->owner, so->sandbox, a->context, a->id, &a->call, on_row, a);
    else
        manager_execute(so->api->set.manager, so->owner, so->sandbox, a->id[0] ? a->id : NULL, &a->launch.spec, on_row,
                        a);
}

static void add_sum(struct jsonw *w, const char *key, const void *data, size_t len)
{
    uint8_t sum[CHAIN_HASH];
    char hex[2 * CHAIN_HASH + 1];
    auto_free char *name = str_printf("%sSha256", key), *size = str_printf("%sBytes", key);

    chain_sha256(data, len, sum);
    chain_hex(sum, CHAIN_HASH, hex);
    jsonw_kstr(w, name, hex);
    jsonw_ku64(w, size, len);
}

static void start(struct attach *a)
{
    const struct execution_spec *s = &a->launch.spec;
    const char *code = a->context[0] ? a->call.code : s->code;
    struct audit *audit = a->so->api->set.audit;
    auto_buf details = { 0 }, words = { 0 };
    struct jsonw w;

    a->waiting = true;
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "by", "stream");
    if (a->context[0])
        jsonw_kstr(&w, "contextId", a->context);
    if (code)
        add_sum(&w, "code", code, strlen(code));
    for (size_t i = 0; s->argv && s->argv[i]; i++)
        buf_add(&words, s->argv[i], strlen(s->argv[i]) + 1);
    if (words.len)
        add_sum(&w, "command", words.data, words.len);
    jsonw_end_object(&w);
    uint64_t seq = socket_record(a->so, action(a), "accepted", a->id, details.data);
    if (!audit || audit_wait(audit, &a->recorded, seq, on_recorded, a))
        on_recorded(a);
}

static void on_looked_up(void *arg, const struct err *err, const struct store_execution *row)
{
    struct attach *a = arg;

    if (err && err->id == ERR_MISSING) {
        if (answered(a))
            start(a);
    } else {
        on_row(a, err, row);
    }
}

void attach_execute(struct socket *so, const char *name, const char *id, struct launch *launch, const char *context,
                    const struct context_call *call)
{
    struct attach *a = attach_new(so, name, id);

    a->launch = *launch;
    *launch = (struct launch){ 0 };
    (void)str_copy(a->context, sizeof(a->context), context);
    a->call = *call;
    a->launch.spec.background = a->call.background = true; /* it does not end with who started it */
    if (!id[0]) {
        start(a);
        return;
    }
    a->waiting = true;
    store_execution_get(so->api->set.store, so->owner, id, on_looked_up, a);
}

void attach_resume(struct socket *so, const char *name, const char *id, const uint64_t offset[3], uint64_t tail)
{
    struct attach *a = attach_new(so, name, id);

    memcpy(a->offset, offset, sizeof(a->offset));
    a->tail = tail;
    a->waiting = true;
    store_execution_get(so->api->set.store, so->owner, id, on_row, a);
}

/* --- input --- */

size_t attach_pending(const struct attach *a)
{
    return a->input.len;
}

static void say_taken(struct attach *a)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (writer_bytes(a->writer) == a->acked)
        return;
    a->acked = writer_bytes(a->writer);
    socket_begin(a->so, &w, &out, "stdin_ack", a);
    jsonw_ku64(&w, "stdinBytes", a->acked);
    (void)socket_send(a->so, &w);
}

static void send_input(struct attach *a)
{
    size_t n = a->input.len ? writer_send(a->writer, a->input.data, a->input.len) : 0;

    if (n > 0)
        buf_drop(&a->input, n);
    if (a->input.len > 0)
        return;
    buf_done(&a->input); /* a quiet one holds no memory */
    if (a->input_ends && !a->input_ended)
        writer_close(a->writer);
    a->input_ended = a->input_ends;
    say_taken(a);
}

static void on_room(void *arg)
{
    struct attach *a = arg;

    send_input(a);
    socket_pump(a->so);
}

static void on_over(void *arg, uint64_t bytes UNUSED)
{
    struct attach *a = arg;

    buf_done(&a->input);
    writer_free(take_ptr(&a->writer));
    a->input_ended = true;
    socket_pump(a->so);
}

static int open_writer(struct attach *a, struct err *err)
{
    static const struct writer_ops ops = { on_room, on_over };
    struct socket *so = a->so;

    if (a->input_ended || (!a->watch && !a->waiting))
        return err_set(err, ERR_EXISTS, "execution %s takes no more input", a->name);
    if (a->waiting)
        return err_set(err, ERR_BUSY, "execution %s has not started yet: wait for execution_start", a->name);
    if (!a->writer)
        a->writer = manager_writer(so->api->set.manager, so->owner, so->sandbox, a->id, &ops, a, err);
    return a->writer ? 0 : -1;
}

void attach_input(struct attach *a, const char *data, size_t len, const uint64_t *offset, bool ends)
{
    struct err err = { 0 };

    if (open_writer(a, &err) < 0) {
        socket_error(a->so, a->name, NULL, &err);
        return;
    }
    if (!a->input_told)
        (void)socket_record(a->so, "execution.stdin", "success", a->id, NULL);
    a->input_told = true;
    uint64_t have = writer_bytes(a->writer) + a->input.len;
    if (offset && *offset > have) {
        err_set(&err, ERR_EXISTS, "offset: its standard input has %" PRIu64 " bytes so far", have);
        socket_error(a->so, a->name, NULL, &err);
        return;
    }
    size_t known = offset ? (size_t)min_u64(have - *offset, len) : 0;
    buf_add(&a->input, data + known, len - known);
    a->input_ends = a->input_ends || ends;
    send_input(a);
}
