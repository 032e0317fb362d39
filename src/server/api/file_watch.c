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

#define HEARTBEAT_NS (15 * NS_PER_S)

static bool file_watch_send(struct file_transfer *t, const char *type, const struct buf *json)
{
    return t->is_sse ? http_stream_event(t->req, NULL, type, json->data) : http_stream_ndjson(t->req, json);
}

static void file_watch_on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct file_transfer *t = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(t->api->settings.ev, &t->heartbeat_timer, ev_now(t->api->settings.ev) + HEARTBEAT_NS,
                 file_watch_on_heartbeat, t);
    http_stream_ndjson(t->req, &json);
}

static void file_watch_on_room(void *arg)
{
    struct file_transfer *t = arg;

    sandbox_files_hold_credit(t->job, false);
}

static void file_watch_end(struct file_transfer *t, const struct err *why);

static void file_watch_on_revoked(void *arg, const struct err *why)
{
    file_watch_end(arg, why);
}

static void file_watch_begin_answer(struct file_transfer *t)
{
    t->answer_begun = true;
    open_stream_register(&t->open_stream, t->api->settings.gateway, gateway_principal(t->req), file_watch_on_revoked,
                         t);
    t->open_stream.is_endless = true;
    http_on_room(t->req, file_watch_on_room, t);
    if (t->is_sse) {
        http_answer_events(t->req);
    } else {
        http_answer_ndjson(t->req, 200);
        ev_timer_set(t->api->settings.ev, &t->heartbeat_timer, ev_now(t->api->settings.ev) + HEARTBEAT_NS,
                     file_watch_on_heartbeat, t);
    }
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
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", types[e->kind]);
    if (e->kind != FILES_OVERFLOW) {
        file_watch_write_path(&w, "path", "pathBase64", e->path);
        if (e->from)
            file_watch_write_path(&w, "from", "fromBase64", e->from);
        jsonw_kbool(&w, "directory", e->is_directory);
    }
    jsonw_end_object(&w);
    if (!file_watch_send(t, types[e->kind], &out))
        sandbox_files_hold_credit(t->job, true);
}

static void file_watch_end(struct file_transfer *t, const struct err *err)
{
    auto_buf out = { 0 }, why = { 0 };

    if (err)
        http_error_json(err, http_id(t->req), NULL, NULL, &why);
    buf_adds(&out, "{\"type\":\"end\"");
    if (err) /* {"error":{...}}: its members become members of the event */
        buf_addf(&out, ",%s", why.data + 1);
    else
        buf_adds(&out, "}");
    file_watch_send(t, "end", &out);
    http_on_client_gone(t->req, NULL, NULL);
    http_stream_end(t->req);
    file_transfer_free(t);
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
    t->is_sse = follow_mode_of_request(req) == FOLLOW_EVENTS;
    if (file_transfer_read_flag(t, "recursive", FILES_RECURSIVE, &err) < 0)
        file_transfer_refuse(t, &err);
    else
        file_transfer_begin(t, SANDBOX_FILES_WATCH, &ops);
}
