/* Following an execution: as one response after its end, as a stream of events, or as the raw bytes
 * of one channel. A client that does not read stops its follower and nothing else: the execution
 * goes on. */
#include "server/api/output_response.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/api/api_internal.h"
#include "service/stored_output.h"

#include <stdio.h>

struct follower {
    struct http_req *req;
    struct api *api;
    struct follow_spec spec; /* its strings are valid until the execution is joined */
    struct output_response stream;
    struct open_stream open_stream;
    struct ev_defer run_defer;
};

static void follower_free(struct follower *f)
{
    open_stream_unregister(&f->open_stream);
    ev_defer_clear(f->api->settings.ev, &f->run_defer);
    message_stream_done(&f->stream.messages);
    output_pump_done(&f->stream.pump);
    free(f);
}

void follow_answer_row(struct http_req *req, struct api *api, int status, const struct store_execution *row,
                       struct execution_view view)
{
    struct store_execution now = *row;
    struct buf out = { 0 };
    struct jsonw w;

    for (int i = 0; !row->ended_ms && i < 2; i++) { /* the row gets its output sizes at the end */
        auto_fd int fd = -1;
        struct err err;

        (void)stored_output_open(api->settings.manager, row->id, i + 1, &fd, &now.out_bytes[i], &err);
    }
    jsonw_init(&w, &out, 0);
    stored_output_write_execution(api->settings.manager, &now, view, &w);
    http_answer_json(req, status, &out);
}

/* --- the end --- */

/* Aborts a stream without an "end" event, which belongs to the execution. A client that retries
 * gets the reason. why: NULL if the client is gone. */
static void follower_abort(void *arg, const struct err *why)
{
    struct follower *f = arg;

    message_stream_abort(&f->stream.messages, f->req, why);
    follower_free(f);
}

static void follower_on_client_gone(void *arg)
{
    follower_abort(arg, NULL);
}

/* Fewer bytes were sent than announced, or the execution ended before the requested offset. */
static bool follower_fell_short(const struct follower *f)
{
    uint64_t at = f->stream.pump.offset[f->spec.channel - 1], end = f->stream.pump.end[f->spec.channel - 1];

    return at > end || (f->spec.existing_only && at < end);
}

static void follower_end(struct follower *f)
{
    http_on_client_gone(f->req, NULL, NULL);
    if (f->spec.mode == FOLLOW_ANSWER) {
        struct buf out = f->stream.pump.end_json;

        f->stream.pump.end_json = (struct buf){ 0 };
        http_answer_json(f->req, 200, &out);
    } else if (f->spec.mode == FOLLOW_RAW && follower_fell_short(f)) {
        http_stream_break(f->req);
    } else {
        http_stream_end(f->req);
    }
    follower_free(f);
}

static void follower_run(void *arg)
{
    struct follower *f = arg;
    struct err err = { 0 };

    switch (output_pump_run(&f->stream.pump, &err)) {
    case OUTPUT_PUMP_WAITING:
        break;
    case OUTPUT_PUMP_MORE:
        ev_defer(f->api->settings.ev, &f->run_defer, follower_run, f);
        break;
    case OUTPUT_PUMP_ENDED:
        follower_end(f);
        break;
    case OUTPUT_PUMP_FAILED:
        log_warn("%s", err.msg);
        follower_abort(f, &err);
        break;
    }
}

/* --- start --- */

static void follower_begin_raw(struct follower *f, const struct store_execution *row)
{
    uint64_t at = f->stream.pump.offset[f->spec.channel - 1];
    char text[24];

    f->stream.messages.req = f->req;
    snprintf(text, sizeof(text), "%" PRIu64, at);
    http_set_header(f->req, "Cove-Offset", text);
    http_set_header(f->req, "Cove-Execution-State", execution_state_name(row));
    http_answer_stream(f->req, 200, "application/octet-stream",
                       f->spec.existing_only ? f->stream.pump.end[f->spec.channel - 1] - at : HTTP_UNTIL_END);
}

static void follower_begin_messages(struct follower *f, const struct store_execution *row)
{
    auto_buf execution = { 0 };
    struct jsonw w;

    jsonw_init(&w, &execution, 0);
    stored_output_write_execution(f->api->settings.manager, row, (struct execution_view){ 0 }, &w);
    f->stream.has_ids = f->spec.mode == FOLLOW_EVENTS;
    output_response_begin(&f->stream, f->req, f->api->settings.ev, f->spec.mode == FOLLOW_EVENTS, execution.data);
}

static void follower_begin(struct follower *f, const struct store_execution *row)
{
    struct execution_watch *watch = f->stream.pump.watch;

    if (f->spec.mode == FOLLOW_ANSWER && !watch) {
        follower_end(f);
        return;
    }
    http_on_client_gone(f->req, follower_on_client_gone, f);
    open_stream_register(&f->open_stream, f->api->settings.gateway, gateway_principal(f->req), follower_abort, f);
    if (f->spec.cancel_first)
        execution_watch_kill(watch);
    if (f->spec.mode == FOLLOW_ANSWER)
        return;
    http_on_room(f->req, follower_run, f);
    if (f->spec.mode == FOLLOW_RAW)
        follower_begin_raw(f, row);
    else
        follower_begin_messages(f, row);
    follower_run(f);
}

static void follower_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct follower *f = arg;
    const struct follow_spec *spec = &f->spec;
    struct output_join join = { .owner = gateway_visible_owner(f->req),
                                .sandbox = spec->sandbox,
                                .channels = spec->mode == FOLLOW_ANSWER ? 0
                                            : spec->mode == FOLLOW_RAW  ? OUTPUT_CHANNEL(spec->channel)
                                                                        : OUTPUT_ALL_CHANNELS,
                                .existing_only = spec->existing_only,
                                .receipt = spec->receipt };
    struct err why = { 0 };

    memcpy(join.offset, spec->offset, sizeof(join.offset));
    if (!err && output_pump_join(&f->stream.pump, &join, row, &why) < 0)
        err = &why;
    if (!err) {
        follower_begin(f, row);
        return;
    }
    http_answer_err(f->req, err);
    follower_free(f);
}

static struct follower *follower_new(struct http_req *req, struct api *api, const struct follow_spec *spec)
{
    static const struct output_client_ops answer_ops = { .embeds_output = true };
    static const struct output_client_ops *const ops[] = { [FOLLOW_ANSWER] = &answer_ops,
                                                           [FOLLOW_NDJSON] = &output_response_message_ops,
                                                           [FOLLOW_EVENTS] = &output_response_message_ops,
                                                           [FOLLOW_RAW] = &output_response_raw_ops };
    struct follower *f = mem_new(struct follower);

    f->req = req;
    f->api = api;
    f->spec = *spec;
    output_pump_init(&f->stream.pump, api->settings.manager, ops[spec->mode], &f->stream, follower_run, f);
    return f;
}

void follow_execution_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                          const struct store_execution *row)
{
    follower_on_row(follower_new(req, api, spec), NULL, row);
}

void follow_execution(struct http_req *req, struct api *api, const struct follow_spec *spec)
{
    store_execution_get(api->settings.store, gateway_visible_owner(req), spec->execution, follower_on_row,
                        follower_new(req, api, spec));
}

/* --- requests --- */

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
