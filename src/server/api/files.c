/* /v1/sandboxes/{sandboxId}/files: the sandbox's runtime carries out every operation, inside the
 * sandbox and as its user. The server only passes bytes on, at the speed of the slower side. */
#include "server/api/file_transfer.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <errno.h>
#include <stdio.h>

#define PATH_MAX_BYTES 4000u
#define LIST_MAX 10000u
#define LIST_PRESET 1000u
#define LIST_SCAN_MAX 1000000u /* entries; each page reads the whole directory */

void file_transfer_free(struct file_transfer *t)
{
    sandbox_files_free(t->job);
    open_stream_unregister(&t->open_stream);
    message_stream_done(&t->messages);
    json_decref(t->body);
    directory_page_done(&t->page);
    buf_done(&t->out);
    free(t);
}

void file_transfer_refuse(struct file_transfer *t, const struct err *err)
{
    struct err why = *err;

    if (why.id == ERR_LIMIT && (why.sys == ENOSPC || why.sys == EDQUOT))
        why.id = ERR_SANDBOX_FULL;
    if (t->body_begun)
        http_discard_body(t->req);
    http_on_client_gone(t->req, NULL, NULL);
    http_answer_err(t->req, &why);
    file_transfer_free(t);
}

/* The client disconnected before the response was complete: stop the operation. */
void file_transfer_on_client_gone(void *arg)
{
    struct file_transfer *t = arg;

    if (t->answer_begun)
        http_stream_end(t->req);
    else
        http_answer_empty(t->req, 204);
    file_transfer_free(t);
}

void file_transfer_begin(struct file_transfer *t, enum files_operation operation, const struct sandbox_files_ops *ops)
{
    t->request.files.operation = operation;
    t->request.owner = gateway_visible_owner(t->req);
    if (str_eq(http_route(t->req)->method, "GET")) /* a change is carried out even if the client disconnects */
        http_on_client_gone(t->req, file_transfer_on_client_gone, t);
    sandbox_files_open(t->api->settings.manager, &t->request, ops, t, &t->job);
}

/* Makes *path absolute; the request keeps the text. */
static int file_transfer_resolve_path(struct http_req *req, const char *name, const char **path, struct err *err)
{
    if (!*path)
        return err_set(err, ERR_INVALID, "%s: required", name);
    if (**path == '\0')
        return err_set(err, ERR_INVALID, "%s: is empty; give a path, such as data.csv or /workspace/data.csv", name);
    if (**path != '/') {
        char *full = str_printf("/workspace/%s", *path);

        http_free_with_request(req, full, free);
        *path = full;
    }
    if (strlen(*path) > PATH_MAX_BYTES)
        return err_set(err, ERR_INVALID, "%s: longer than %u bytes", name, PATH_MAX_BYTES);
    return 0;
}

int file_transfer_read_body_path(struct http_req *req, const json_t *body, const char *name, const char **ret,
                                 struct err *err)
{
    if (json_input_text(body, "", name, 1, PATH_MAX_BYTES, ret, err) < 0)
        return -1;
    return file_transfer_resolve_path(req, name, ret, err);
}

/* NULL: the request was refused. */
static struct file_transfer *file_transfer_new(struct http_req *req, struct api *api, const char *const *query)
{
    struct file_transfer *t = mem_new(struct file_transfer);
    struct err err = { 0 };

    t->req = req;
    t->api = api;
    t->request.files.path = http_query(req, "path");
    if (http_query_require_known(req, query, &err) == 0 && api_read_sandbox_id(req, &t->request.sandbox, &err) == 0)
        return t;
    file_transfer_refuse(t, &err);
    return NULL;
}

struct file_transfer *file_transfer_from_query(struct http_req *req, struct api *api, const char *const *query)
{
    struct file_transfer *t = file_transfer_new(req, api, query);
    struct err err = { 0 };

    if (t && file_transfer_resolve_path(req, "path", &t->request.files.path, &err) < 0) {
        file_transfer_refuse(t, &err);
        return NULL;
    }
    return t;
}

