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
        if (http_route(t->req)->body == HTTP_BODY_STREAMED)
            http_discard_body(t->req);
        file_transfer_refuse(t, why);
        return;
    }
    http_on_client_gone(t->req, NULL, NULL);
    http_stream_break(t->req);
    file_transfer_free(t);
}

static void file_content_register_stream(struct file_transfer *t)
{
    open_stream_register(&t->open_stream, t->api->settings.gateway, gateway_principal(t->req), file_content_on_revoked,
                         t);
}

/* --- reading ---
 *
 * The headers of a response (length, version, range) come from a stat of the file; its bytes follow
 * later. They are read only from the file that was examined: if the name refers to another file by
 * then, or the file was written, the stat is repeated. A file that changes on every attempt is sent
 * as it was when it was opened, without version and length; a range of it is refused. */

#define STAT_ATTEMPTS_MAX 8

/* A version identifies one content only after the kernel's clock has passed the file's last change
 * (files_entry.settled). That takes one tick, at most 10 ms, so the stat of a file that was just
 * written is repeated; a file that is written continuously is sent without an entity tag. */
#define SETTLE_WAIT_NS (1 * NS_PER_MS)
#define SETTLE_WAITS_MAX 12

static void file_content_on_room(void *arg)
{
    struct file_transfer *t = arg;

    files_hold_credit(t->job, false);
}

static void file_content_on_bytes(void *arg, const void *data, size_t len)
{
    struct file_transfer *t = arg;

    if (!t->answer_begun) {
        t->answer_begun = true;
        http_on_room(t->req, file_content_on_room, t);
        http_answer_stream(t->req, t->status,
                           t->len == HTTP_UNTIL_END && t->limit ? "application/x-tar" : "application/octet-stream",
                           t->len);
    }
    if (t->len != HTTP_UNTIL_END)
        len = (size_t)min_u64(len, t->len - t->sent);
    t->sent += len;
    if (!http_stream_write(t->req, data, len))
        files_hold_credit(t->job, true);
}

static void file_content_stat_again(void *arg, struct sandbox_handle *sandbox, const struct err *err);
static void file_content_read_seen_file(void *arg, struct sandbox_handle *sandbox, const struct err *err);

/* The opened file is not the one that was examined. After several attempts a whole file is read
 * without a tag, unless the client demands one; "If-Match: *" only demands that a file exists. */
static void file_content_on_file_changed(struct file_transfer *t)
{
    const char *match = http_header(t->req, "If-Match");
    struct err why;

    http_on_client_gone(t->req, NULL, NULL);
    open_stream_unregister(&t->open_stream);
    if (++t->stat_attempts < STAT_ATTEMPTS_MAX) {
        manager_acquire_sandbox(t->api->settings.manager, gateway_visible_owner(t->req), t->sandbox,
                                file_content_stat_again, t);
    } else if (t->status == 200 && (!match || strcmp(match, "*") == 0)) {
        http_drop_header(t->req, "ETag");
        t->len = HTTP_UNTIL_END;
        manager_acquire_sandbox(t->api->settings.manager, gateway_visible_owner(t->req), t->sandbox,
                                file_content_read_seen_file, t);
    } else {
        err_set(&why, ERR_EXISTS, "the file changes faster than a range of it can be read; try again");
        file_transfer_refuse(t, &why);
    }
}

