/* Following an execution: as one answer when it has ended, as a stream of events, or as the plain bytes of one channel.
 *
 * Bytes are read from the files that the manager writes, at an offset that the reader holds; so following from the
 * beginning, resuming in the middle and reading one that has ended are the same. The watch only says when there is
 * more. A client that does not read stops the reading and nothing else: the execution goes on. */
#include "api/inside.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define PIECE (32 * KIB)
#define TURN_PIECES 2 /* for one reader before others have their turn */
#define EMBEDDED_MAX (1 * MIB)
#define HEARTBEAT_NS (15 * NS_PER_S)

struct follow {
    struct http_req *req;
    struct api *api;
    enum follow_mode mode;
    char execution[ID_SIZE];
    int channel;
    bool context; /* it tells events too, behind the output that came before them */
    int fd[3];
    uint64_t offset[3], end[3]; /* end: what may be read by now */
    struct watch *watch;        /* NULL when it has ended */
    bool once;                  /* what was there at the beginning, and no more */
    struct buf ended;           /* the execution as JSON, when it has ended */
    struct api_live live;
    struct ev_timer heartbeat;
    struct ev_defer again;
};

static void follow_free(struct follow *f)
{
    live_done(&f->live);
    ev_timer_clear(f->api->set.ev, &f->heartbeat);
    ev_defer_clear(f->api->set.ev, &f->again);
    watch_free(f->watch);
    fd_close(&f->fd[0]);
    fd_close(&f->fd[1]);
    fd_close(&f->fd[2]);
    buf_done(&f->ended);
    free(f);
}

/* --- output in an answer --- */

static int open_output(struct api *api, const char *execution, int channel, int *ret, uint64_t *ret_size,
                       struct err *err)
{
    struct stat st;
    int rc = piece_open(api, execution, channel, ret, err);

    *ret_size = rc > 0 && fstat(*ret, &st) == 0 ? (uint64_t)st.st_size : 0;
    return rc;
}

/* True: there is more than the answer holds. */
static bool embed(struct api *api, const struct store_execution *row, int channel, const char *name, struct jsonw *w)
{
    uint64_t size = 0;
    bool silent = row->ended_ms && row->out_bytes[channel - 1] == row->dropped[channel - 1];
    auto_fd int fd = -1;
    struct err err = { 0 };
    bool failed = !silent && open_output(api, row->id, channel, &fd, &size, &err) < 0;
    uint64_t from = fd >= 0 ? manager_output_kept(fd, 0) : 0;
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

static void execution_text(struct api *api, const struct store_execution *row, bool output, struct buf *out)
{
    struct jsonw w;
    char context[ID_SIZE];

    jsonw_init(&w, out, 0);
    api_execution_json(row, &w);
    if (output) {
        bool more = embed(api, row, 1, "stdout", &w);

        more = embed(api, row, 2, "stderr", &w) || more;
        more = (api_is_of_context(row, context) && told_results(api, row->id, &w)) || more;
        jsonw_kbool(&w, "truncated", more);
    }
    jsonw_end_object(&w);
}

void follow_answer(struct http_req *req, struct api *api, int status, const struct store_execution *row, bool output)
{
    struct store_execution now = *row;
    struct buf out = { 0 };

    for (int i = 0; !row->ended_ms && i < 2; i++) { /* a row learns of its output at the end */
        auto_fd int fd = -1;
        struct err err;

        (void)open_output(api, row->id, i + 1, &fd, &now.out_bytes[i], &err);
    }
    execution_text(api, &now, output, &out);
    http_answer_json(req, status, &out);
}

/* --- the stream --- */

static bool tell(struct follow *f, const char *type, struct buf *json)
{
    char id[72];

    if (f->mode == FOLLOW_NDJSON)
        return http_ndjson(f->req, json);
    int n = snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, f->offset[0], f->offset[1]);
    if (f->context)
        snprintf(id + n, sizeof(id) - (size_t)n, "-%" PRIu64, f->offset[2]);
    return http_event(f->req, id, type, json->data);
}

