/* /v1/gc and /v1/backup: for those who run the server.
 *
 * A backup is made beside the database, under a name that it loses as soon as it is open, and is then sent like any
 * file: a client that is slow or goes away holds up nothing, and leaves nothing behind. It goes out piece by piece from
 * here, because whoever asked for it may stop to be allowed to have it. */
#include "api/inside.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"

#include <fcntl.h>
#include <sys/stat.h>

#define PIECE (64 * KIB)

/* --- gc --- */

struct sweep {
    struct http_req *req;
    bool dry;
};

static void on_swept(void *arg, const struct err *err, const struct manager_gc *removed)
{
    auto_free struct sweep *s = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (err) {
        http_answer_err(s->req, err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kbool(&w, "dryRun", s->dry);
    jsonw_ku64(&w, "executions", removed->executions);
    jsonw_ku64(&w, "outputBytes", removed->output_bytes);
    jsonw_ku64(&w, "sandboxes", removed->sandboxes);
    jsonw_ku64(&w, "events", removed->events);
    jsonw_ku64(&w, "idempotencyKeys", removed->idem);
    jsonw_ku64(&w, "usageRows", removed->usage);
    jsonw_ku64(&w, "strayFiles", removed->stray_files);
    jsonw_ku64(&w, "strayBytes", removed->stray_bytes);
    jsonw_end_object(&w);
    http_answer_json(s->req, 200, &out);
}

static int read_sweep(const struct http_req *req, bool *dry, struct err *err)
{
    static const char *const names[] = { "dryRun", NULL };
    auto_json *body = NULL;
    size_t len;

    if (api_no_query(req, err) < 0)
        return -1;
    (void)http_body(req, &len);
    if (len == 0)
        return 0;
    if (api_body(req, &body, err) < 0 || body_only(body, "", names, err) < 0)
        return -1;
    return body_bool(body, "", "dryRun", dry, err);
}

static void gc(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_retention keep = { 0 };
    struct err err = { 0 };
    bool dry = false;

    if (read_sweep(req, &dry, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct sweep *s = mem_new(struct sweep);
    s->req = req;
    s->dry = dry;
    if (api->set.retention)
        api->set.retention(api->set.arg, &keep);
    keep.rehearse = dry;
    manager_gc(api->set.manager, &keep, true, on_swept, s);
}

/* --- backup --- */

struct saving {
    struct http_req *req; /* NULL: it was refused meanwhile */
    struct api *api;
    char *path;
    int fd;
    uint64_t at, end;
    struct api_live live;
};

static void saving_free(struct saving *s)
{
    live_done(&s->live);
    fd_close(&s->fd);
    free(s->path);
    free(s);
}

static void pump(void *arg)
{
    struct saving *s = arg;
    char data[PIECE] __attribute__((uninitialized));

    while (s->at < s->end) {
        ssize_t n = pread(s->fd, data, (size_t)min_u64(s->end - s->at, sizeof(data)), (off_t)s->at);

        if (n <= 0)
            break;
        s->at += (uint64_t)n;
        if (!http_stream_write(s->req, data, (size_t)n) && s->at < s->end)
            return;
    }
    http_on_gone(s->req, NULL, NULL);
    if (s->at < s->end)
        http_stream_break(s->req);
    else
        http_stream_end(s->req);
    saving_free(s);
}

static void on_gone(void *arg)
{
    struct saving *s = arg;

    http_stream_end(s->req);
    saving_free(s);
}

/* Whoever asked may not any more: a copy that is under way is broken off, one that is being made is nobody's. */
static void on_refused(void *arg, const struct err *why)
{
    struct saving *s = arg;

    if (s->fd >= 0) {
        http_on_gone(s->req, NULL, NULL);
        http_stream_break(s->req);
        saving_free(s);
        return;
    }
    http_answer_err(s->req, why);
    s->req = NULL;
}

/* As a whole: the next copy would be another one, and parts of two do not go together. */
static void begin_stream(struct saving *s, int fd, uint64_t size)
{
    s->fd = fd;
    s->end = size;
    http_set_filename(s->req, "cove-backup.db");
    http_on_gone(s->req, on_gone, s);
    http_on_room(s->req, pump, s);
    http_answer_stream(s->req, 200, "application/vnd.sqlite3", size);
    pump(s);
}

static void on_saved(void *arg, const struct err *err)
{
    struct saving *s = arg;
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
        begin_stream(s, take_fd(&fd), (uint64_t)st.st_size);
        return;
    }
    if (s->req)
        http_answer_err(s->req, &why);
    saving_free(s);
}

static void backup(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0) {
        if (!api->set.scratch)
            err_set(&err, ERR_NOT_SUPPORTED_YET, "this server has no place for a backup");
        else if (api->backing_up)
            err_set(&err, ERR_BUSY, "another backup is being made");
    }
    if (err.id != ERR_NONE) {
        http_answer_err(req, &err);
        return;
    }
    struct saving *s = mem_new(struct saving);
    s->req = req;
    s->api = api;
    s->fd = -1;
    s->path = str_printf("%s/backup.tmp", api->set.scratch);
    unlink(s->path); /* of one that a kill cut short */
    api->backing_up = true;
    live_begin(&s->live, api, api_who(req), on_refused, s);
    store_backup(api->set.store, s->path, on_saved, s);
}

const struct http_route upkeep_routes[] = {
    { "POST", "/v1/gc", gc, HTTP_BODY_BUFFERED, 4 * KIB, "application/json", &api_admin },
    { "GET", "/v1/backup", backup, HTTP_BODY_NONE, .data = &api_admin },
    { 0 },
};