/* --- entries --- */

const char *file_transfer_kind_name(char kind)
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

static void api_file_write_entry(const struct files_entry *e, struct jsonw *w)
{
    char mode[8];

    jsonw_object(w);
    jsonw_kstr(w, "name", e->name);
    if (!text_is_utf8(e->name, strlen(e->name))) {
        auto_buf coded = { 0 };

        text_base64(&coded, e->name, strlen(e->name));
        jsonw_kstr(w, "nameBase64", coded.data);
    }
    jsonw_kstr(w, "kind", file_transfer_kind_name(e->kind));
    snprintf(mode, sizeof(mode), "%04o", e->mode & 07777u);
    jsonw_kstr(w, "mode", mode);
    jsonw_ku64(w, "sizeBytes", e->size);
    api_write_time(w, "modifiedAt", max_u64(e->mtime_ns / NS_PER_MS, 1));
    if (e->kind == 'l')
        jsonw_kstr(w, "target", e->target);
    jsonw_end_object(w);
}

void file_transfer_answer(struct file_transfer *t)
{
    struct buf out = t->out;

    t->out = (struct buf){ 0 };
    http_on_client_gone(t->req, NULL, NULL);
    http_answer_json(t->req, 200, &out);
    file_transfer_free(t);
}

static void api_file_on_stat_entry(void *arg, const struct files_entry *e)
{
    struct file_transfer *t = arg;
    struct jsonw w;

    jsonw_init(&w, &t->out, 0);
    api_file_write_entry(e, &w);
}

static void api_file_on_listed_entry(void *arg, const struct files_entry *e)
{
    struct file_transfer *t = arg;

    directory_page_add(&t->page, e);
}

static void api_file_on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct file_transfer *t = arg;
    auto_buf cursor = { 0 };
    struct err large = { 0 };
    struct jsonw w;

    if (!err && d->truncated) {
        err_set(&large, ERR_LIMIT, "%.150s has more than %u entries; read it with files/tar", t->request.files.path,
                LIST_SCAN_MAX);
        err = &large;
    }
    if (err) {
        file_transfer_refuse(t, err);
        return;
    }
    bool more = directory_page_finish(&t->page, &cursor);
    api_page_begin(&w, &t->out);
    for (size_t i = 0; i < t->page.n; i++)
        api_file_write_entry(t->page.heap[i], &w);
    api_page_end(&w, more ? cursor.data : NULL);
    file_transfer_answer(t);
}

static void api_file_list(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "limit", "cursor", NULL };
    static const struct sandbox_files_ops ops = { .files.on_entry = api_file_on_listed_entry,
                                                  .files.on_done = api_file_on_listed };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);
    struct err err = { 0 };
    uint64_t limit;

    if (!t)
        return;
    t->request.files.length = LIST_SCAN_MAX;
    if (http_query_u64(req, "limit", 1, LIST_MAX, LIST_PRESET, &limit, &err) < 0 ||
        directory_page_init(&t->page, limit, http_query(req, "cursor"), &err) < 0)
        file_transfer_refuse(t, &err);
    else
        file_transfer_begin(t, FILES_OP_LIST, &ops);
}

static void api_file_on_stat_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    if (err)
        file_transfer_refuse(arg, err);
    else
        file_transfer_answer(arg);
}

static void api_file_stat(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", NULL };
    static const struct sandbox_files_ops ops = { .files.on_entry = api_file_on_stat_entry,
                                                  .files.on_done = api_file_on_stat_done };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);

    if (t)
        file_transfer_begin(t, FILES_OP_STAT, &ops);
}

/* --- operations on names --- */

int file_transfer_read_flag(struct file_transfer *t, const char *name, uint32_t bit, struct err *err)
{
    bool on;

    if (http_query_bool(t->req, name, bit == FILES_PARENTS, &on, err) < 0)
        return -1;
    t->request.files.flags |= on ? bit : 0;
    return 0;
}

