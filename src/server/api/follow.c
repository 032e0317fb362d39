/* Following an execution: as one response after its end, as a stream of events, or as the raw bytes
 * of one channel.
 *
 * Bytes are read from the files that the manager writes, at an offset that the follower holds.
 * Following from the beginning, resuming in the middle and reading an ended execution are therefore
 * the same operation. The watch only reports that more bytes exist. A client that does not read
 * stops its follower and nothing else: the execution goes on. */
#include "server/api/api_internal.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define PIECE (32 * KIB)
#define CHUNKS_PER_TURN 2 /* per follower before the others are served */
#define EMBEDDED_MAX (1 * MIB)
#define HEARTBEAT_NS (15 * NS_PER_S)

struct follower {
    struct http_req *req;
    struct api *api;
    enum follow_mode mode;
    char execution[ID_SIZE];
    int channel;
    bool has_events; /* it has context events too, sent after the output that preceded them */
    int fd[3];
    uint64_t offset[3], end[3];    /* end: bytes readable now */
    struct execution_watch *watch; /* NULL after the execution has ended */
    bool existing_only;            /* only the bytes that existed at the beginning */
    struct buf end_json;           /* the execution as JSON; empty until it has ended */
    struct open_stream open_stream;
    struct ev_timer heartbeat_timer;
    struct ev_defer pump_defer;
};

static void follower_free(struct follower *f)
{
    open_stream_unregister(&f->open_stream);
    ev_timer_clear(f->api->settings.ev, &f->heartbeat_timer);
    ev_defer_clear(f->api->settings.ev, &f->pump_defer);
    execution_watch_free(f->watch);
    fd_close(&f->fd[0]);
    fd_close(&f->fd[1]);
    fd_close(&f->fd[2]);
    buf_done(&f->end_json);
    free(f);
}

/* --- output inside a response --- */

static int follow_open_output(struct api *api, const char *execution, int channel, int *ret, uint64_t *ret_size,
                              struct err *err)
{
    struct stat st;
    int rc = output_chunk_open_file(api, execution, channel, ret, err);

    *ret_size = rc > 0 && fstat(*ret, &st) == 0 ? (uint64_t)st.st_size : 0;
    return rc;
}

/* True: some output did not fit into the response. */
static bool follow_embed_output(struct api *api, const struct store_execution *row, int channel, const char *name,
                                struct jsonw *w)
{
    uint64_t size = 0;
    bool silent = row->ended_ms && row->out_bytes[channel - 1] == row->dropped[channel - 1];
    auto_fd int fd = -1;
    struct err err = { 0 };
    bool failed = !silent && follow_open_output(api, row->id, channel, &fd, &size, &err) < 0;
    uint64_t from = fd >= 0 ? output_first_kept_offset(fd, 0) : 0;
    size_t n = (size_t)min_u64(size - from, EMBEDDED_MAX), done = 0;
    auto_free char *data = mem_alloc(n + 1);

    while (done < n) {
        ssize_t r = pread(fd, data + done, n - done, (off_t)(from + done));

        if (r <= 0)
            break;
        done += (size_t)r;
    }
    jsonw_key(w, name);
    jsonw_strn(w, data, done);
    return failed || from > 0 || size > done;
}

static void follow_write_execution(struct api *api, const struct store_execution *row, bool output, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0);
    api_write_execution(row, &w);
    if (output) {
        bool more = follow_embed_output(api, row, 1, "stdout", &w);

        more = follow_embed_output(api, row, 2, "stderr", &w) || more;
        more = (row->context[0] && kernel_events_write_results(api, row->id, &w)) || more;
        jsonw_kbool(&w, "truncated", more);
    }
    jsonw_end_object(&w);
}

void follow_answer_row(struct http_req *req, struct api *api, int status, const struct store_execution *row,
                       bool output)
{
    struct store_execution now = *row;
    struct buf out = { 0 };

    for (int i = 0; !row->ended_ms && i < 2; i++) { /* the row gets its output sizes at the end */
        auto_fd int fd = -1;
        struct err err;

        (void)follow_open_output(api, row->id, i + 1, &fd, &now.out_bytes[i], &err);
    }
    follow_write_execution(api, &now, output, &out);
    http_answer_json(req, status, &out);
}

/* --- the stream --- */

