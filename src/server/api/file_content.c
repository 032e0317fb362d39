/* Transfers the content of files between sandbox and client, at the speed of the slower side.
 * Back-pressure applies in both directions, so no content is buffered here. */
#include "server/api/file_transfer.h"

#include "core/base/mem.h"
#include "core/base/str.h"

/* The credential was revoked. The client sees that a begun response is cut off; a file that was
 * being written keeps its old content. */
static void file_content_on_revoked(void *arg, const struct err *why)
{
    struct file_transfer *t = arg;

    if (!t->answer_begun) {
        file_transfer_refuse(t, why);
        return;
    }
    http_on_client_gone(t->req, NULL, NULL);
    http_stream_break(t->req);
    file_transfer_free(t);
}

static void file_content_begin(struct file_transfer *t, enum files_operation operation,
                               const struct sandbox_files_ops *ops)
{
    open_stream_register(&t->open_stream, t->api->settings.gateway, gateway_principal(t->req), file_content_on_revoked,
                         t);
    file_transfer_begin(t, operation, ops);
}

/* --- reading ---
 *
 * The headers of a response (length, version, range) describe the file whose bytes follow. A file
 * that changes all the time is sent as it was when it was opened, without version and length; a
 * range of it is refused. A file that is written continuously has no entity tag. */

static void file_content_on_room(void *arg)
{
    struct file_transfer *t = arg;

    sandbox_files_hold_credit(t->job, false);
}

static void file_content_on_bytes(void *arg, const void *data, size_t len)
{
    struct file_transfer *t = arg;

    if (!t->answer_begun) {
        t->answer_begun = true;
        http_on_room(t->req, file_content_on_room, t);
        http_answer_stream(
            t->req, t->status,
            t->request.files.operation == FILES_OP_TAR_OUT ? "application/x-tar" : "application/octet-stream", t->len);
    }
    if (t->len != HTTP_UNTIL_END)
        len = (size_t)min_u64(len, t->len - t->sent);
    t->sent += len;
    if (!http_stream_write(t->req, data, len))
        sandbox_files_hold_credit(t->job, true);
}

/* A whole file is sent without a tag, unless the client demands one; "If-Match: *" only demands
 * that a file exists. */
static bool file_content_on_changing(void *arg)
{
    struct file_transfer *t = arg;
    const char *match = http_header(t->req, "If-Match");

    if (t->status != 200 || (match && !str_eq(match, "*")))
        return false;
    http_drop_header(t->req, "ETag");
    t->len = HTTP_UNTIL_END;
    return true;
}

static void file_content_on_read_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct file_transfer *t = arg;
    struct err truncated;

    if (!err && !t->answer_begun && t->len != HTTP_UNTIL_END) { /* it was truncated after it was opened */
        err_set(&truncated, ERR_EXISTS, "the file changed while it was read; try again");
        err = &truncated;
    }
    if (err && !t->answer_begun) {
        file_transfer_refuse(t, err);
        return;
    }
    if (!t->answer_begun)
        file_content_on_bytes(t, "", 0);
    http_on_client_gone(t->req, NULL, NULL);
    if (err || (t->len != HTTP_UNTIL_END && t->sent < t->len))
        http_stream_break(t->req);
    else
        http_stream_end(t->req);
    file_transfer_free(t);
}

static void file_content_on_examined(void *arg, const struct files_entry *e)
{
    struct file_transfer *t = arg;
    const char *slash = strrchr(t->request.files.path, '/');
    uint64_t from = 0;
    char etag[64];
    struct err why;

    http_on_client_gone(t->req, NULL, NULL); /* the request may be answered here */
    http_set_filename(t->req, slash[1] ? slash + 1 : "file");
    if (e->kind == 'l') { /* its target and the target's size are known when it is read */
        t->status = 200;
        t->len = HTTP_UNTIL_END;
    } else if (e->kind != 'f') {
        err_set(&why, ERR_WRONG_KIND,
                "path: a %s, not a file; use files/list or files/tar (cove cp --tar) to read directories",
                file_transfer_kind_name(e->kind));
        file_transfer_refuse(t, &why);
        return;
    } else if (!http_select_range(t->req, e->size, e->settled ? http_etag(e->size, e->version, etag) : NULL, &t->status,
                                  &from, &t->len)) {
        file_transfer_free(t);
        return;
    }
    if (t->len == 0) {
        http_answer(t->req, t->status, "application/octet-stream", "", 0);
        file_transfer_free(t);
        return;
    }
    http_on_client_gone(t->req, file_transfer_on_client_gone, t);
    sandbox_files_read(t->job, from, t->len == HTTP_UNTIL_END ? 0 : t->len);
}

