/* message_stream.h - a response that is a sequence of JSON messages, each of which begins with its
 * type: NDJSON, which gets a heartbeat message every 15 s, or SSE, which has comments for that. */
#pragma once

#include "core/base/jsonw.h"
#include "core/ev/ev.h"
#include "server/http/http.h"

struct message_stream {
    struct http_req *req; /* NULL before it begins */
    struct ev *ev;
    bool is_sse;
    struct ev_timer heartbeat_timer;
};

/* Begins the response. */
void message_stream_begin(struct message_stream *s, struct http_req *req, struct ev *ev, bool is_sse);
/* id: for SSE, what a client sends to resume after this message, or NULL. json: begins with the
 * type. False: wait for http_on_room. */
bool message_stream_send(struct message_stream *s, const char *id, const char *type, const struct buf *json);
/* Ends the response with a message `end`, which contains the error if `why` is not NULL. */
void message_stream_end(struct message_stream *s, const char *id, const struct err *why);
/* Ends the response `req` early, without a message: an error if the stream has not begun, otherwise
 * a broken stream. why: NULL if the client is gone. */
void message_stream_abort(struct message_stream *s, struct http_req *req, const struct err *why);
/* Stops the heartbeat. Also for a stream that never began. */
void message_stream_done(struct message_stream *s);

/* Begins a message; the caller writes the other members and closes the object. */
void message_begin(struct jsonw *w, struct buf *out, const char *type);