static bool follower_send_event(struct follower *f, const char *type, struct buf *json)
{
    char id[72];

    if (f->mode == FOLLOW_NDJSON)
        return http_stream_ndjson(f->req, json);
    int n = snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, f->offset[0], f->offset[1]);
    if (f->has_events)
        snprintf(id + n, sizeof(id) - (size_t)n, "-%" PRIu64, f->offset[2]);
    return http_stream_event(f->req, id, type, json->data);
}

static void follower_begin_event(struct jsonw *w, struct buf *out, const char *type)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
}

static bool follower_send_execution(struct follower *f, const char *type, const char *json)
{
    auto_buf out = { 0 };
    struct jsonw w;

    follower_begin_event(&w, &out, type);
    api_write_raw_json(&w, "execution", json);
    jsonw_end_object(&w);
    return follower_send_event(f, type, &out);
}

static bool follower_send_chunk(struct follower *f, int i, const char *data, size_t n, bool last)
{
    auto_buf out = { 0 };
    struct jsonw w;

    follower_begin_event(&w, &out, "output");
    jsonw_kstr(&w, "stream", i == 0 ? "stdout" : "stderr");
    jsonw_ku64(&w, "offset", f->offset[i]);
    size_t written = output_chunk_write_json(&w, "data", data, n, last);
    jsonw_end_object(&w);
    f->offset[i] += written;
    return follower_send_event(f, "output", &out);
}

static bool follower_send_raw(struct follower *f, int i, const char *data, size_t n)
{
    f->offset[i] += n;
    return http_stream_write(f->req, data, n);
}

static void follower_on_room(void *arg);

/* Sends the available bytes of one channel. False: wait for the client to read, or for the next
 * turn. */
static bool follower_pump_channel(struct follower *f, int i)
{
    char data[PIECE] __attribute__((uninitialized));

    if (http_stream_room(f->req) == 0)
        return false; /* more is available, but the client has not read the previous bytes */
    for (int pieces = 0; f->offset[i] < f->end[i] && f->fd[i] >= 0; pieces++) {
        if (pieces == CHUNKS_PER_TURN) {
            ev_defer(f->api->settings.ev, &f->pump_defer, follower_on_room, f);
            return false;
        }
        f->offset[i] = output_first_kept_offset(f->fd[i], f->offset[i]);
        size_t want = (size_t)min_u64(f->end[i] - f->offset[i], sizeof(data));
        ssize_t n = pread(f->fd[i], data, want, (off_t)f->offset[i]);
        bool last = !f->watch && f->offset[i] + want == f->end[i];

        if (n <= 0)
            break; /* removed by retention in the meantime */
        if (f->mode != FOLLOW_RAW && !last && output_chunk_is_partial_utf8(data, (size_t)n))
            return true;
        if (!(f->mode == FOLLOW_RAW ? follower_send_raw(f, i, data, (size_t)n)
                                    : follower_send_chunk(f, i, data, (size_t)n, last)))
            return false;
    }
    return true;
}

/* Sends whole lines, each of which is already a message; checks the client's buffer once per
 * line. */
static bool follower_pump_events(struct follower *f)
{
    while (f->offset[2] < f->end[2] && f->fd[2] >= 0) {
        auto_buf line = { 0 };
        char type[16];

        if (http_stream_room(f->req) == 0)
            return false;
        if (!kernel_events_read_line(f->fd[2], f->offset[2], &line, type))
            break;
        f->offset[2] += line.len + 1;
        if (!follower_send_event(f, type, &line))
            return false;
    }
    return true;
}

static void follower_update_ends(struct follower *f)
{
    for (int i = 0; f->watch && i < 3; i++)
        f->end[i] = execution_watch_output_bytes(f->watch, i + 1);
}

/* Fewer bytes were sent than announced, or the execution ended before the requested offset. */
static bool follower_fell_short(const struct follower *f)
{
    uint64_t at = f->offset[f->channel - 1], end = f->end[f->channel - 1];

    return at > end || (f->existing_only && at < end);
}

static bool follower_wants_channel(const struct follower *f, int i)
{
    return f->mode != FOLLOW_RAW || f->channel == i + 1;
}

/* Opens files of channels that had no output when the follower joined. */
static int follower_open_late_output(struct follower *f, struct err *err)
{
    for (int i = 0; i < 3; i++)
        if (follower_wants_channel(f, i) && f->fd[i] < 0 && f->end[i] > f->offset[i] &&
            output_chunk_open_file(f->api, f->execution, i + 1, &f->fd[i], err) < 0)
            return -1;
    return 0;
}

