/* Contents of files, both ways: from the sandbox to the client and from the client to the sandbox, as fast as the
 * slower of the two takes them. Neither side's bytes are gathered here. */
#include "api/transfer.h"

#include "base/mem.h"
#include "base/str.h"

/* Whoever asked may not any more. Of an answer that has begun the client sees that it broke off, and of a file that was
 * being written the old one stays. */
static void on_refused(void *arg, const struct err *why)
{
    struct transfer *t = arg;

    if (!t->begun) {
        if (http_route(t->req)->body == HTTP_BODY_STREAMED)
            http_drop_body(t->req);
        transfer_refuse(t, why);
        return;
    }
    http_on_gone(t->req, NULL, NULL);
    http_stream_break(t->req);
    transfer_free(t);
}

static void watch_key(struct transfer *t)
{
    live_begin(&t->live, t->api, api_who(t->req), on_refused, t);
}

/* --- reading ---
 *
 * What an answer says first (how long, which version, which part) is known from a look at the file, and its bytes come
 * later. They are read only of the file that was seen; when another has its name by then, or it was written to, the
 * look is taken again. A file that never stands still for that long is sent as it was when it was opened, without a
 * version and a length; a part of it is refused. */

#define LOOKS_MAX 8

static void on_room(void *arg)
{
    struct transfer *t = arg;

    files_hold(t->job, false);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
    struct transfer *t = arg;

    if (!t->begun) {
        t->begun = true;
        http_on_room(t->req, on_room, t);
        http_answer_stream(t->req, t->status,
                           t->len == HTTP_UNTIL_END && t->limit ? "application/x-tar" : "application/octet-stream",
                           t->len);
    }
    if (t->len != HTTP_UNTIL_END)
        len = (size_t)min_u64(len, t->len - t->sent);
    t->sent += len;
    if (!http_stream_write(t->req, data, len))
        files_hold(t->job, true);
}

static void look_again(void *arg, struct box *box, const struct err *err);
static void read_now(void *arg, struct box *box, const struct err *err);

/* It was not the file that was seen. */
static void on_changed(struct transfer *t)
{
    struct err why;

    http_on_gone(t->req, NULL, NULL);
    live_done(&t->live);
    if (++t->looks < LOOKS_MAX) {
        manager_use(t->api->set.manager, api_sees(t->req), t->sandbox, look_again, t);
    } else if (t->status == 200 && !http_header(t->req, "If-Match")) {
        http_drop_header(t->req, "ETag");
        t->len = HTTP_UNTIL_END;
        manager_use(t->api->set.manager, api_sees(t->req), t->sandbox, read_now, t);
    } else {
        err_set(&why, ERR_EXISTS, "the file changes faster than a part of it can be read; ask again");
        transfer_refuse(t, &why);
    }
}

static void on_all_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;

    if (err && err->id == ERR_BUSY && !t->begun && t->len != HTTP_UNTIL_END) {
        on_changed(t);
        return;
    }
    if (err && !t->begun) {
        transfer_refuse(t, err);
        return;
    }
    if (!t->begun && t->len != HTTP_UNTIL_END && t->len > 0) { /* it became shorter since it was opened */
        struct err why;

        err_set(&why, ERR_EXISTS, "the file changed while it was read; ask again");
        transfer_refuse(t, &why);
        return;
    }
    if (!t->begun)
        on_bytes(t, "", 0);
    http_on_gone(t->req, NULL, NULL);
    if (err || (t->len != HTTP_UNTIL_END && t->sent < t->len))
        http_stream_break(t->req);
    else
        http_stream_end(t->req);
    transfer_free(t);
}

static const struct files_ops read_ops = { .on_data = on_bytes, .on_done = on_all_read };

static void on_looked(void *arg, const struct files_entry *e)
{
    struct transfer *t = arg;

    t->entry = *e;
    t->entry.name = t->entry.target = NULL;
}

static void set_file_headers(struct transfer *t)
{
    const char *slash = strrchr(t->path, '/');

    http_set_header(t->req, "X-Content-Type-Options", "nosniff");
    http_set_filename(t->req, slash[1] ? slash + 1 : "file");
}

static void read_now(void *arg, struct box *box, const struct err *err)
{
    struct transfer *t = arg;
    struct err why = { 0 };

    if (err) {
        transfer_refuse(t, err);
        return;
    }
    manager_release(t->api->set.manager, t->sandbox); /* held by the first use */
    files_free(take_ptr(&t->job));
    http_on_gone(t->req, transfer_gone, t);
    watch_key(t);
    int r = t->len == HTTP_UNTIL_END
                ? files_read(box, t->path, t->from, 0, &read_ops, t, &t->job, &why)
                : files_read_seen(box, t->path, &t->entry, t->from, t->len, &read_ops, t, &t->job, &why);
    if (r < 0)
        transfer_refuse(t, &why);
}

