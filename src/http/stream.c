/* Bodies made while they are sent. The writer's bytes wait in one buffer per request, which the daemon empties as the
 * client takes them (read_stream in send.c). The buffer's high mark is a request to the writer, not a wall: a writer
 * who cannot stop in the middle of something may finish it. */
#include "http/inside.h"

#include "base/str.h"

#define BEAT_MS 15000

static void compact(struct http_req *req)
{
    if (req->out_at >= req->out.len / 2 && req->out_at > 0) {
        buf_drop(&req->out, req->out_at);
        req->out_at = 0;
    }
}

size_t http_stream_room(const struct http_req *req)
{
    size_t waiting = req->out.len - req->out_at;

    return waiting < HTTP_STREAM_HIGH ? HTTP_STREAM_HIGH - waiting : 0;
}

bool http_stream_write(struct http_req *req, const void *data, size_t len)
{
    if (!req->conn)
        return true;
    compact(req);
    buf_add(&req->out, data, len);
    serve_more(req);
    req->full = http_stream_room(req) == 0;
    return !req->full;
}

void http_on_room(struct http_req *req, void (*fn)(void *arg), void *arg)
{
    req->on_room = fn;
    req->room_arg = arg;
}

static void finish(struct http_req *req, bool broken)
{
    req->finished = true;
    req->broken = broken;
    if (req->conn) {
        ev_timer_clear(req->s->ev, &req->beat);
        serve_more(req);
    } else {
        req_release(req);
    }
}

void http_stream_end(struct http_req *req)
{
    finish(req, false);
}

void http_stream_break(struct http_req *req)
{
    finish(req, true);
}

/* messages */

void http_answer_ndjson(struct http_req *req, int status)
{
    http_set_header(req, "X-Accel-Buffering", "no"); /* a proxy in front must not wait for more */
    http_answer_stream(req, status, "application/x-ndjson", HTTP_UNTIL_END);
}

bool http_ndjson(struct http_req *req, const struct buf *json)
{
    http_stream_write(req, json->data, json->len);
    return http_stream_write(req, "\n", 1);
}

static void on_beat(void *arg)
{
    struct http_req *req = arg;

    http_stream_write(req, ":\n\n", 3);
    ev_timer_set(req->s->ev, &req->beat, ev_now(req->s->ev) + BEAT_MS * NS_PER_MS, on_beat, req);
}

void http_answer_events(struct http_req *req)
{
    http_set_header(req, "X-Accel-Buffering", "no");
    http_answer_stream(req, 200, "text/event-stream", HTTP_UNTIL_END);
    if (req->conn)
        ev_timer_set(req->s->ev, &req->beat, ev_now(req->s->ev) + BEAT_MS * NS_PER_MS, on_beat, req);
}

/* A field is one line: what could begin another is left out of names, and splits data into lines that the reader joins.
 */
static void add_field(struct buf *out, const char *field, const char *value)
{
    size_t n = strcspn(value, "\r\n");

    buf_addf(out, "%s: ", field);
    buf_add(out, value, n);
    buf_add(out, "\n", 1);
}

bool http_event(struct http_req *req, const char *id, const char *event, const char *data)
{
    auto_buf text = { 0 };

    if (!req->conn)
        return true;
    if (id)
        add_field(&text, "id", id);
    if (event)
        add_field(&text, "event", event);
    for (;;) {
        add_field(&text, "data", data);
        data += strcspn(data, "\r\n");
        if (!*data)
            break;
        data += data[0] == '\r' && data[1] == '\n' ? 2 : 1;
    }
    buf_add(&text, "\n", 1);
    ev_timer_set(req->s->ev, &req->beat, ev_now(req->s->ev) + BEAT_MS * NS_PER_MS, on_beat, req);
    return http_stream_write(req, text.data, text.len);
}
