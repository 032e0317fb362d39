/* /v1/sandboxes/{sandboxId}/files: everything happens inside the sandbox, by its runtime, as its user. Here bytes go
 * from one side to the other, as fast as the slower of the two takes them. */
#include "api/transfer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>

#define PATH_MAX_BYTES 4000u
#define LIST_MAX 10000u
#define LIST_PRESET 1000u
#define LIST_SCAN_MAX 1000000u /* all of a directory is read for a page */

void transfer_free(struct transfer *t)
{
    files_free(t->job);
    live_done(&t->live);
    ev_timer_clear(t->api->set.ev, &t->heartbeat);
    if (t->used)
        manager_release(t->api->set.manager, t->sandbox);
    json_decref(t->body);
    listing_done(&t->listing);
    buf_done(&t->out);
    free(t);
}

void transfer_refuse(struct transfer *t, const struct err *err)
{
    struct err why = *err;

    if (why.id == ERR_LIMIT && (why.sys == ENOSPC || why.sys == EDQUOT))
        why.id = ERR_SANDBOX_FULL;
    http_on_gone(t->req, NULL, NULL);
    http_answer_err(t->req, &why);
    transfer_free(t);
}

/* The client is gone while an answer is made or sent: nobody wants the rest. */
void transfer_gone(void *arg)
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
        transfer_refuse(t, err);
        return;
    }
    t->used = true;
    t->start(t, box);
}

void transfer_begin(struct transfer *t, void (*start)(struct transfer *t, struct box *box))
{
    t->start = start;
    manager_use(t->api->set.manager, api_sees(t->req), t->sandbox, on_box, t);
}

int transfer_check_path(const char *path, const char *name, struct err *err)
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
    const char *id;

    t->req = req;
    t->api = api;
    t->path = http_query(req, "path");
    if (http_query_only(req, query, &err) == 0 && api_sandbox_id(req, &id, &err) == 0) {
        str_copy(t->sandbox, sizeof(t->sandbox), id);
        return t;
    }
    transfer_refuse(t, &err);
    return NULL;
}

struct transfer *transfer_of_path(struct http_req *req, struct api *api, const char *const *query)
{
    struct transfer *t = transfer_new(req, api, query);
    struct err err = { 0 };

    if (t && transfer_check_path(t->path, "path", &err) < 0) {
        transfer_refuse(t, &err);
        return NULL;
    }
    return t;
}

/* --- entries --- */

const char *transfer_kind(char kind)
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
    jsonw_kstr(w, "kind", transfer_kind(e->kind));
    snprintf(mode, sizeof(mode), "%04o", e->mode & 07777u);
    jsonw_kstr(w, "mode", mode);
    jsonw_ku64(w, "sizeBytes", e->size);
    api_time(w, "modifiedAt", max_u64(e->mtime_ns / NS_PER_MS, 1));
    if (e->kind == 'l')
        jsonw_kstr(w, "target", e->target);
    jsonw_end_object(w);
}

void transfer_answer(struct transfer *t)
{
    struct buf out = t->out;

    t->out = (struct buf){ 0 };
    http_on_gone(t->req, NULL, NULL);
    http_answer_json(t->req, 200, &out);
    transfer_free(t);
}

static void on_entry(void *arg, const struct files_entry *e)
{
    struct transfer *t = arg;

    json_entry(e, &t->w);
}

static void on_listed_entry(void *arg, const struct files_entry *e)
{
    struct transfer *t = arg;

    listing_add(&t->listing, e);
}

static void on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct transfer *t = arg;
    auto_buf cursor = { 0 };
    struct err large = { 0 };

    if (!err && d->truncated) {
        err_set(&large, ERR_LIMIT, "%.150s has more than %u entries; read it as tar", t->path, LIST_SCAN_MAX);
        err = &large;
    }
    if (err) {
        transfer_refuse(t, err);
        return;
    }
    bool more = listing_end(&t->listing, &cursor);
    for (size_t i = 0; i < t->listing.n; i++)
        json_entry(t->listing.heap[i], &t->w);
    jsonw_end_array(&t->w);
    jsonw_kbool(&t->w, "truncated", more);
    if (more)
        jsonw_kstr(&t->w, "nextCursor", cursor.data);
    jsonw_end_object(&t->w);
    transfer_answer(t);
}

