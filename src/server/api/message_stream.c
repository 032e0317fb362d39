#include "server/api/message_stream.h"

#include "core/base/clock.h"

#define HEARTBEAT_NS (15 * NS_PER_S)

void message_begin(struct jsonw *w, struct buf *out, const char *type)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
}

/* A client that does not read gets no heartbeats: they would only add to its queue. */
static void message_stream_on_heartbeat(void *arg)
{
    static const char line[] = "{\"type\":\"heartbeat\"}\n";
    struct message_stream *s = arg;

    ev_timer_set(s->ev, &s->heartbeat_timer, ev_now(s->ev) + HEARTBEAT_NS, message_stream_on_heartbeat, s);
    if (http_stream_room(s->req) > 0)
        http_stream_write(s->req, line, sizeof(line) - 1);
}

void message_stream_begin(struct message_stream *s, struct http_req *req, struct ev *ev, bool is_sse)
{
    *s = (struct message_stream){ .req = req, .ev = ev, .is_sse = is_sse };
    if (is_sse) {
        http_answer_events(req);
    } else {
        http_answer_ndjson(req, 200);
        ev_timer_set(ev, &s->heartbeat_timer, ev_now(ev) + HEARTBEAT_NS, message_stream_on_heartbeat, s);
    }
}

bool message_stream_send(struct message_stream *s, const char *id, const char *type, const struct buf *json)
{
    return s->is_sse ? http_stream_event(s->req, id, type, json->data) : http_stream_ndjson(s->req, json);
}

void message_stream_end(struct message_stream *s, const char *id, const struct err *why)
{
    auto_buf out = { 0 }, error = { 0 };

    if (why) /* {"error":{...}}: its members become members of the message */
        http_error_json(why, http_id(s->req), NULL, NULL, &error);
    buf_addf(&out, "{\"type\":\"end\"%s%s", why ? "," : "", why ? error.data + 1 : "}");
    (void)message_stream_send(s, id, "end", &out);
    http_on_client_gone(s->req, NULL, NULL);
    http_on_room(s->req, NULL, NULL);
    http_stream_end(s->req);
}

void message_stream_abort(struct message_stream *s, struct http_req *req, const struct err *why)
{
    struct err gone;

    http_on_client_gone(req, NULL, NULL);
    if (!s->req) {
        err_set(&gone, ERR_CLIENT_GONE, "the client disconnected");
        http_answer_err(req, why ? why : &gone);
    } else if (why) {
        http_stream_break(req);
    } else {
        http_stream_end(req);
    }
}

void message_stream_done(struct message_stream *s)
{
    ev_timer_clear(s->ev, &s->heartbeat_timer);
}