static void begin_event(struct jsonw *w, struct buf *out, const char *type)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
}

static bool send_execution(struct follow *f, const char *type, const char *json)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin_event(&w, &out, type);
    api_raw(&w, "execution", json);
    jsonw_end_object(&w);
    return tell(f, type, &out);
}

static bool send_piece(struct follow *f, int i, const char *data, size_t n, bool last)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin_event(&w, &out, "output");
    jsonw_kstr(&w, "stream", i == 0 ? "stdout" : "stderr");
    jsonw_ku64(&w, "offset", f->offset[i]);
    size_t told = piece_json(&w, "data", data, n, last);
    jsonw_end_object(&w);
    f->offset[i] += told;
    return tell(f, "output", &out);
}

static bool send_raw(struct follow *f, int i, const char *data, size_t n)
{
    f->offset[i] += n;
    return http_stream_write(f->req, data, n);
}

static void on_room(void *arg);

/* Sends what there is of one channel. False: the client has to read first, or others have their turn. */
static bool pump_channel(struct follow *f, int i)
{
    char data[PIECE] __attribute__((uninitialized));

    if (http_stream_room(f->req) == 0)
        return false; /* there is more, and the client has not even taken what there was */
    for (int pieces = 0; f->offset[i] < f->end[i] && f->fd[i] >= 0; pieces++) {
        if (pieces == TURN_PIECES) {
            ev_defer(f->api->set.ev, &f->again, on_room, f);
            return false;
        }
        f->offset[i] = manager_output_kept(f->fd[i], f->offset[i]);
        size_t want = (size_t)min_u64(f->end[i] - f->offset[i], sizeof(data));
        ssize_t n = pread(f->fd[i], data, want, (off_t)f->offset[i]);
        bool last = !f->watch && f->offset[i] + want == f->end[i];

        if (n <= 0)
            break; /* it was removed by retention meanwhile */
        if (f->mode != FOLLOW_RAW && !last && piece_waits(data, (size_t)n))
            return true;
        if (!(f->mode == FOLLOW_RAW ? send_raw(f, i, data, (size_t)n) : send_piece(f, i, data, (size_t)n, last)))
            return false;
    }
    return true;
}

/* Whole lines, each of which is a message already; the client is asked for room once for each. */
static bool pump_events(struct follow *f)
{
    while (f->offset[2] < f->end[2] && f->fd[2] >= 0) {
        auto_buf line = { 0 };
        char type[16];

        if (http_stream_room(f->req) == 0)
            return false;
        if (!told_line(f->fd[2], f->offset[2], &line, type))
            break;
        f->offset[2] += line.len + 1;
        if (!tell(f, type, &line))
            return false;
    }
    return true;
}

static void look(struct follow *f)
{
    for (int i = 0; f->watch && i < 3; i++)
        f->end[i] = watch_bytes(f->watch, i + 1);
}

/* Fewer bytes came than were announced, or an end before the offset that was asked for ahead. */
static bool fell_short(const struct follow *f)
{
    uint64_t at = f->offset[f->channel - 1], end = f->end[f->channel - 1];

    return at > end || (f->once && at < end);
}

static bool wants(const struct follow *f, int i)
{
    return f->mode != FOLLOW_RAW || f->channel == i + 1;
}

/* What had written nothing when it was joined. */
static int open_late(struct follow *f, struct err *err)
{
    for (int i = 0; i < 3; i++)
        if (wants(f, i) && f->fd[i] < 0 && f->end[i] > f->offset[i] &&
            piece_open(f->api, f->execution, i + 1, &f->fd[i], err) < 0)
            return -1;
    return 0;
}