static void start_list(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_entry = on_listed_entry, .on_done = on_listed };
    struct err err = { 0 };

    jsonw_init(&t->w, &t->out, 0);
    jsonw_object(&t->w);
    jsonw_kstr(&t->w, "path", t->path);
    jsonw_key(&t->w, "entries");
    jsonw_array(&t->w);
    http_on_gone(t->req, transfer_gone, t);
    if (files_list(box, t->path, LIST_SCAN_MAX, &ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
}

static void list(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "limit", "cursor", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (http_query_u64(req, "limit", 1, LIST_MAX, LIST_PRESET, &t->limit, &err) < 0 ||
        listing_init(&t->listing, t->limit, http_query(req, "cursor"), &err) < 0)
        transfer_refuse(t, &err);
    else
        transfer_begin(t, start_list);
}

static void on_statted(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    if (err)
        transfer_refuse(arg, err);
    else
        transfer_answer(arg);
}

static void start_stat(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_entry = on_entry, .on_done = on_statted };
    struct err err = { 0 };

    jsonw_init(&t->w, &t->out, 0);
    http_on_gone(t->req, transfer_gone, t);
    if (files_stat(box, t->path, &ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
}

static void stat_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);

    if (t)
        transfer_begin(t, start_stat);
}

/* --- names --- */

int transfer_flag(const struct http_req *req, const char *name, uint32_t bit, uint32_t *flags, struct err *err)
{
    bool on;

    if (http_query_bool(req, name, false, &on, err) < 0)
        return -1;
    *flags |= on ? bit : 0;
    return 0;
}

static void on_changed(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;

    if (err) {
        transfer_refuse(t, err);
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
        transfer_refuse(t, &err);
}

static void remove_(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "recursive", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (transfer_flag(req, "recursive", FILES_RECURSIVE, &t->flags, &err) < 0)
        transfer_refuse(t, &err);
    else
        transfer_begin(t, start_remove);
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
        body_text(t->body, "", path, 1, PATH_MAX_BYTES, &t->path, err) < 0 ||
        transfer_check_path(t->path, path, err) < 0 || body_flag(t, "parents", FILES_PARENTS, &t->flags, err) < 0)
        return -1;
    api_audit_target(t->req, "path", t->path ? t->path : "");
    return body_flag(t, "exclusive", FILES_EXCL, &t->flags, err);
}

static void start_mkdir(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_mkdir(box, t->path, 0, t->flags, &change_ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
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
        transfer_refuse(t, &err);
    else
        transfer_begin(t, start_mkdir);
}

static void start_move(struct transfer *t, struct box *box)
{
    struct err err = { 0 };

    if (files_move(box, t->path, t->to, t->flags, &change_ops, t, &t->job, &err) < 0)
        transfer_refuse(t, &err);
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
        transfer_check_path(t->to, "to", &err) < 0) {
        transfer_refuse(t, &err);
    } else {
        api_audit_target(req, "to", t->to ? t->to : "");
        transfer_begin(t, start_move);
    }
}

#define FILES "/v1/sandboxes/{sandboxId}/files"
#define JSON_BODY HTTP_BODY_BUFFERED, 64 * KIB, "application/json"

const struct http_route file_routes[] = {
    { "GET", FILES, bytes_read, HTTP_BODY_NONE, .data = &api_file_get },
    { "PUT", FILES, bytes_write, HTTP_BODY_STREAMED, .data = &api_file_put },
    { "DELETE", FILES, remove_, HTTP_BODY_NONE, .data = &api_files },
    { "GET", FILES "/list", list, HTTP_BODY_NONE, .data = &api_files_read },
    { "GET", FILES "/stat", stat_, HTTP_BODY_NONE, .data = &api_files_read },
    { "POST", FILES "/mkdir", mkdir_, JSON_BODY, &api_files },
    { "POST", FILES "/move", move_, JSON_BODY, &api_files },
    { "GET", FILES "/watch", watch_files, HTTP_BODY_NONE, .data = &api_files_read },
    { "GET", FILES "/tar", bytes_tar_out, HTTP_BODY_NONE, .data = &api_files_read },
    { "PUT", FILES "/tar", bytes_tar_in, HTTP_BODY_STREAMED, .data = &api_files },
    { 0 },
};
