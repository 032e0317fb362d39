/* /v1/maintenance/gc and /v1/maintenance/backup, for the operator of the server.
 *
 * A backup is written to a temporary file next to the database. The file is unlinked as soon as it
 * is open and then sent in pieces, so a slow or disconnected client blocks nothing and leaves no
 * file. This file sends the pieces itself because the stream must stop when the client's credential
 * is revoked. */
#include "server/api/api_internal.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <sys/stat.h>

#define PIECE (64 * KIB)

/* --- gc --- */

struct gc_request {
    struct http_req *req;
    bool is_dry_run;
};

static void gc_on_done(void *arg, const struct err *err, const struct manager_gc *removed)
{
    struct gc_request *s = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (http_answer_if_err(s->req, err))
        return;
    api_object_begin(&w, &out);
    jsonw_kbool(&w, "dryRun", s->is_dry_run);
    jsonw_ku64(&w, "executions", removed->executions);
    jsonw_ku64(&w, "outputBytes", removed->output_bytes);
    jsonw_ku64(&w, "sandboxes", removed->sandboxes);
    jsonw_ku64(&w, "events", removed->events);
    jsonw_ku64(&w, "idempotencyKeys", removed->idem);
    jsonw_ku64(&w, "usageRows", removed->usage);
    jsonw_ku64(&w, "scripts", removed->scripts);
    jsonw_ku64(&w, "strayFiles", removed->stray_files);
    jsonw_ku64(&w, "strayBytes", removed->stray_bytes);
    api_object_end(s->req, 200, &w);
}

static int gc_read_request(const struct http_req *req, bool *dry, struct err *err)
{
    static const char *const names[] = { "dryRun", NULL };
    auto_json *body = NULL;
    size_t len;

    if (http_query_require_none(req, err) < 0)
        return -1;
    (void)http_body(req, &len);
    if (len == 0)
        return 0;
    if (api_read_body(req, &body, err) < 0 || json_input_require_known_fields(body, "", names, err) < 0)
        return -1;
    return json_input_bool(body, "", "dryRun", dry, err);
}

static void api_gc(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_retention keep = { 0 };
    struct err err = { 0 };
    bool dry = false;

    if (gc_read_request(req, &dry, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct gc_request *s = api_request_new(req, struct gc_request);
    s->req = req;
    s->is_dry_run = dry;
    if (api->settings.get_retention)
        api->settings.get_retention(api->settings.arg, &keep);
    keep.dry_run = dry;
    retention_run(manager_retention(api->settings.manager), &keep, true, gc_on_done, s);
}

/* --- backup --- */

struct backup_stream {
    struct http_req *req; /* NULL: the request was refused while the backup was being written */
    struct api *api;
    char *path;
    int fd;
    uint64_t position, end;
    struct open_stream open_stream;
};

static void backup_stream_free(struct backup_stream *s)
{
    open_stream_unregister(&s->open_stream);
    fd_close(&s->fd);
    free(s->path);
    free(s);
}

static void backup_stream_pump(void *arg)
{
    struct backup_stream *s = arg;
    char data[PIECE] __attribute__((uninitialized));

    while (s->position < s->end) {
        ssize_t n = pread(s->fd, data, (size_t)min_u64(s->end - s->position, sizeof(data)), (off_t)s->position);

        if (n <= 0)
            break;
        s->position += (uint64_t)n;
        if (!http_stream_write(s->req, data, (size_t)n) && s->position < s->end)
            return;
    }
    http_on_client_gone(s->req, NULL, NULL);
    if (s->position < s->end)
        http_stream_break(s->req);
    else
        http_stream_end(s->req);
    backup_stream_free(s);
}

static void backup_stream_on_client_gone(void *arg)
{
    struct backup_stream *s = arg;

    http_stream_end(s->req);
    backup_stream_free(s);
}

/* The credential was revoked: a backup being sent is aborted; one being written is dropped when it
 * is complete. */
static void backup_stream_on_revoked(void *arg, const struct err *why)
{
    struct backup_stream *s = arg;

    if (s->fd >= 0) {
        http_on_client_gone(s->req, NULL, NULL);
        http_stream_break(s->req);
        backup_stream_free(s);
        return;
    }
    http_answer_err(s->req, why);
    s->req = NULL;
}

/* The response does not support ranges: the next backup would be a different file, and parts of two
 * backups do not fit together. */
static void backup_stream_begin(struct backup_stream *s, int fd, uint64_t size)
{
    s->fd = fd;
    s->end = size;
    http_set_filename(s->req, "cove-backup.db");
    http_on_client_gone(s->req, backup_stream_on_client_gone, s);
    http_on_room(s->req, backup_stream_pump, s);
    http_answer_stream(s->req, 200, "application/vnd.sqlite3", size);
    backup_stream_pump(s);
}

static void backup_stream_on_saved(void *arg, const struct err *err)
{
    struct backup_stream *s = arg;
    struct err why = { 0 };
    struct stat st = { 0 };
    auto_fd int fd = err ? -1 : open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    s->api->backing_up = false;
    if (err)
        why = *err;
    else if (fd < 0 || fstat(fd, &st) < 0)
        err_sys(&why, ERR_STORE_FAILED, "opening the backup");
    unlink(s->path);
    if (s->req && why.id == ERR_NONE) {
        backup_stream_begin(s, take_fd(&fd), (uint64_t)st.st_size);
        return;
    }
    if (s->req)
        http_answer_err(s->req, &why);
    backup_stream_free(s);
}

static void api_backup(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0) {
        if (!api->settings.scratch_dir)
            err_set(&err, ERR_NOT_SUPPORTED_YET,
                    "this server has no directory for temporary files, so it cannot make a backup");
        else if (api->backing_up)
            err_set(&err, ERR_BUSY, "another backup is in progress; try again later");
    }
    if (err.id != ERR_NONE) {
        http_answer_err(req, &err);
        return;
    }
    struct backup_stream *s = mem_new(struct backup_stream);
    s->req = req;
    s->api = api;
    s->fd = -1;
    s->path = str_printf("%s/backup.tmp", api->settings.scratch_dir);
    unlink(s->path); /* left by a killed server */
    api->backing_up = true;
    open_stream_register(&s->open_stream, api->settings.gateway, gateway_principal(req), backup_stream_on_revoked, s);
    store_backup(api->settings.store, s->path, backup_stream_on_saved, s);
}

const struct http_route maintenance_routes[] = {
    { "POST", "/v1/maintenance/gc", api_gc, HTTP_BODY_BUFFERED, 4 * KIB, "application/json", &permission_admin },
    { "GET", "/v1/maintenance/backup", api_backup, HTTP_BODY_NONE, .data = &permission_admin },
    { 0 },
};
