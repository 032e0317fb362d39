/* /v1/sandboxes/{sandboxId}/files: everything happens inside the sandbox, by its runtime, as its user. Here bytes go
 * from one side to the other, as fast as the slower of the two takes them. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>

#define PATH_MAX_BYTES 4000u
#define LIST_MAX 10000u
#define LIST_PRESET 1000u

struct transfer {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* these live as long as the request */
    const char *path, *to;
    json_t *body;
    void (*start)(struct transfer *t, struct box *box);
    struct files_job *job;
    bool used; /* the sandbox is ours until manager_release */
    uint64_t limit;
    uint32_t mode, flags;
    struct files_entry entry;
    bool begun; /* the answer */
    int status;
    uint64_t from, len, sent;
    struct buf out;
    struct jsonw w;
};

static void transfer_free(struct transfer *t)
{
    files_free(t->job);
    if (t->used)
        manager_release(t->api->set.manager, t->sandbox);
    json_decref(t->body);
    buf_done(&t->out);
    free(t);
}

static void refuse(struct transfer *t, const struct err *err)
{
    struct err why = *err;

    if (why.id == ERR_LIMIT && (why.sys == ENOSPC || why.sys == EDQUOT))
        why.id = ERR_SANDBOX_FULL;
    http_on_gone(t->req, NULL, NULL);
    http_answer_err(t->req, &why);
    transfer_free(t);
}

/* The client is gone while an answer is made or sent: nobody wants the rest. */
static void on_gone(void *arg)
{
    struct transfer *t = arg;

    if (t->begun)
        http_stream_end(t->req);
    else
        http_answer_empty(t->req, 204);
    transfer_free(t);
}

static void on_box(void *arg, struct box *box, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        refuse(t, err);
        return;
    }
    t->used = true;
    t->start(t, box);
}

static void begin(struct transfer *t, void (*start)(struct transfer *t, struct box *box))
{
    t->start = start;
    manager_use(t->api->set.manager, api_sees(t->req), t->sandbox, on_box, t);
}

static int check_path(const char *path, const char *name, struct err *err)
{
    if (!path)
        return err_set(err, ERR_INVALID, "%s: it is missing", name);
    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "%s: write an absolute path, for example /workspace/data.csv", name);
    if (strlen(path) > PATH_MAX_BYTES)
        return err_set(err, ERR_INVALID, "%s: it is longer than %u bytes", name, PATH_MAX_BYTES);
    return 0;
}

/* NULL: refused. */
static struct transfer *transfer_new(struct http_req *req, struct api *api, const char *const *query)
{
    struct transfer *t = mem_new(struct transfer);
    struct err err = { 0 };

    t->req = req;
    t->api = api;
    t->path = http_query(req, "path");
    if (http_query_only(req, query, &err) == 0 && api_sandbox_id(req, &t->sandbox, &err) == 0)
        return t;
    refuse(t, &err);
    return NULL;
}

static struct transfer *transfer_of_path(struct http_req *req, struct api *api, const char *const *query)
{
    struct transfer *t = transfer_new(req, api, query);
    struct err err = { 0 };

    if (t && check_path(t->path, "path", &err) < 0) {
        refuse(t, &err);
        return NULL;
    }
    return t;
}

/* --- entries --- */

static const char *kind_name(char kind)
{
    switch (kind) {
    case 'f':
        return "file";
    case 'd':
        return "directory";
    case 'l':
        return "link";
    case 'p':
        return "fifo";
    case 's':
        return "socket";
    default:
        return "device";
    }
}

static void json_entry(const struct files_entry *e, struct jsonw *w)
{
    char mode[8];

    jsonw_object(w);
    jsonw_kstr(w, "name", e->name);
    if (!text_utf8(e->name, strlen(e->name))) {
        auto_buf coded = { 0 };

        text_base64(&coded, e->name, strlen(e->name));
        jsonw_kstr(w, "nameBase64", coded.data);
    }
    jsonw_kstr(w, "kind", kind_name(e->kind));
    snprintf(mode, sizeof(mode), "%04o", e->mode & 07777u);
    jsonw_kstr(w, "mode", mode);
    jsonw_ku64(w, "sizeBytes", e->size);
    api_time(w, "modifiedAt", max_u64(e->mtime_ns / NS_PER_MS, 1));
    if (e->kind == 'l')
        jsonw_kstr(w, "target", e->target);
    jsonw_end_object(w);
}

static void on_entry(void *arg, const struct files_entry *e)
{
    struct transfer *t = arg;

    json_entry(e, &t->w);
}