static void file_content_on_read_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct file_transfer *t = arg;

    if (err && err->id == ERR_BUSY && !t->answer_begun && t->len != HTTP_UNTIL_END) {
        file_content_on_file_changed(t);
        return;
    }
    if (err && !t->answer_begun) {
        file_transfer_refuse(t, err);
        return;
    }
    if (!t->answer_begun && t->len != HTTP_UNTIL_END && t->len > 0) { /* it was truncated after it was opened */
        struct err why;

        err_set(&why, ERR_EXISTS, "the file changed while it was read; try again");
        file_transfer_refuse(t, &why);
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

static const struct files_ops file_content_read_ops = { .on_data = file_content_on_bytes,
                                                        .on_done = file_content_on_read_done };

static void file_content_on_stat_entry(void *arg, const struct files_entry *e)
{
    struct file_transfer *t = arg;

    t->entry = *e;
    t->entry.name = t->entry.target = NULL;
}

static void file_content_set_headers(struct file_transfer *t)
{
    const char *slash = strrchr(t->path, '/');

    http_set_header(t->req, "X-Content-Type-Options", "nosniff");
    http_set_filename(t->req, slash[1] ? slash + 1 : "file");
}

static void file_content_read_seen_file(void *arg, struct sandbox_handle *sandbox, const struct err *err)
{
    struct file_transfer *t = arg;
    struct err why = { 0 };

    if (err) {
        file_transfer_refuse(t, err);
        return;
    }
    manager_release_sandbox(t->api->settings.manager, t->sandbox); /* taken by the first use */
    files_free(take_ptr(&t->job));
    http_on_client_gone(t->req, file_transfer_on_client_gone, t);
    file_content_register_stream(t);
    int r = t->len == HTTP_UNTIL_END
                ? files_read(sandbox, t->path, t->from, 0, &file_content_read_ops, t, &t->job, &why)
                : files_read_unchanged(sandbox, t->path, &t->entry, t->from, t->len, &file_content_read_ops, t, &t->job,
                                       &why);
    if (r < 0)
        file_transfer_refuse(t, &why);
}

static void file_content_on_settle_timer(void *arg)
{
    struct file_transfer *t = arg;

    manager_acquire_sandbox(t->api->settings.manager, gateway_visible_owner(t->req), t->sandbox,
                            file_content_stat_again, t);
}

static void file_content_on_stat_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct file_transfer *t = arg;
    char etag[64];
    struct err why;

    if (err) {
        file_transfer_refuse(t, err);
        return;
    }
    if (t->entry.kind == 'f' && !t->entry.settled && t->settle_waits++ < SETTLE_WAITS_MAX) {
        ev_timer_set(t->api->settings.ev, &t->settle_timer, ev_now(t->api->settings.ev) + SETTLE_WAIT_NS,
                     file_content_on_settle_timer, t);
        return;
    }
    file_content_set_headers(t);
    if (t->entry.kind == 'l') { /* its target and the target's size are known when it is read */
        t->status = 200;
        t->len = HTTP_UNTIL_END;
    } else if (t->entry.kind != 'f') {
        err_set(&why, ERR_WRONG_KIND,
                "path: a %s, not a file; use files/list or files/tar (cove cp --tar) to read directories",
                file_transfer_kind_name(t->entry.kind));
        file_transfer_refuse(t, &why);
        return;
    } else if (!http_select_range(t->req, t->entry.size,
                                  t->entry.settled ? http_etag(t->entry.size, t->entry.version, etag) : NULL,
                                  &t->status, &t->from, &t->len)) {
        file_transfer_free(t);
        return;
    }
    if (t->len == 0) {
        http_on_client_gone(t->req, NULL, NULL);
        http_answer(t->req, t->status, "application/octet-stream", "", 0);
        file_transfer_free(t);
        return;
    }
    manager_acquire_sandbox(t->api->settings.manager, gateway_visible_owner(t->req), t->sandbox,
                            file_content_read_seen_file, t);
}

static void file_content_start_stat(struct file_transfer *t, struct sandbox_handle *sandbox)
{
    static const struct files_ops ops = { .on_entry = file_content_on_stat_entry,
                                          .on_done = file_content_on_stat_done };
    struct err err = { 0 };

    if (files_stat(sandbox, t->path, &ops, t, &t->job, &err) < 0)
        file_transfer_refuse(t, &err);
}

static void file_content_stat_again(void *arg, struct sandbox_handle *sandbox, const struct err *err)
{
    struct file_transfer *t = arg;

    if (err) {
        file_transfer_refuse(t, err);
        return;
    }
    manager_release_sandbox(t->api->settings.manager, t->sandbox); /* taken by the previous use */
    files_free(take_ptr(&t->job));
    file_content_start_stat(t, sandbox);
}

void file_content_read(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);

    if (t)
        file_transfer_begin(t, file_content_start_stat);
}

static void file_content_start_tar_read(struct file_transfer *t, struct sandbox_handle *sandbox)
{
    struct err err = { 0 };

    t->status = 200;
    t->len = HTTP_UNTIL_END;
    t->limit = 1; /* the response is an archive */
    http_set_header(t->req, "X-Content-Type-Options", "nosniff");
    http_on_client_gone(t->req, file_transfer_on_client_gone, t);
    file_content_register_stream(t);
    if (files_tar_out(sandbox, t->path, &file_content_read_ops, t, &t->job, &err) < 0)
        file_transfer_refuse(t, &err);
}

