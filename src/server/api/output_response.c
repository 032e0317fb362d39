#include "server/api/output_response.h"

#include "server/api/api_internal.h"

#include <stdio.h>

void output_response_send(struct output_response *s, const char *type, const struct buf *json)
{
    const uint64_t *at = s->pump.offset;
    char id[72];

    if (s->has_ids) {
        int n = snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, at[0], at[1]);

        if (output_pump_has_events(&s->pump))
            snprintf(id + n, sizeof(id) - (size_t)n, "-%" PRIu64, at[2]);
    }
    (void)message_stream_send(&s->messages, s->has_ids ? id : NULL, type, json);
}

static void output_response_send_execution(struct output_response *s, const char *type, const char *json)
{
    auto_buf out = { 0 };
    struct jsonw w;

    message_begin(&w, &out, type);
    api_write_raw_json(&w, "execution", json);
    jsonw_end_object(&w);
    output_response_send(s, type, &out);
}

void output_response_begin(struct output_response *s, struct http_req *req, struct ev *ev, bool is_sse,
                           const char *execution_json)
{
    message_stream_begin(&s->messages, req, ev, is_sse);
    output_response_send_execution(s, "started", execution_json);
}

/* --- the client of the pump --- */

static bool output_response_has_room(void *client)
{
    const struct output_response *s = client;

    return http_stream_room(s->messages.req) > 0;
}

static void output_response_send_piece(void *client, const struct output_piece *piece)
{
    auto_buf out = { 0 };
    struct jsonw w;

    message_begin(&w, &out, "output");
    output_piece_write(piece, &w);
    jsonw_end_object(&w);
    output_response_send(client, "output", &out);
}

static void output_response_send_event(void *client, const char *type, const struct buf *json)
{
    output_response_send(client, type, json);
}

static void output_response_send_end(void *client, const char *execution_json)
{
    output_response_send_execution(client, "end", execution_json);
}

static void output_response_send_bytes(void *client, const struct output_piece *piece)
{
    const struct output_response *s = client;

    (void)http_stream_write(s->messages.req, piece->data, piece->len);
}

const struct output_client_ops output_response_message_ops = { .piece_max = OUTPUT_PIECE_MAX,
                                                               .turn_max = 2 * OUTPUT_PIECE_MAX,
                                                               .has_room = output_response_has_room,
                                                               .send_output = output_response_send_piece,
                                                               .send_event = output_response_send_event,
                                                               .send_end = output_response_send_end };
const struct output_client_ops output_response_raw_ops = { .piece_max = OUTPUT_PIECE_MAX,
                                                           .turn_max = 2 * OUTPUT_PIECE_MAX,
                                                           .is_raw = true,
                                                           .has_room = output_response_has_room,
                                                           .send_output = output_response_send_bytes };