static void on_stat_for_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;
    char etag[64];
    struct err why;

    if (err) {
        transfer_refuse(t, err);
        return;
    }
    set_file_headers(t);
    if (t->entry.kind == 'l') { /* where it leads, and how much is there, is known when it is read */
        t->status = 200;
        t->len = HTTP_UNTIL_END;
    } else if (t->entry.kind != 'f') {
        err_set(&why, ERR_WRONG_KIND,
                "path: it is no file but a %s; files/list and files/tar (cove cp --tar) read directories",
                transfer_kind(t->entry.kind));
        transfer_refuse(t, &why);
        return;
    } else if (!http_part(t->req, t->entry.size, http_etag(t->entry.size, t->entry.mtime_ns, etag), &t->status,
                          &t->from, &t->len)) {
        transfer_free(t);
        return;
    }
    if (t->len == 0) {
        http_on_gone(t->req, NULL, NULL);
        http_answer(t->req, t->status, "application/octet-stream", "", 0);
        transfer_free(t);
        return;
    }
    manager_use(t->api->set.manager, api_sees(t->req), t->sandbox, read_now, t);
}

static void start_read(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_entry = on_looked, .on_done = on_stat_for_read };
    struct err err = { 0 };

    if (files_stat(box, t->path, &ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
}

static void look_again(void *arg, struct box *box, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        transfer_refuse(t, err);
        return;
    }
    manager_release(t->api->set.manager, t->sandbox); /* held by the use before */
    files_free(take_ptr(&t->job));
    start_read(t, box);
}

void bytes_read(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        transfer_begin(t, start_read);
}

static void start_tar_out(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    t->status = 200;
    t->len = HTTP_UNTIL_END;
    t->limit = 1; /* the answer is an archive */
    http_set_header(t->req, "X-Content-Type-Options", "nosniff");
    http_on_gone(t->req, transfer_gone, t);
    watch_key(t);
    if (files_tar_out(box, t->path, &read_ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
}

void bytes_tar_out(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        transfer_begin(t, start_tar_out);
}

/* --- writing --- */

static size_t on_body(void *arg, const void *data, size_t len)
{
    struct transfer *t = arg;

    return files_send(t->job, data, len);
}

static void on_body_end(void *arg)
{
    files_send_end(((struct transfer *)arg)->job);
}

static void on_body_fail(void *arg, const struct err *err)
{
    transfer_refuse(arg, err); /* what was begun is given up, and the old file stays */
}

static void on_writable(void *arg)
{
    http_resume_body(((struct transfer *)arg)->req);
}

static void on_written(void *arg, const struct files_done *d, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        struct err why = *err;

        if (t->flags & FILES_EXCL && err_info(err->id)->kind == ERR_KIND_EXISTS)
            err_set(&why, ERR_HTTP_PRECONDITION, "If-None-Match: there is a file of that name: %.150s", t->path);
        http_drop_body(t->req);
        transfer_refuse(t, &why);
        return;
    }
    jsonw_init(&t->w, &t->out, 0);
    jsonw_object(&t->w);
    jsonw_kstr(&t->w, "path", t->path);
    if (t->limit)
        jsonw_ku64(&t->w, "files", d->files);
    jsonw_ku64(&t->w, "sizeBytes", d->bytes);
    jsonw_end_object(&t->w);
    transfer_answer(t);
}

static const struct files_ops write_ops = { .on_writable = on_writable, .on_done = on_written };
static const struct http_reader reader = { on_body, on_body_end, on_body_fail };

static void start_write(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_write(box, t->path, t->mode, t->flags, &write_ops, t, &t->job, &err) < 0) {
        transfer_refuse(t, &err);
        return;
    }
    watch_key(t);
    http_read_body(t->req, &reader, t);
}

static int read_mode(const struct http_req *req, uint32_t *ret, struct err *err)
{
    const char *text = http_query(req, "mode");
    uint32_t mode = 0;

    if (!text)
        return 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '7' || p - text > 3)
            return err_set(err, ERR_INVALID, "mode: three octal digits, for example 0644");
        mode = mode * 8 + (uint32_t)(*p - '0');
    }
    if (strlen(text) < 3 || mode == 0 || mode > 0777)
        return err_set(err, ERR_INVALID, "mode: three octal digits, for example 0644");
    *ret = mode;
    return 0;
}

void bytes_write(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "parents", "mode", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    const char *match = http_header(req, "If-None-Match");
    struct err err = { 0 };

    if (!t)
        return;
    if (read_mode(req, &t->mode, &err) < 0 || transfer_flag(req, "parents", FILES_PARENTS, &t->flags, &err) < 0) {
        transfer_refuse(t, &err);
    } else if (match && !str_eq(match, "*")) {
        err_set(&err, ERR_INVALID, "If-None-Match: a write knows only '*'");
        transfer_refuse(t, &err);
    } else {
        t->flags |= match ? FILES_EXCL : 0;
        transfer_begin(t, start_write);
    }
}

static void start_tar_in(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    t->limit = 1; /* the answer counts files */
    if (files_tar_in(box, t->path, &write_ops, t, &t->job, &err) < 0) {
        transfer_refuse(t, &err);
        return;
    }
    watch_key(t);
    http_read_body(t->req, &reader, t);
}

void bytes_tar_in(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        transfer_begin(t, start_tar_in);
}