void file_content_read_tar(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);

    if (t)
        file_transfer_begin(t, file_content_start_tar_read);
}

/* --- writing --- */

static size_t file_content_on_body_data(void *arg, const void *data, size_t len)
{
    struct file_transfer *t = arg;

    return files_send(t->job, data, len);
}

static void file_content_on_body_end(void *arg)
{
    files_send_end(((struct file_transfer *)arg)->job);
}

static void file_content_on_body_fail(void *arg, const struct err *err)
{
    file_transfer_refuse(arg, err); /* drops the unfinished file; the old content stays */
}

static void file_content_on_writable(void *arg)
{
    http_resume_body(((struct file_transfer *)arg)->req);
}

static void file_content_on_written(void *arg, const struct files_done *d, const struct err *err)
{
    struct file_transfer *t = arg;

    if (err) {
        struct err why = *err;

        if (t->flags & FILES_EXCL && err_info(err->id)->kind == ERR_KIND_EXISTS)
            err_set(&why, ERR_HTTP_PRECONDITION, "If-None-Match: the file already exists: %.150s", t->path);
        http_discard_body(t->req);
        file_transfer_refuse(t, &why);
        return;
    }
    jsonw_init(&t->w, &t->out, 0);
    jsonw_object(&t->w);
    jsonw_kstr(&t->w, "path", t->path);
    if (t->limit)
        jsonw_ku64(&t->w, "files", d->files);
    jsonw_ku64(&t->w, "sizeBytes", d->bytes);
    jsonw_end_object(&t->w);
    file_transfer_answer(t);
}

static const struct files_ops file_content_write_ops = { .on_writable = file_content_on_writable,
                                                         .on_done = file_content_on_written };
static const struct http_reader file_content_body_reader = { file_content_on_body_data, file_content_on_body_end,
                                                             file_content_on_body_fail };

static void file_content_start_write(struct file_transfer *t, struct sandbox_handle *sandbox)
{
    struct err err = { 0 };

    if (files_write(sandbox, t->path, t->mode, t->flags, &file_content_write_ops, t, &t->job, &err) < 0) {
        file_transfer_refuse(t, &err);
        return;
    }
    file_content_register_stream(t);
    http_read_body(t->req, &file_content_body_reader, t);
}

static int file_content_read_mode(const struct http_req *req, uint32_t *ret, struct err *err)
{
    const char *text = http_query(req, "mode");
    uint32_t mode = 0;

    if (!text)
        return 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '7' || p - text > 3)
            return err_set(err, ERR_INVALID, "mode: must be three octal digits, for example 644");
        mode = mode * 8 + (uint32_t)(*p - '0');
    }
    if (strlen(text) < 3 || mode == 0 || mode > 0777)
        return err_set(err, ERR_INVALID, "mode: must be three octal digits, for example 644");
    *ret = mode;
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
    if (file_content_read_mode(req, &t->mode, &err) < 0 ||
        file_transfer_read_flag(req, "parents", FILES_PARENTS, &t->flags, &err) < 0) {
        file_transfer_refuse(t, &err);
    } else if (match && !str_eq(match, "*")) {
        err_set(&err, ERR_INVALID, "If-None-Match: only '*' is supported for a write");
        file_transfer_refuse(t, &err);
    } else {
        t->flags |= match ? FILES_EXCL : 0;
        file_transfer_begin(t, file_content_start_write);
    }
}

static void file_content_start_tar_write(struct file_transfer *t, struct sandbox_handle *sandbox)
{
    struct err err = { 0 };

    t->limit = 1; /* the response contains the number of files */
    if (files_tar_in(sandbox, t->path, &file_content_write_ops, t, &t->job, &err) < 0) {
        file_transfer_refuse(t, &err);
        return;
    }
    file_content_register_stream(t);
    http_read_body(t->req, &file_content_body_reader, t);
}

void file_content_write_tar(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);

    if (t)
        file_transfer_begin(t, file_content_start_tar_write);
}