static void api_file_on_changed(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct file_transfer *t = arg;

    if (err) {
        file_transfer_refuse(t, err);
        return;
    }
    http_on_client_gone(t->req, NULL, NULL);
    http_answer_empty(t->req, 204);
    file_transfer_free(t);
}

static const struct sandbox_files_ops api_file_change_ops = { .files.on_done = api_file_on_changed };

static void api_file_remove(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "recursive", NULL };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (file_transfer_read_flag(t, "recursive", FILES_RECURSIVE, &err) < 0)
        file_transfer_refuse(t, &err);
    else
        file_transfer_begin(t, FILES_OP_REMOVE, &api_file_change_ops);
}

static int api_file_read_body_flag(struct file_transfer *t, const char *name, uint32_t bit, struct err *err)
{
    bool on = bit == FILES_PARENTS;

    if (json_input_bool(t->body, "", name, &on, err) < 0)
        return -1;
    t->request.files.flags |= on ? bit : 0;
    return 0;
}

static int api_file_read_paths(struct file_transfer *t, const char *const *names, const char *path, struct err *err)
{
    if (api_read_body(t->req, &t->body, err) < 0 || json_input_require_known_fields(t->body, "", names, err) < 0 ||
        file_transfer_read_body_path(t->req, t->body, path, &t->request.files.path, err) < 0 ||
        api_file_read_body_flag(t, "parents", FILES_PARENTS, err) < 0)
        return -1;
    audit_trail_add_target(t->req, "path", t->request.files.path);
    return api_file_read_body_flag(t, "exclusive", FILES_EXCL, err);
}

static void api_file_mkdir(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "path", "parents", "exclusive", NULL };
    struct file_transfer *t = file_transfer_new(req, ctx, (const char *const[]){ NULL });
    struct err err = { 0 };

    if (!t)
        return;
    if (api_file_read_paths(t, names, "path", &err) < 0)
        file_transfer_refuse(t, &err);
    else
        file_transfer_begin(t, FILES_OP_MKDIR, &api_file_change_ops);
}

static void api_file_move(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "from", "to", "parents", "exclusive", NULL };
    struct file_transfer *t = file_transfer_new(req, ctx, (const char *const[]){ NULL });
    struct err err = { 0 };

    if (!t)
        return;
    if (api_file_read_paths(t, names, "from", &err) < 0 ||
        file_transfer_read_body_path(req, t->body, "to", &t->request.files.move_to, &err) < 0) {
        file_transfer_refuse(t, &err);
    } else {
        audit_trail_add_target(req, "to", t->request.files.move_to);
        file_transfer_begin(t, FILES_OP_MOVE, &api_file_change_ops);
    }
}

#define FILES "/v1/sandboxes/{sandboxId}/files"
#define JSON_BODY HTTP_BODY_BUFFERED, 64 * KIB, "application/json"

const struct http_route file_routes[] = {
    { "GET", FILES, file_content_read, HTTP_BODY_NONE, .data = &permission_file_download },
    { "PUT", FILES, file_content_write, HTTP_BODY_STREAMED, .data = &permission_file_upload },
    { "DELETE", FILES, api_file_remove, HTTP_BODY_NONE, .data = &permission_files },
    { "GET", FILES "/list", api_file_list, HTTP_BODY_NONE, .data = &permission_files_read },
    { "GET", FILES "/stat", api_file_stat, HTTP_BODY_NONE, .data = &permission_files_read },
    { "POST", FILES "/mkdir", api_file_mkdir, JSON_BODY, &permission_files },
    { "POST", FILES "/move", api_file_move, JSON_BODY, &permission_files },
    { "GET", FILES "/watch", file_watch_start, HTTP_BODY_NONE, .data = &permission_files_read },
    { "GET", FILES "/tar", file_content_read_tar, HTTP_BODY_NONE, .data = &permission_files_read },
    { "PUT", FILES "/tar", file_content_write_tar, HTTP_BODY_STREAMED, .data = &permission_files },
    { 0 },
};