static void answer_out(struct transfer *t)
{
    struct buf out = t->out;

    t->out = (struct buf){ 0 };
    http_on_gone(t->req, NULL, NULL);
    http_answer_json(t->req, 200, &out);
    transfer_free(t);
}

static void on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        refuse(t, err);
        return;
    }
    jsonw_end_array(&t->w);
    jsonw_kbool(&t->w, "truncated", d->truncated);
    jsonw_end_object(&t->w);
    answer_out(t);
}

static void start_list(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_entry = on_entry, .on_done = on_listed };
    struct err err = { 0 };

    jsonw_init(&t->w, &t->out, 0);
    jsonw_object(&t->w);
    jsonw_kstr(&t->w, "path", t->path);
    jsonw_key(&t->w, "entries");
    jsonw_array(&t->w);
    http_on_gone(t->req, on_gone, t);
    if (files_list(box, t->path, t->limit, &ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void list(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "limit", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (http_query_u64(req, "limit", 1, LIST_MAX, LIST_PRESET, &t->limit, &err) < 0)
        refuse(t, &err);
    else
        begin(t, start_list);
}

static void on_statted(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    if (err)
        refuse(arg, err);
    else
        answer_out(arg);
}

static void start_stat(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_entry = on_entry, .on_done = on_statted };
    struct err err = { 0 };

    jsonw_init(&t->w, &t->out, 0);
    http_on_gone(t->req, on_gone, t);
    if (files_stat(box, t->path, &ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void stat_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        begin(t, start_stat);
}

/* --- reading --- */

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

static void on_all_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;

    if (err && !t->begun) {
        refuse(t, err);
        return;
    }
    if (!t->begun && t->len != HTTP_UNTIL_END && t->len > 0) { /* it became shorter since we looked */
        struct err why;

        err_set(&why, ERR_EXISTS, "the file changed while it was read; ask again");
        refuse(t, &why);
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
        refuse(t, err);
        return;
    }
    manager_release(t->api->set.manager, t->sandbox); /* held by the first use */
    files_free(take_ptr(&t->job));
    http_on_gone(t->req, on_gone, t);
    if (files_read(box, t->path, t->from, t->len == HTTP_UNTIL_END ? 0 : t->len, &read_ops, t, &t->job, &why) < 0)
        refuse(t, &why);
}

static void on_stat_for_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;
    char etag[64];
    struct err why;

    if (err) {
        refuse(t, err);
        return;
    }
    set_file_headers(t);
    if (t->entry.kind == 'l') { /* where it leads, and how much is there, is known when it is read */
        t->status = 200;
        t->len = HTTP_UNTIL_END;
    } else if (t->entry.kind != 'f') {
        err_set(&why, ERR_INVALID, "path: it is no file but a %s; files/list and files/tar read directories",
                kind_name(t->entry.kind));
        refuse(t, &why);
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
        refuse(t, &err);
}

static void read_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        begin(t, start_read);
}

static void start_tar_out(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    t->status = 200;
    t->len = HTTP_UNTIL_END;
    t->limit = 1; /* the answer is an archive */
    http_set_header(t->req, "X-Content-Type-Options", "nosniff");
    http_on_gone(t->req, on_gone, t);
    if (files_tar_out(box, t->path, &read_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void tar_out(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        begin(t, start_tar_out);
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
    refuse(arg, err); /* what was begun is given up, and the old file stays */
}

static void on_writable(void *arg)
{
    http_resume_body(((struct transfer *)arg)->req);
}

static void on_written(void *arg, const struct files_done *d, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        http_drop_body(t->req);
        refuse(t, err);
        return;
    }
    jsonw_init(&t->w, &t->out, 0);
    jsonw_object(&t->w);
    jsonw_kstr(&t->w, "path", t->path);
    if (t->limit)
        jsonw_ku64(&t->w, "files", d->files);
    jsonw_ku64(&t->w, "sizeBytes", d->bytes);
    jsonw_end_object(&t->w);
    answer_out(t);
}

static const struct files_ops write_ops = { .on_writable = on_writable, .on_done = on_written };
static const struct http_reader reader = { on_body, on_body_end, on_body_fail };

static void start_write(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_write(box, t->path, t->mode, t->flags, &write_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
    else
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

static int read_flag(const struct http_req *req, const char *name, uint32_t bit, uint32_t *flags, struct err *err)
{
    bool on;

    if (http_query_bool(req, name, false, &on, err) < 0)
        return -1;
    *flags |= on ? bit : 0;
    return 0;
}

static void write_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "parents", "mode", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    const char *match = http_header(req, "If-None-Match");
    struct err err = { 0 };

    if (!t)
        return;
    if (read_mode(req, &t->mode, &err) < 0 || read_flag(req, "parents", FILES_PARENTS, &t->flags, &err) < 0) {
        refuse(t, &err);
    } else if (match && !str_eq(match, "*")) {
        err_set(&err, ERR_INVALID, "If-None-Match: a write knows only '*'");
        refuse(t, &err);
    } else {
        t->flags |= match ? FILES_EXCL : 0;
        begin(t, start_write);
    }
}

static void start_tar_in(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    t->limit = 1; /* the answer counts files */
    if (files_tar_in(box, t->path, &write_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
    else
        http_read_body(t->req, &reader, t);
}

static void tar_in(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        begin(t, start_tar_in);
}

/* --- names --- */

static void on_changed(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        refuse(t, err);
        return;
    }
    http_on_gone(t->req, NULL, NULL);
    http_answer_empty(t->req, 204);
    transfer_free(t);
}

static const struct files_ops change_ops = { .on_done = on_changed };

static void start_remove(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_remove(box, t->path, t->flags, &change_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void remove_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "recursive", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (read_flag(req, "recursive", FILES_RECURSIVE, &t->flags, &err) < 0)
        refuse(t, &err);
    else
        begin(t, start_remove);
}

static int body_flag(const struct transfer *t, const char *name, uint32_t bit, uint32_t *flags, struct err *err)
{
    bool on = false;

    if (body_bool(t->body, "", name, &on, err) < 0)
        return -1;
    *flags |= on ? bit : 0;
    return 0;
}

static int read_names(struct transfer *t, const char *const *names, const char *path, struct err *err)
{
    if (api_body(t->req, &t->body, err) < 0 || body_only(t->body, "", names, err) < 0 ||
        body_text(t->body, "", path, 1, PATH_MAX_BYTES, &t->path, err) < 0 || check_path(t->path, path, err) < 0 ||
        body_flag(t, "parents", FILES_PARENTS, &t->flags, err) < 0)
        return -1;
    return body_flag(t, "exclusive", FILES_EXCL, &t->flags, err);
}

static void start_mkdir(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_mkdir(box, t->path, 0, t->flags, &change_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void mkdir_(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "path", "parents", "exclusive", NULL };
    struct transfer *t = transfer_new(req, ctx, (const char *const[]){ NULL });
    struct err err = { 0 };

    if (!t)
        return;
    t->path = NULL;
    if (read_names(t, names, "path", &err) < 0)
        refuse(t, &err);
    else
        begin(t, start_mkdir);
}

static void start_move(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_move(box, t->path, t->to, t->flags, &change_ops, t, &t->job, &err) < 0)
        refuse(t, &err);
}

static void move_(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "from", "to", "parents", "exclusive", NULL };
    struct transfer *t = transfer_new(req, ctx, (const char *const[]){ NULL });
    struct err err = { 0 };

    if (!t)
        return;
    t->path = NULL;
    if (read_names(t, names, "from", &err) < 0 || body_text(t->body, "", "to", 1, PATH_MAX_BYTES, &t->to, &err) < 0 ||
        check_path(t->to, "to", &err) < 0)
        refuse(t, &err);
    else
        begin(t, start_move);
}

#define FILES "/v1/sandboxes/{sandboxId}/files"
#define JSON_BODY HTTP_BODY_BUFFERED, 64 * KIB, "application/json"

const struct http_route file_routes[] = {
    { "GET", FILES, read_, HTTP_BODY_NONE, .data = &api_files },
    { "PUT", FILES, write_, HTTP_BODY_STREAMED, .data = &api_files },
    { "DELETE", FILES, remove_, HTTP_BODY_NONE, .data = &api_files },
    { "GET", FILES "/list", list, HTTP_BODY_NONE, .data = &api_files },
    { "GET", FILES "/stat", stat_, HTTP_BODY_NONE, .data = &api_files },
    { "POST", FILES "/mkdir", mkdir_, JSON_BODY, &api_files },
    { "POST", FILES "/move", move_, JSON_BODY, &api_files },
    { "GET", FILES "/tar", tar_out, HTTP_BODY_NONE, .data = &api_files },
    { "PUT", FILES "/tar", tar_in, HTTP_BODY_STREAMED, .data = &api_files },
    { 0 },
};
