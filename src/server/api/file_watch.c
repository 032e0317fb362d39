/* /v1/sandboxes/{sandboxId}/files/watch: streams changes of files.
 *
 * The response begins when the sandbox confirms the watch, so a path that cannot be watched is an
 * ordinary error. A client that does not read applies back-pressure to the sandbox's runtime and
 * uses no memory here; events that do not fit into the runtime's buffer are reported as `overflow`.
 * A watch does not count as use: it does not keep a sandbox from becoming idle, and does not wake
 * it up later. */
#include "server/api/file_transfer.h"

#include "core/base/str.h"
#include "core/base/text.h"

static void file_watch_on_room(void *arg)
{
    struct file_transfer *t = arg;

    sandbox_files_hold_credit(t->job, false);
}

static void file_watch_end(void *arg, const struct err *why)
{
    struct file_transfer *t = arg;

    message_stream_end(&t->messages, NULL, why);
    file_transfer_free(t);
}

static void file_watch_begin_answer(struct file_transfer *t)
{
    t->answer_begun = true;
    open_stream_register(&t->open_stream, t->api->settings.gateway, gateway_principal(t->req), file_watch_end, t);
    t->open_stream.is_endless = true;
    http_on_room(t->req, file_watch_on_room, t);
    message_stream_begin(&t->messages, t->req, t->api->settings.ev, follow_mode_of_request(t->req) == FOLLOW_EVENTS);
}

static void file_watch_write_path(struct jsonw *w, const char *key, const char *key64, const char *path)
{
    auto_buf coded = { 0 };

    jsonw_kstr(w, key, path);
    if (text_is_utf8(path, strlen(path)))
        return;
    text_base64(&coded, path, strlen(path));
    jsonw_kstr(w, key64, coded.data);
}

static void file_watch_on_event(void *arg, const struct files_event *e)
{
    static const char *const types[] = { "watching", "created", "modified", "removed", "moved", "overflow" };
    struct file_transfer *t = arg;
    auto_buf out = { 0 };
    struct jsonw w;

    if (!t->answer_begun)
        file_watch_begin_answer(t);
    message_begin(&w, &out, types[e->kind]);
    if (e->kind != FILES_OVERFLOW) {
        file_watch_write_path(&w, "path", "pathBase64", e->path);
        if (e->from)
            file_watch_write_path(&w, "from", "fromBase64", e->from);
        jsonw_kbool(&w, "directory", e->is_directory);
    }
    jsonw_end_object(&w);
    if (!message_stream_send(&t->messages, NULL, types[e->kind], &out))
        sandbox_files_hold_credit(t->job, true);
}

static void file_watch_on_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct file_transfer *t = arg;
    struct err missing;

    err_set(&missing, ERR_MISSING, "path: it was removed in the meantime");
    if (t->answer_begun)
        file_watch_end(t, err);
    else
        file_transfer_refuse(t, err ? err : &missing);
}

void file_watch_start(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "recursive", NULL };
    static const struct sandbox_files_ops ops = { .files.on_event = file_watch_on_event,
                                                  .files.on_done = file_watch_on_done };
    struct file_transfer *t = file_transfer_from_query(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    if (file_transfer_read_flag(t, "recursive", FILES_RECURSIVE, &err) < 0)
        file_transfer_refuse(t, &err);
    else
        file_transfer_begin(t, FILES_OP_WATCH, &ops);
}
