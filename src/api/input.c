/* POST .../executions/{executionId}/stdin: a piece of standard input for a program that runs.
 *
 * The body goes to the program as it comes. When the program does not read, the body is held, and with it the client;
 * the answer comes when the sandbox has taken all of it. `offset` makes a piece that is sent twice arrive once: what
 * the sandbox has of it already is left out. So a client that was cut off, by its network or by a restart of the
 * server, sends the piece again. */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

struct feed {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* lives as long as the request */
    bool close, placed;  /* placed: with an offset */
    uint64_t offset, skip;
    struct writer *writer;
    struct api_live live; /* a body may go on for as long as its program does */
};

static void feed_free(struct feed *f)
{
    live_done(&f->live);
    writer_free(f->writer);
    free(f);
}

static void refuse(struct feed *f, const struct err *err)
{
    http_answer_err(f->req, err);
    feed_free(f);
}

static void refuse_with_count(struct feed *f, const struct err *err, uint64_t bytes)
{
    char details[64];

    snprintf(details, sizeof(details), "{\"stdinBytes\":%" PRIu64 "}", bytes);
    http_answer_err_with(f->req, err, details);
    feed_free(f);
}

static size_t on_data(void *arg, const void *data, size_t len)
{
    struct feed *f = arg;
    size_t known = (size_t)min_u64(f->skip, len);

    f->skip -= known;
    return known + (known < len ? writer_send(f->writer, (const char *)data + known, len - known) : 0);
}

static void on_end(void *arg)
{
    struct feed *f = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (f->close)
        writer_close(f->writer);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_ku64(&w, "stdinBytes", writer_bytes(f->writer));
    jsonw_kbool(&w, "stdinOpen", !f->close);
    jsonw_end_object(&w);
    http_answer_json(f->req, 200, &out);
    feed_free(f);
}

static void on_fail(void *arg, const struct err *err)
{
    refuse(arg, err); /* what came before stays with the program */
}

static void on_room(void *arg)
{
    http_resume_body(((struct feed *)arg)->req);
}

static void on_over(void *arg, uint64_t bytes)
{
    struct feed *f = arg;
    struct err err;

    err_set(&err, ERR_EXISTS, "the execution ended before it had read all of this");
    http_drop_body(f->req);
    refuse_with_count(f, &err, bytes);
}

static void on_refused(void *arg, const struct err *why)
{
    struct feed *f = arg;

    http_drop_body(f->req);
    refuse_with_count(f, why, writer_bytes(f->writer));
}

static const struct writer_ops writer_ops = { .on_room = on_room, .on_over = on_over };
static const struct http_reader reader = { on_data, on_end, on_fail };

static void begin(struct feed *f)
{
    uint64_t have = writer_bytes(f->writer);
    struct err err;

    if (f->placed && f->offset > have) {
        err_set(&err, ERR_EXISTS, "offset: its standard input has %" PRIu64 " bytes so far", have);
        refuse_with_count(f, &err, have);
        return;
    }
    f->skip = f->placed ? have - f->offset : 0;
    live_begin(&f->live, f->api, api_who(f->req), on_refused, f);
    http_read_body(f->req, &reader, f);
}

static void on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct feed *f = arg;
    struct err why = { 0 };

    if (!err && !str_eq(row->sandbox, f->sandbox)) {
        err_set(&why, ERR_MISSING, "there is no such execution in this sandbox");
        err = &why;
    } else if (!err && row->ended_ms) {
        err_set(&why, ERR_EXISTS, "execution %s has ended", row->id);
        err = &why;
    }
    if (!err)
        f->writer = manager_writer(f->api->set.manager, api_sees(f->req), f->sandbox, row->id, &writer_ops, f, &why);
    if (f->writer)
        begin(f);
    else
        refuse(f, err ? err : &why);
}

void input_write(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "offset", "close", NULL };
    struct feed *f = mem_new(struct feed);
    struct err err = { 0 };
    const char *id;

    f->req = req;
    f->api = ctx;
    f->placed = http_query(req, "offset") != NULL;
    if (http_query_only(req, query, &err) < 0 || api_sandbox_id(req, &f->sandbox, &err) < 0 ||
        api_execution_id(req, &id, &err) < 0 || http_query_u64(req, "offset", 0, INT64_MAX, 0, &f->offset, &err) < 0 ||
        http_query_bool(req, "close", false, &f->close, &err) < 0)
        refuse(f, &err);
    else
        store_execution_get(f->api->set.store, api_sees(req), id, on_row, f);
}