static void pump(struct follow *f)
{
    struct err err = { 0 };
    bool room = true;

    look(f);
    if (open_late(f, &err) < 0) { /* who asks again, at the offset that they have, is told why */
        log_warn("%s", err.msg);
        http_on_gone(f->req, NULL, NULL);
        http_stream_break(f->req);
        follow_free(f);
        return;
    }
    for (int i = 0; room && i < 2; i++)
        if (wants(f, i))
            room = pump_channel(f, i);
    if (room && f->context && f->mode != FOLLOW_RAW)
        room = pump_events(f);
    if (!room || f->watch)
        return;
    if (f->mode != FOLLOW_RAW)
        send_execution(f, "end", f->ended.data);
    if (f->mode == FOLLOW_RAW && fell_short(f))
        http_stream_break(f->req);
    else
        http_stream_end(f->req);
    follow_free(f);
}

static void on_room(void *arg)
{
    pump(arg);
}

static void on_gone(void *arg)
{
    struct follow *f = arg;
    struct err err;

    if (f->mode == FOLLOW_ANSWER) {
        err_set(&err, ERR_CLIENT_GONE, "the client went away");
        http_answer_err(f->req, &err);
    } else {
        http_stream_end(f->req);
    }
    follow_free(f);
}

/* "end" is the word of an execution; who may not hear it is cut off, and told why when they ask again. */
static void on_refused(void *arg, const struct err *why)
{
    struct follow *f = arg;

    http_on_gone(f->req, NULL, NULL);
    if (f->mode == FOLLOW_ANSWER)
        http_answer_err(f->req, why);
    else
        http_stream_break(f->req);
    follow_free(f);
}

static void on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct follow *f = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(f->api->set.ev, &f->heartbeat, ev_now(f->api->set.ev) + HEARTBEAT_NS, on_heartbeat, f);
    http_ndjson(f->req, &json);
}

static void on_watch(void *arg, const struct store_execution *row)
{
    struct follow *f = arg;

    if (row) {
        look(f);
        for (int i = 0; i < 3; i++)
            f->end[i] = max_u64(f->end[i], row->out_bytes[i] - row->dropped[i]);
        watch_free(take_ptr(&f->watch));
        execution_text(f->api, row, f->mode == FOLLOW_ANSWER, &f->ended);
    }
    if (f->mode != FOLLOW_ANSWER) {
        pump(f);
    } else if (row) {
        struct buf out = f->ended;

        f->ended = (struct buf){ 0 };
        http_on_gone(f->req, NULL, NULL);
        http_answer_json(f->req, 200, &out);
        follow_free(f);
    }
}

/* --- beginning --- */

static void begin_stream(struct follow *f, const struct store_execution *row)
{
    auto_buf execution = { 0 };
    char text[24];

    http_on_room(f->req, on_room, f);
    if (f->mode == FOLLOW_RAW) {
        snprintf(text, sizeof(text), "%" PRIu64, f->offset[f->channel - 1]);
        http_set_header(f->req, "Cove-Offset", text);
        http_set_header(f->req, "Cove-Execution-State", api_execution_states[row->state]);
        http_answer_stream(f->req, 200, "application/octet-stream",
                           f->once ? f->end[f->channel - 1] - f->offset[f->channel - 1] : HTTP_UNTIL_END);
        return;
    }
    if (f->mode == FOLLOW_NDJSON) {
        http_answer_ndjson(f->req, 200);
        ev_timer_set(f->api->set.ev, &f->heartbeat, ev_now(f->api->set.ev) + HEARTBEAT_NS, on_heartbeat, f);
    } else {
        http_answer_events(f->req);
    }
    execution_text(f->api, row, false, &execution);
    send_execution(f, "started", execution.data);
}

/* Who follows one that runs may be ahead of it: after a restart of the server, or because it has not begun to write. */
static int check_offsets(const struct follow *f, struct err *err)
{
    static const char *const names[] = { "stdout", "stderr", "events" };

    for (int i = 0; i < 3 && !f->watch; i++)
        if (f->offset[i] > f->end[i])
            return err_set(err, ERR_HTTP_RANGE, "%s has %" PRIu64 " bytes by now, and nothing at %" PRIu64, names[i],
                           f->end[i], f->offset[i]);
    return 0;
}

