/* Answers turned into what goes over the socket: a response of the daemon, or, in the middle of a body, where it takes
 * none, the same bytes written by ourselves. */
#include "http/daemon.h"

#include "base/fd.h"

#define BLOCK (64 * KIB) /* a streamed body of known length is sent in pieces of this size */

static ssize_t read_stream(void *cls, uint64_t pos UNUSED, char *to, size_t max)
{
    struct http_req *req = cls;
    struct conn *c = req->conn;
    size_t n = min_size(req->out.len - req->out_at, max);

    if (req->broken || c->cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        if (req->finished)
            return req->len == HTTP_UNTIL_END ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
        conn_suspend(c);
        return 0;
    }
    if (c->phase != CONN_WRITE)
        conn_phase(c, CONN_WRITE);
    memcpy(to, req->out.data + req->out_at, n);
    req->sent += n;
    req->out_at += n;
    if (req->out_at == req->out.len) {
        buf_clear(&req->out);
        req->out_at = 0;
    }
    if (req->full && req->out.len - req->out_at <= HTTP_STREAM_HIGH / 2) {
        req->full = false;
        if (req->on_room && !req->finished)
            req->on_room(req->room_arg);
    }
    return (ssize_t)n;
}

static struct MHD_Response *make_response(struct http_req *req)
{
    struct buf *b = &req->content;

    switch (req->kind) {
    case ANSWER_BUFFER:
        req->sent = b->len;
        if (b->len == 0)
            return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        return MHD_create_response_from_buffer(b->len, take_ptr(&b->data), MHD_RESPMEM_MUST_FREE);
    case ANSWER_FILE:
        req->sent = req->len;
        return MHD_create_response_from_fd_at_offset64(req->len, take_fd(&req->fd), req->from);
    case ANSWER_UPGRADE:
        return handshake_response(req);
    case ANSWER_STREAM:
        break;
    }
    return MHD_create_response_from_callback(req->len == HTTP_UNTIL_END ? MHD_SIZE_UNKNOWN : req->len, BLOCK,
                                             read_stream, req, NULL);
}

bool send_queue(struct http_req *req)
{
    struct MHD_Response *r = make_response(req);
    bool ok = r != NULL;

    for (const struct out_header *h = req->out_headers; ok && h; h = h->next)
        ok = MHD_add_response_header(r, h->name, h->value) == MHD_YES;
    if (ok && req->kind != ANSWER_UPGRADE && (req->close || req->s->draining))
        ok = MHD_add_response_header(r, "Connection", "close") == MHD_YES;
    /* The daemon would send the last chunk of a body that HEAD does not have, and the client take it for an answer. */
    if (ok && req->is_head && req->kind == ANSWER_STREAM && req->len == HTTP_UNTIL_END)
        ok = MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END) == MHD_YES;
    if (req->kind == ANSWER_STREAM)
        conn_probe(req->conn);
    conn_phase(req->conn, CONN_WRITE);
    req->queued = true;
    ok = ok && MHD_queue_response(req->conn->mhd, (unsigned)req->status, r) == MHD_YES;
    if (r)
        MHD_destroy_response(r);
    return ok;
}

bool send_raw(struct http_req *req)
{
    auto_buf text = { 0 };

    if (req->kind != ANSWER_BUFFER)
        return false;
    buf_addf(&text, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", req->status,
             MHD_get_reason_phrase_for((unsigned)req->status), req->content.len);
    for (const struct out_header *h = req->out_headers; h; h = h->next)
        buf_addf(&text, "%s: %s\r\n", h->name, h->value);
    buf_adds(&text, "\r\n");
    if (!req->is_head)
        buf_add(&text, req->content.data, req->content.len);
    req->raw = true;
    req->body_dropped = true;
    req->sent = req->content.len;
    conn_send_raw(req->conn, &text);
    conn_phase(req->conn, CONN_LINGER);
    return true;
}
