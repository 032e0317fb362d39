/* POST .../executions/{executionId}/stdin: a chunk of standard input for a running program.
 *
 * The body is forwarded to the program as it arrives. If the program does not read, back-pressure
 * holds the body and thus the client; the response is sent when the sandbox has accepted all bytes.
 * `offset` makes a chunk that is sent twice arrive once: bytes that the sandbox already has are
 * skipped. A client whose connection broke, by its network or by a restart of the server, can
 * therefore send the chunk again. */
#include "server/api/api_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

struct stdin_upload {
    struct http_req *req;
    struct api *api;
    const char *sandbox;           /* valid as long as the request */
    bool closes_stdin, has_offset; /* has_offset: `offset` was given */
    uint64_t offset, bytes_to_skip;
    struct execution_writer *writer;
    struct open_stream open_stream; /* a body may last as long as its program runs */
};

static void stdin_upload_free(struct stdin_upload *f)
{
    open_stream_unregister(&f->open_stream);
    execution_writer_free(f->writer);
    free(f);
}

static void stdin_upload_refuse(struct stdin_upload *f, const struct err *err)
{
    http_answer_err(f->req, err);
    stdin_upload_free(f);
}

static void stdin_upload_refuse_with_count(struct stdin_upload *f, const struct err *err, uint64_t bytes)
{
    char details[64];

    snprintf(details, sizeof(details), "{\"stdinBytes\":%" PRIu64 "}", bytes);
    http_answer_err_with(f->req, err, details);
    stdin_upload_free(f);
}

static size_t stdin_upload_on_data(void *arg, const void *data, size_t len)
{
    struct stdin_upload *f = arg;
    size_t known = (size_t)min_u64(f->bytes_to_skip, len);

    f->bytes_to_skip -= known;
    return known + (known < len ? execution_writer_send(f->writer, (const char *)data + known, len - known) : 0);
}

static void stdin_upload_on_end(void *arg)
{
    struct stdin_upload *f = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (f->closes_stdin)
        execution_writer_close(f->writer);
    api_object_begin(&w, &out);
    jsonw_ku64(&w, "stdinBytes", execution_writer_bytes(f->writer));
    jsonw_kbool(&w, "stdinOpen", !f->closes_stdin);
    api_object_end(f->req, 200, &w);
    stdin_upload_free(f);
}

static void stdin_upload_on_fail(void *arg, const struct err *err)
{
    stdin_upload_refuse(arg, err); /* the program keeps the bytes that arrived before */
}

static void stdin_upload_on_room(void *arg)
{
    http_resume_body(((struct stdin_upload *)arg)->req);
}

static void stdin_upload_on_execution_end(void *arg, uint64_t bytes)
{
    struct stdin_upload *f = arg;
    struct err err;

    err_set(&err, ERR_EXISTS, "the execution ended before it read all of this input");
    http_discard_body(f->req);
    stdin_upload_refuse_with_count(f, &err, bytes);
}

static void stdin_upload_on_revoked(void *arg, const struct err *why)
{
    struct stdin_upload *f = arg;

    http_discard_body(f->req);
    stdin_upload_refuse_with_count(f, why, execution_writer_bytes(f->writer));
}

static const struct execution_writer_ops stdin_upload_writer_ops = { .on_writable = stdin_upload_on_room,
                                                                     .on_end = stdin_upload_on_execution_end };
static const struct http_reader stdin_upload_body_reader = { stdin_upload_on_data, stdin_upload_on_end,
                                                             stdin_upload_on_fail };

static void stdin_upload_begin(struct stdin_upload *f)
{
    uint64_t have = execution_writer_bytes(f->writer);
    struct err err;

    if (f->has_offset && f->offset > have) {
        err_set(&err, ERR_EXISTS, "offset: the standard input has only %" PRIu64 " bytes so far", have);
        stdin_upload_refuse_with_count(f, &err, have);
        return;
    }
    f->bytes_to_skip = f->has_offset ? have - f->offset : 0;
    open_stream_register(&f->open_stream, f->api->settings.gateway, gateway_principal(f->req), stdin_upload_on_revoked,
                         f);
    http_read_body(f->req, &stdin_upload_body_reader, f);
}

static void stdin_upload_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct stdin_upload *f = arg;
    struct err why = { 0 };

    if (!err && !str_eq(row->sandbox, f->sandbox)) {
        err_set(&why, ERR_MISSING, "there is no such execution in this sandbox");
        err = &why;
    } else if (!err && row->ended_ms) {
        err_set(&why, ERR_EXISTS, "execution %s has ended", row->id);
        err = &why;
    }
    if (!err)
        f->writer = manager_open_execution_input(f->api->settings.manager, gateway_visible_owner(f->req), f->sandbox,
                                                 row->id, &stdin_upload_writer_ops, f, &why);
    if (f->writer)
        stdin_upload_begin(f);
    else
        stdin_upload_refuse(f, err ? err : &why);
}

void stdin_upload_start(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "offset", "close", NULL };
    struct stdin_upload *f = mem_new(struct stdin_upload);
    struct err err = { 0 };
    const char *id;

    f->req = req;
    f->api = ctx;
    f->has_offset = http_query(req, "offset") != NULL;
    if (http_query_require_known(req, query, &err) < 0 || api_read_sandbox_id(req, &f->sandbox, &err) < 0 ||
        api_read_execution_id(req, &id, &err) < 0 ||
        http_query_u64(req, "offset", 0, INT64_MAX, 0, &f->offset, &err) < 0 ||
        http_query_bool(req, "close", false, &f->closes_stdin, &err) < 0)
        stdin_upload_refuse(f, &err);
    else
        store_execution_get(f->api->settings.store, gateway_visible_owner(req), id, stdin_upload_on_row, f);
}