static bool live(const struct store_execution *row)
{
    return row->state == STORE_EX_STARTING || row->state == STORE_EX_RUNNING;
}

static int join(struct follow *f, const struct follow_spec *spec, const struct store_execution *row, struct err *err)
{
    struct api *api = f->api;

    if (!str_eq(row->sandbox, spec->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    if (live(row) && !spec->once)
        f->watch = manager_watch(api->set.manager, api_sees(f->req), spec->sandbox, row->id, on_watch, f);
    if (live(row) && !spec->once && !f->watch)
        return err_set(err, ERR_BUSY, "the server has just started and is still finding its executions");
    for (int i = 0; i < (f->context ? 3 : 2) && f->mode != FOLLOW_ANSWER; i++)
        if (open_output(api, row->id, i + 1, &f->fd[i], &f->end[i], err) < 0)
            return -1;
    for (int i = 0; i < 2; i++)
        if (f->fd[i] >= 0 && f->offset[i] < f->end[i])
            f->offset[i] = manager_output_kept(f->fd[i], f->offset[i]);
    look(f);
    return check_offsets(f, err);
}

static void begin_follow(struct follow *f, const struct follow_spec *spec, const struct store_execution *row)
{
    if (f->mode == FOLLOW_ANSWER && !f->watch) {
        follow_answer(f->req, f->api, 200, row, true);
        follow_free(f);
        return;
    }
    http_on_gone(f->req, on_gone, f);
    live_begin(&f->live, f->api, api_who(f->req), on_refused, f);
    if (spec->kill)
        watch_kill(f->watch);
    if (f->mode == FOLLOW_ANSWER)
        return;
    if (!f->watch)
        execution_text(f->api, row, false, &f->ended);
    begin_stream(f, row);
    pump(f);
}

void follow_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                const struct store_execution *row)
{
    struct follow *f = mem_new(struct follow);
    struct err err = { 0 };
    char context[ID_SIZE];

    *f = (struct follow){
        .req = req, .api = api, .mode = spec->mode, .channel = spec->channel, .once = spec->once, .fd = { -1, -1, -1 }
    };
    f->context = api_is_of_context(row, context);
    memcpy(f->execution, row->id, sizeof(f->execution));
    memcpy(f->offset, spec->offset, sizeof(f->offset));
    if (join(f, spec, row, &err) < 0) {
        http_answer_err(req, &err);
        follow_free(f);
    } else {
        begin_follow(f, spec, row);
    }
}

struct beginning {
    struct http_req *req;
    struct api *api;
    struct follow_spec spec;
};

static void on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    auto_free struct beginning *b = arg;

    if (err)
        http_answer_err(b->req, err);
    else
        follow_row(b->req, b->api, &b->spec, row);
}

int follow_offsets(const char *text, uint64_t offset[3], struct err *err)
{
    uint64_t at[3] = { 0, 0, offset[2] };

    if (!text || !*text)
        return 0;
    if (!str_eat_u64(&text, INT64_MAX, &at[0]) || !str_eat(&text, "-") || !str_eat_u64(&text, INT64_MAX, &at[1]) ||
        (*text && (!str_eat(&text, "-") || !str_eat_u64(&text, INT64_MAX, &at[2]) || *text)))
        return err_set(err, ERR_INVALID, "Last-Event-ID: it is two or three offsets with a '-' between them");
    offset[0] = at[0];
    offset[1] = at[1];
    offset[2] = at[2];
    return 0;
}

enum follow_mode follow_mode(const struct http_req *req)
{
    return http_wants(req, "text/event-stream")      ? FOLLOW_EVENTS
           : http_wants(req, "application/x-ndjson") ? FOLLOW_NDJSON
                                                     : FOLLOW_ANSWER;
}

void follow(struct http_req *req, struct api *api, const struct follow_spec *spec)
{
    struct beginning *b = mem_new(struct beginning);

    *b = (struct beginning){ req, api, *spec };
    store_execution_get(api->set.store, api_sees(req), spec->execution, on_row, b);
}