static void follower_pump(struct follower *f)
{
    struct err err = { 0 };
    bool room = true;

    follower_update_ends(f);
    if (follower_open_late_output(f, &err) < 0) { /* a client that retries at its offset gets the error */
        log_warn("%s", err.msg);
        http_on_client_gone(f->req, NULL, NULL);
        http_stream_break(f->req);
        follower_free(f);
        return;
    }
    for (int i = 0; room && i < 2; i++)
        if (follower_wants_channel(f, i))
            room = follower_pump_channel(f, i);
    if (room && f->has_events && f->mode != FOLLOW_RAW)
        room = follower_pump_events(f);
    if (!room || f->watch)
        return;
    if (f->mode != FOLLOW_RAW)
        follower_send_execution(f, "end", f->end_json.data);
    if (f->mode == FOLLOW_RAW && follower_fell_short(f))
        http_stream_break(f->req);
    else
        http_stream_end(f->req);
    follower_free(f);
}

static void follower_on_room(void *arg)
{
    follower_pump(arg);
}

static void follower_on_client_gone(void *arg)
{
    struct follower *f = arg;
    struct err err;

    if (f->mode == FOLLOW_ANSWER) {
        err_set(&err, ERR_CLIENT_GONE, "the client disconnected");
        http_answer_err(f->req, &err);
    } else {
        http_stream_end(f->req);
    }
    follower_free(f);
}

/* Aborts the stream without an "end" event, which belongs to the execution. A client that retries
 * gets the reason. */
static void follower_on_revoked(void *arg, const struct err *why)
{
    struct follower *f = arg;

    http_on_client_gone(f->req, NULL, NULL);
    if (f->mode == FOLLOW_ANSWER)
        http_answer_err(f->req, why);
    else
        http_stream_break(f->req);
    follower_free(f);
}

static void follower_on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct follower *f = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(f->api->settings.ev, &f->heartbeat_timer, ev_now(f->api->settings.ev) + HEARTBEAT_NS,
                 follower_on_heartbeat, f);
    http_stream_ndjson(f->req, &json);
}

static void follower_on_progress(void *arg, const struct store_execution *row)
{
    struct follower *f = arg;

    if (row) {
        follower_update_ends(f);
        for (int i = 0; i < 3; i++)
            f->end[i] = max_u64(f->end[i], row->out_bytes[i] - row->dropped[i]);
        execution_watch_free(take_ptr(&f->watch));
        follow_write_execution(f->api, row, f->mode == FOLLOW_ANSWER, &f->end_json);
    }
    if (f->mode != FOLLOW_ANSWER) {
        follower_pump(f);
    } else if (row) {
        struct buf out = f->end_json;

        f->end_json = (struct buf){ 0 };
        http_on_client_gone(f->req, NULL, NULL);
        http_answer_json(f->req, 200, &out);
        follower_free(f);
    }
}

/* --- start --- */

static void follower_begin_stream(struct follower *f, const struct store_execution *row)
{
    auto_buf execution = { 0 };
    char text[24];

    http_on_room(f->req, follower_on_room, f);
    if (f->mode == FOLLOW_RAW) {
        snprintf(text, sizeof(text), "%" PRIu64, f->offset[f->channel - 1]);
        http_set_header(f->req, "Cove-Offset", text);
        http_set_header(f->req, "Cove-Execution-State", api_execution_states[row->state]);
        http_answer_stream(f->req, 200, "application/octet-stream",
                           f->existing_only ? f->end[f->channel - 1] - f->offset[f->channel - 1] : HTTP_UNTIL_END);
        return;
    }
    if (f->mode == FOLLOW_NDJSON) {
        http_answer_ndjson(f->req, 200);
        ev_timer_set(f->api->settings.ev, &f->heartbeat_timer, ev_now(f->api->settings.ev) + HEARTBEAT_NS,
                     follower_on_heartbeat, f);
    } else {
        http_answer_events(f->req);
    }
    follow_write_execution(f->api, row, false, &execution);
    follower_send_execution(f, "started", execution.data);
}

/* A follower of a running execution may be ahead of it: after a restart of the server, or before
 * the first output. */
static int follower_check_offsets(const struct follower *f, struct err *err)
{
    static const char *const names[] = { "stdout", "stderr", "events" };

    for (int i = 0; i < 3 && !f->watch; i++)
        if (f->offset[i] > f->end[i])
            return err_set(err, ERR_HTTP_RANGE, "%s has %" PRIu64 " bytes so far, none at offset %" PRIu64, names[i],
                           f->end[i], f->offset[i]);
    return 0;
}

