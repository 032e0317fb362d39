/* Bodies that are produced while they are sent. The writer's bytes wait in one buffer per request,
 * which the daemon empties as the client reads (mhd_response_read_stream()). The high-water mark of
 * the buffer is advisory: a writer that cannot stop in the middle of a record may finish it. */
#include "server/http/http_internal.h"

#include "core/base/str.h"

#define SSE_KEEPALIVE_MS 15000

static void http_stream_compact(struct http_req *req)
{
    if (req->stream_offset >= req->stream_buf.len / 2 && req->stream_offset > 0) {
        buf_drop(&req->stream_buf, req->stream_offset);
        req->stream_offset = 0;
    }
}

size_t http_stream_room(const struct http_req *req)
{
    size_t waiting = req->stream_buf.len - req->stream_offset;

    return waiting < HTTP_STREAM_HIGH_WATER ? HTTP_STREAM_HIGH_WATER - waiting : 0;
}

bool http_stream_write(struct http_req *req, const void *data, size_t len)
{
    if (!req->conn)
        return true;
    http_stream_compact(req);
    buf_add(&req->stream_buf, data, len);
    request_stream_has_more(req);
    req->writer_paused = http_stream_room(req) == 0;
    return !req->writer_paused;
}

void http_on_room(struct http_req *req, void (*fn)(void *arg), void *arg)
{
    req->on_room = fn;
    req->room_arg = arg;
}

static void http_stream_finish(struct http_req *req, bool broken)
{
    req->answer_complete = true;
    req->stream_broken = broken;
    if (req->conn) {
        ev_timer_clear(req->s->ev, &req->keepalive_timer);
        request_stream_has_more(req);
    } else {
        http_req_free_if_done(req);
    }
}

void http_stream_end(struct http_req *req)
{
    http_stream_finish(req, false);
}

void http_stream_break(struct http_req *req)
{
    http_stream_finish(req, true);
}

/* messages */

void http_answer_ndjson(struct http_req *req, int status)
{
    http_set_header(req, "X-Accel-Buffering", "no"); /* a proxy must not delay messages */
    http_answer_stream(req, status, "application/x-ndjson", HTTP_UNTIL_END);
}

bool http_stream_ndjson(struct http_req *req, const struct buf *json)
{
    http_stream_write(req, json->data, json->len);
    return http_stream_write(req, "\n", 1);
}

static void http_stream_on_keepalive(void *arg)
{
    struct http_req *req = arg;

    http_stream_write(req, ":\n\n", 3);
    ev_timer_set(req->s->ev, &req->keepalive_timer, ev_now(req->s->ev) + SSE_KEEPALIVE_MS * NS_PER_MS,
                 http_stream_on_keepalive, req);
}

void http_answer_events(struct http_req *req)
{
    http_set_header(req, "X-Accel-Buffering", "no");
    http_answer_stream(req, 200, "text/event-stream", HTTP_UNTIL_END);
    if (req->conn)
        ev_timer_set(req->s->ev, &req->keepalive_timer, ev_now(req->s->ev) + SSE_KEEPALIVE_MS * NS_PER_MS,
                     http_stream_on_keepalive, req);
}

/* A field is one line: line breaks are removed from names, and split data into several lines that
 * the client joins. */
static void http_stream_add_sse_field(struct buf *out, const char *field, const char *value)
{
    size_t n = strcspn(value, "\r\n");

    buf_addf(out, "%s: ", field);
    buf_add(out, value, n);
    buf_add(out, "\n", 1);
}

bool http_stream_event(struct http_req *req, const char *id, const char *event, const char *data)
{
    auto_buf text = { 0 };

    if (!req->conn)
        return true;
    if (id)
        http_stream_add_sse_field(&text, "id", id);
    if (event)
        http_stream_add_sse_field(&text, "event", event);
    for (;;) {
        http_stream_add_sse_field(&text, "data", data);
        data += strcspn(data, "\r\n");
        if (!*data)
            break;
        data += data[0] == '\r' && data[1] == '\n' ? 2 : 1;
    }
    buf_add(&text, "\n", 1);
    ev_timer_set(req->s->ev, &req->keepalive_timer, ev_now(req->s->ev) + SSE_KEEPALIVE_MS * NS_PER_MS,
                 http_stream_on_keepalive, req);
    return http_stream_write(req, text.data, text.len);
}