static const struct sandbox_files_ops file_content_read_ops = { .files.on_entry = file_content_on_examined,
                                                                .files.on_data = file_content_on_bytes,
                                                                .files.on_done = file_content_on_read_done,
                                                                .on_changing = file_content_on_changing };
static const char *const file_content_query[] = { "path", NULL };

void file_content_read(struct http_req *req, void *ctx)
{
    struct file_transfer *t = file_transfer_from_query(req, ctx, file_content_query);

    if (t)
        file_content_begin(t, FILES_OP_READ, &file_content_read_ops);
}

void file_content_read_tar(struct http_req *req, void *ctx)
{
    struct file_transfer *t = file_transfer_from_query(req, ctx, file_content_query);

    if (!t)
        return;
    t->status = 200;
    t->len = HTTP_UNTIL_END;
    file_content_begin(t, FILES_OP_TAR_OUT, &file_content_read_ops);
}

/* --- writing --- */

static size_t file_content_on_body_data(void *arg, const void *data, size_t len)
{
    struct file_transfer *t = arg;

    return sandbox_files_send(t->job, data, len);
}

static void file_content_on_body_end(void *arg)
{
    sandbox_files_send_end(((struct file_transfer *)arg)->job);
}

static void file_content_on_body_fail(void *arg, const struct err *err)
{
    file_transfer_refuse(arg, err); /* drops the unfinished file; the old content stays */
}

static void file_content_on_start(void *arg)
{
    static const struct http_reader reader = { file_content_on_body_data, file_content_on_body_end,
                                               file_content_on_body_fail };
    struct file_transfer *t = arg;

    t->body_begun = true;
    http_read_body(t->req, &reader, t);
}

static void file_content_on_writable(void *arg)
{
    http_resume_body(((struct file_transfer *)arg)->req);
}

static void file_content_on_written(void *arg, const struct files_done *d, const struct err *err)
{
    struct file_transfer *t = arg;
    struct err why;
    struct jsonw w;

    if (err) {
        why = *err;
        if (t->request.files.flags & FILES_EXCL && err_info(err->id)->kind == ERR_KIND_EXISTS)
            err_set(&why, ERR_HTTP_PRECONDITION, "If-None-Match: the file already exists: %.150s",
                    t->request.files.path);
        file_transfer_refuse(t, &why);
        return;
    }
    jsonw_init(&w, &t->out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", t->request.files.path);
    if (t->request.files.operation == FILES_OP_TAR_IN)
        jsonw_ku64(&w, "files", d->files);
    jsonw_ku64(&w, "sizeBytes", d->bytes);
    jsonw_end_object(&w);
    file_transfer_answer(t);
}

static const struct sandbox_files_ops file_content_write_ops = { .files.on_writable = file_content_on_writable,
                                                                 .files.on_done = file_content_on_written,
                                                                 .on_start = file_content_on_start };

static int file_content_read_mode(const struct http_req *req, uint32_t *ret, struct err *err)
{
    const char *text = http_query(req, "mode");
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return 0;
    if (len < 3 || len > 4 || strspn(text, "01234567") != len)
        return err_set(err, ERR_INVALID, "mode: must be three octal digits, for example 644");
    *ret = (uint32_t)strtoul(text, NULL, 8);
    if (*ret == 0 || *ret > 0777)
        return err_set(err, ERR_INVALID, "mode: must be three octal digits, for example 644");
    return 0;
}

void file_content_write(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "parents", "mode", NULL };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);
    const char *match = http_header(req, "If-None-Match");
    struct err err = { 0 };

    if (!t)
        return;
    if (file_content_read_mode(req, &t->request.files.mode, &err) < 0 ||
        file_transfer_read_flag(t, "parents", FILES_PARENTS, &err) < 0) {
        file_transfer_refuse(t, &err);
    } else if (match && !str_eq(match, "*")) {
        err_set(&err, ERR_INVALID, "If-None-Match: only '*' is supported for a write");
        file_transfer_refuse(t, &err);
    } else {
        t->request.files.flags |= match ? FILES_EXCL : 0;
        file_content_begin(t, FILES_OP_WRITE, &file_content_write_ops);
    }
}

void file_content_write_tar(struct http_req *req, void *ctx)
{
    struct file_transfer *t = file_transfer_from_query(req, ctx, file_content_query);

    if (t)
        file_content_begin(t, FILES_OP_TAR_IN, &file_content_write_ops);
}
