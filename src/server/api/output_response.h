/* output_response.h - an HTTP response as the client of an output pump: messages (NDJSON or SSE),
 * or the bytes of one channel. */
#pragma once

#include "server/api/message_stream.h"
#include "server/api/output_pump.h"

struct output_response {
    struct message_stream messages; /* for bytes only its request is used */
    struct output_pump pump;
    bool has_ids; /* SSE: messages have ids, the offsets at which a client can resume */
};

extern const struct output_client_ops output_response_message_ops, output_response_raw_ops;

/* Begins a response of messages; the first is `started`. */
void output_response_begin(struct output_response *s, struct http_req *req, struct ev *ev, bool is_sse,
                           const char *execution_json);
void output_response_send(struct output_response *s, const char *type, const struct buf *json);