static bool follow_row_is_live(const struct store_execution *row)
{
    return row->state == STORE_EXECUTION_STARTING || row->state == STORE_EXECUTION_RUNNING;
}

static int follower_join(struct follower *f, const struct follow_spec *spec, const struct store_execution *row,
                         struct err *err)
{
    struct api *api = f->api;

    if (!str_eq(row->sandbox, spec->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    if (follow_row_is_live(row) && !spec->existing_only)
        f->watch = manager_watch_execution(api->settings.manager, gateway_visible_owner(f->req), spec->sandbox, row->id,
                                           follower_on_progress, f);
    if (follow_row_is_live(row) && !spec->existing_only && !f->watch)
        return err_set(err, ERR_BUSY, "the server has just started and is still recovering its executions; try again");
    for (int i = 0; i < (f->has_events ? 3 : 2) && f->mode != FOLLOW_ANSWER; i++)
        if (follow_open_output(api, row->id, i + 1, &f->fd[i], &f->end[i], err) < 0)
            return -1;
    for (int i = 0; i < 2; i++)
        if (f->fd[i] >= 0 && f->offset[i] < f->end[i])
            f->offset[i] = output_first_kept_offset(f->fd[i], f->offset[i]);
    follower_update_ends(f);
    return follower_check_offsets(f, err);
}

static void follower_begin(struct follower *f, const struct follow_spec *spec, const struct store_execution *row)
{
    if (f->mode == FOLLOW_ANSWER && !f->watch) {
        follow_answer_row(f->req, f->api, 200, row, true);
        follower_free(f);
        return;
    }
    http_on_client_gone(f->req, follower_on_client_gone, f);
    open_stream_register(&f->open_stream, f->api->settings.gateway, gateway_principal(f->req), follower_on_revoked, f);
    if (spec->cancel_first)
        execution_watch_kill(f->watch);
    if (f->mode == FOLLOW_ANSWER)
        return;
    if (!f->watch)
        follow_write_execution(f->api, row, false, &f->end_json);
    follower_begin_stream(f, row);
    follower_pump(f);
}

void follow_execution_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                          const struct store_execution *row)
{
    struct follower *f = mem_new(struct follower);
    struct err err = { 0 };

    *f = (struct follower){ .req = req,
                            .api = api,
                            .mode = spec->mode,
                            .channel = spec->channel,
                            .existing_only = spec->existing_only,
                            .fd = { -1, -1, -1 } };
    f->has_events = row->context[0] != '\0';
    memcpy(f->execution, row->id, sizeof(f->execution));
    memcpy(f->offset, spec->offset, sizeof(f->offset));
    if (follower_join(f, spec, row, &err) < 0) {
        http_answer_err(req, &err);
        follower_free(f);
    } else {
        follower_begin(f, spec, row);
    }
}

struct follow_lookup {
    struct http_req *req;
    struct api *api;
    struct follow_spec spec;
};

static void follow_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    auto_free struct follow_lookup *b = arg;

    if (err)
        http_answer_err(b->req, err);
    else
        follow_execution_row(b->req, b->api, &b->spec, row);
}

int follow_read_offsets(const char *text, uint64_t offset[3], struct err *err)
{
    uint64_t at[3] = { 0, 0, offset[2] };

    if (!text || !*text)
        return 0;
    if (!str_eat_u64(&text, INT64_MAX, &at[0]) || !str_eat(&text, "-") || !str_eat_u64(&text, INT64_MAX, &at[1]) ||
        (*text && (!str_eat(&text, "-") || !str_eat_u64(&text, INT64_MAX, &at[2]) || *text)))
        return err_set(err, ERR_INVALID, "Last-Event-ID: must be two or three offsets separated by '-'");
    offset[0] = at[0];
    offset[1] = at[1];
    offset[2] = at[2];
    return 0;
}

enum follow_mode follow_mode_of_request(const struct http_req *req)
{
    return http_prefers_type(req, "text/event-stream")      ? FOLLOW_EVENTS
           : http_prefers_type(req, "application/x-ndjson") ? FOLLOW_NDJSON
                                                            : FOLLOW_ANSWER;
}

void follow_execution(struct http_req *req, struct api *api, const struct follow_spec *spec)
{
    struct follow_lookup *b = mem_new(struct follow_lookup);

    *b = (struct follow_lookup){ req, api, *spec };
    store_execution_get(api->settings.store, gateway_visible_owner(req), spec->execution, follow_on_row, b);
}
