/* Converts answers to bytes on the socket: a response of the daemon or, in the middle of a body,
 * where the daemon accepts no response, the same bytes written directly. */
#include "server/http/mhd_callbacks.h"

#include "core/base/fd.h"

#define BLOCK (64 * KIB) /* block size of a streamed body of known length */

static ssize_t mhd_response_read_stream(void *cls, uint64_t pos UNUSED, char *to, size_t max)
{
    struct http_req *req = cls;
    struct http_conn *c = req->conn;
    size_t n = min_size(req->stream_buf.len - req->stream_offset, max);

    if (req->stream_broken || c->shut_down)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        if (req->answer_complete)
            return req->answer_len == HTTP_UNTIL_END ? MHD_CONTENT_READER_END_OF_STREAM
                                                     : MHD_CONTENT_READER_END_WITH_ERROR;
        http_conn_suspend(c);
        return 0;
    }
    if (c->phase != CONN_WRITE)
        http_conn_set_phase(c, CONN_WRITE);
    memcpy(to, req->stream_buf.data + req->stream_offset, n);
    req->answer_sent += n;
    req->stream_offset += n;
    if (req->stream_offset == req->stream_buf.len) {
        buf_clear(&req->stream_buf);
        req->stream_offset = 0;
    }
    if (req->writer_paused && req->stream_buf.len - req->stream_offset <= HTTP_STREAM_HIGH_WATER / 2) {
        req->writer_paused = false;
        if (req->on_room && !req->answer_complete)
            req->on_room(req->room_arg);
    }
    return (ssize_t)n;
}

static struct MHD_Response *mhd_response_make(struct http_req *req)
{
    struct buf *b = &req->content;

    switch (req->answer_kind) {
    case ANSWER_BUFFER:
        req->answer_sent = b->len;
        if (b->len == 0)
            return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        return MHD_create_response_from_buffer(b->len, take_ptr(&b->data), MHD_RESPMEM_MUST_FREE);
    case ANSWER_FILE:
        req->answer_sent = req->answer_len;
        return MHD_create_response_from_fd_at_offset64(req->answer_len, take_fd(&req->fd), req->file_offset);
    case ANSWER_UPGRADE:
        return ws_handshake_response(req);
    case ANSWER_STREAM:
        break;
    }
    return MHD_create_response_from_callback(req->answer_len == HTTP_UNTIL_END ? MHD_SIZE_UNKNOWN : req->answer_len,
                                             BLOCK, mhd_response_read_stream, req, NULL);
}

bool mhd_response_queue(struct http_req *req)
{
    struct MHD_Response *r = mhd_response_make(req);
    bool ok = r != NULL;

    for (const struct http_answer_header *h = req->answer_headers; ok && h; h = h->next)
        ok = MHD_add_response_header(r, h->name, h->value) == MHD_YES;
    if (ok && req->answer_kind != ANSWER_UPGRADE && (req->close_after_answer || req->s->draining))
        ok = MHD_add_response_header(r, "Connection", "close") == MHD_YES;
    /* Otherwise the daemon would send the last chunk of a body that HEAD does not have, and the
     * client would take it for the next answer. */
    if (ok && req->is_head && req->answer_kind == ANSWER_STREAM && req->answer_len == HTTP_UNTIL_END)
        ok = MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END) == MHD_YES;
    if (req->answer_kind == ANSWER_STREAM)
        http_conn_enable_keepalive(req->conn);
    http_conn_set_phase(req->conn, CONN_WRITE);
    req->response_queued = true;
    ok = ok && MHD_queue_response(req->conn->mhd, (unsigned)req->status, r) == MHD_YES;
    if (r)
        MHD_destroy_response(r);
    return ok;
}

bool mhd_response_send_raw(struct http_req *req)
{
    auto_buf text = { 0 };

    if (req->answer_kind != ANSWER_BUFFER)
        return false;
    buf_addf(&text, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", req->status,
             MHD_get_reason_phrase_for((unsigned)req->status), req->content.len);
    for (const struct http_answer_header *h = req->answer_headers; h; h = h->next)
        buf_addf(&text, "%s: %s\r\n", h->name, h->value);
    buf_adds(&text, "\r\n");
    if (!req->is_head)
        buf_add(&text, req->content.data, req->content.len);
    req->sent_raw = true;
    req->body_discarded = true;
    req->answer_sent = req->content.len;
    http_conn_send_raw(req->conn, &text);
    http_conn_set_phase(req->conn, CONN_LINGER);
    return true;
}
