/* /v1/sandboxes/{sandboxId}/files/watch: what happens to files, told as it happens.
 *
 * The answer begins when the sandbox says that it watches, so what cannot be watched is an error like any other. A
 * client that does not read holds the sandbox's runtime, not memory here; what does not fit there is told as overflow.
 * Watching is not using: it neither keeps a sandbox from being idle nor wakes it up later. */
#include "api/transfer.h"

#include "base/str.h"
#include "base/text.h"

#define HEARTBEAT_NS (15 * NS_PER_S)

static bool say(struct transfer *t, const char *type, const struct buf *json)
{
    return t->sse ? http_event(t->req, NULL, type, json->data) : http_ndjson(t->req, json);
}

static void on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct transfer *t = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(t->api->set.ev, &t->heartbeat, ev_now(t->api->set.ev) + HEARTBEAT_NS, on_heartbeat, t);
    http_ndjson(t->req, &json);
}

static void on_room(void *arg)
{
    struct transfer *t = arg;

    files_hold(t->job, false);
}

static void finish(struct transfer *t, const struct err *why);

static void on_refused(void *arg, const struct err *why)
{
    finish(arg, why);
}

static void begin(struct transfer *t)
{
    t->begun = true;
    live_begin(&t->live, t->api, api_who(t->req), on_refused, t);
    t->live.endless = true;
    http_on_room(t->req, on_room, t);
    if (t->sse) {
        http_answer_events(t->req);
    } else {
        http_answer_ndjson(t->req, 200);
        ev_timer_set(t->api->set.ev, &t->heartbeat, ev_now(t->api->set.ev) + HEARTBEAT_NS, on_heartbeat, t);
    }
}

static void json_path(struct jsonw *w, const char *key, const char *key64, const char *path)
{
    auto_buf coded = { 0 };

    jsonw_kstr(w, key, path);
    if (text_utf8(path, strlen(path)))
        return;
    text_base64(&coded, path, strlen(path));
    jsonw_kstr(w, key64, coded.data);
}

static void on_event(void *arg, const struct files_event *e)
{
    static const char *const types[] = { "watching", "created", "modified", "removed", "moved", "overflow" };
    struct transfer *t = arg;
    auto_buf out = { 0 };
    struct jsonw w;

    if (!t->begun)
        begin(t);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", types[e->kind]);
    if (e->kind != FILES_OVERFLOW) {
        json_path(&w, "path", "pathBase64", e->path);
        if (e->from)
            json_path(&w, "from", "fromBase64", e->from);
        jsonw_kbool(&w, "directory", e->dir);
    }
    jsonw_end_object(&w);
    if (!say(t, types[e->kind], &out))
        files_hold(t->job, true);
}

static void finish(struct transfer *t, const struct err *err)
{
    auto_buf out = { 0 }, why = { 0 };

    if (err)
        http_error_json(err, http_id(t->req), NULL, NULL, &why);
    buf_adds(&out, "{\"type\":\"end\"");
    if (err) /* {"error":{...}}: its members go into the object of the event */
        buf_addf(&out, ",%s", why.data + 1);
    else
        buf_adds(&out, "}");
    say(t, "end", &out);
    http_on_gone(t->req, NULL, NULL);
    http_stream_end(t->req);
    transfer_free(t);
}

static void on_over(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct transfer *t = arg;
    struct err missing;

    err_set(&missing, ERR_MISSING, "path: it is gone already");
    if (t->begun)
        finish(t, err);
    else
        transfer_refuse(t, err ? err : &missing);
}

static void start(struct transfer *t, struct box *box)
{
    static const struct files_ops ops = { .on_event = on_event, .on_done = on_over };
    struct err err = { 0 };

    http_on_gone(t->req, transfer_gone, t);
    if (files_watch(box, t->path, t->flags, &ops, t, &t->job, &err) < 0) {
        transfer_refuse(t, &err);
        return;
    }
    t->used = false;
    manager_release(t->api->set.manager, t->sandbox);
}

void watch_files(struct http_req *req, void *ctx)
{
    static const char *const query[] = { "path", "recursive", NULL };
    struct transfer *t = transfer_of_path(req, ctx, query);
    struct err err = { 0 };

    if (!t)
        return;
    t->sse = follow_mode(req) == FOLLOW_EVENTS;
    if (transfer_flag(req, "recursive", FILES_RECURSIVE, &t->flags, &err) < 0)
        transfer_refuse(t, &err);
    else
        transfer_begin(t, start);
}
