/* One request from its first line to its end, driven by the callbacks of the daemon.
 *
 * The daemon calls request_on_access() once after the head, again with each piece of the body, and
 * once more at the end of the body; after each suspension it repeats the last call. It accepts a
 * response only at the first and the last of these calls, and a response at the first closes the
 * connection. Handlers do not depend on this: their answer is stored in the request until it can be
 * sent. If that would mean reading an unwanted body, the answer is sent without the daemon
 * (mhd_response_send_raw), and the rest of the body is discarded for a short time before the
 * connection closes, because closing a socket with unread bytes would discard the answer.
 *
 * An answer may also be held back (http_on_answer): it counts as given, but the connection
 * waits as if the handler had not answered.
 *
 * 1. A response is queued once, at the end of the body, or at the head if the framing is not
 *    trusted or the client waits for 100 Continue.
 * 2. A connection that carried a chunked body is not reused. Chunks are parsed strictly here
 *    (request_scanner.c), but a proxy may have seen the body end elsewhere; the bytes after it are
 *    never read as a request.
 * 3. A connection that cannot make progress is suspended; the function that makes progress possible
 *    resumes it. */
#include "server/http/mhd_callbacks.h"

void *request_on_first_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http_server *s = cls;
    struct http_conn *c = http_conn_of_mhd(mhd);

    c->req = http_req_new(s, c, uri);
    http_conn_set_phase(c, CONN_HEAD);
    return c->req;
}

/* report of the completed request */

/* A client that has read the last event of a stream may close before the end of the body. */
static bool request_stream_was_taken(const struct http_req *req)
{
    return req->response_queued && req->answer_kind == ANSWER_STREAM && req->answer_complete && !req->stream_broken &&
           req->stream_offset == req->stream_buf.len &&
           (req->answer_len == HTTP_UNTIL_END || req->answer_sent == req->answer_len);
}

static void request_report_done(struct http_req *req, bool ok)
{
    struct http_server *s = req->s;
    struct http_request_summary done = {
        .id = req->id,
        .own_id = req->own_id,
        .error = req->error,
        .method = req->is_head ? "HEAD" : req->method,
        .path = req->path,
        .route = req->match.route,
        .hook_called = req->hook_called,
        .peer = &req->peer,
        .user_data = req->user_data,
        .status = req->response_queued || req->sent_raw ? req->status : 0,
        .fully_sent = ok || req->sent_raw || request_stream_was_taken(req),
        .bytes_in = req->body_received,
        .bytes_out = req->is_head ? 0 : req->answer_sent,
        .duration_ns = ev_now(s->ev) - req->began_ns,
    };

    if (s->settings.on_done && req->head_processed)
        s->settings.on_done(&done, s->settings.ctx);
}

/* the head */

static void request_call_handler(struct http_req *req)
{
    req->waiting_for_hook = false;
    req->handler_called = true;
    req->match.route->fn(req, req->match.ctx);
}

/* Checks the head, finds the route and calls the hook, once. */
static void request_process_head(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                                 const char *version)
{
    struct http_server *s = req->s;
    struct err err = { 0 };

    req->head_processed = true;
    req->began_ns = ev_now(s->ev);
    if (head_verify(req, mhd, url, method, version, &err) < 0) {
        req->head_malformed = true;
        http_answer_refusal(req, &err);
    } else if (request_policy_check(req, &err) < 0) {
        http_answer_refusal(req, &err);
    } else if (!request_policy_answer_preflight(req)) {
        req->waiting_for_hook = true;
        req->hook_called = true;
        if (!s->settings.on_request || s->settings.on_request(req, s->settings.ctx)) {
            req->waiting_for_hook = false;
            req->hook_passed = !req->has_answer;
        }
    }
}

static enum MHD_Result request_wait(struct http_req *req)
{
    http_conn_suspend(req->conn);
    return MHD_YES;
}

static bool request_may_send(const struct http_req *req)
{
    return req->has_answer && !req->answer_held;
}

/* Bytes of the body that are still to come, as far as is known. */
static uint64_t request_body_bytes_left(const struct http_req *req)
{
    return req->is_chunked ? 0 : req->content_length - req->body_received;
}

static enum MHD_Result request_at_head(struct http_req *req)
{
    if (req->hook_passed && !req->handler_called && req->match.route->body == HTTP_BODY_STREAMED)
        request_call_handler(req);
    if (req->answer_held)
        return request_wait(req);
    if (req->has_answer) {
        if (req->head_malformed || (req->has_body && req->expects_continue)) {
            req->at_head = false;
            return mhd_response_queue(req) ? MHD_YES : MHD_NO;
        }
        req->body_discarded = req->has_body;
        if (request_body_bytes_left(req) > BODY_DISCARD_MAX && !req->sent_raw && !mhd_response_send_raw(req))
            return MHD_NO;
    } else if (req->waiting_for_hook || (req->handler_called && !req->reader && req->has_body)) {
        return request_wait(req);
    }
    req->at_head = false;
    if (!req->sent_raw)
        http_conn_set_phase(req->conn, req->has_body ? CONN_BODY : CONN_WAIT);
    return MHD_YES;
}

/* the body */

static void request_body_failed(struct http_req *req, const struct err *err)
{
    bool streamed = req->handler_called && req->reader && !req->body_end_reported;

    req->body_discarded = true;
    if (streamed) {
        req->body_end_reported = true;
        req->reader->on_fail(req->reader_arg, err);
    } else if (!req->has_answer && !req->handler_called) {
        http_answer_refusal(req, err);
    }
}

static void request_body_too_large(struct http_req *req)
{
    struct err err = { 0 };

    err_set(&err, ERR_HTTP_TOO_LARGE, "the body is longer than the maximum of %" PRIu64 " bytes", req->body_max);
    request_body_failed(req, &err);
}

static void request_body_no_memory(struct http_req *req)
{
    struct err err = { 0 };

    err_set(&err, ERR_BUSY, "the server has no memory for more request bodies at the moment; retry later");
    request_body_failed(req, &err);
}

void request_body_timed_out(struct http_req *req)
{
    struct err err = { 0 };
    struct http_conn *c = req->conn;

    if (req->has_answer) {
        http_conn_shut_down(c);
        return;
    }
    err_set(&err, ERR_HTTP_TIMEOUT, "no byte of the body arrived for %" PRIu64 " ms; send it without long pauses",
            req->s->settings.limits.body_ms);
    req->close_after_answer = true;
    request_body_failed(req, &err);
}

/* The client sent something that is not a request or not a body. If the request whose body it is
 * has a handler, that handler answers it; otherwise the answer is created here. */
static void request_refuse_now(struct http_conn *c, const struct err *err)
{
    struct http_req *req = c->req ? c->req : http_req_new(c->s, c, "");

    if (req->head_processed) {
        req->close_after_answer = true;
        request_body_failed(req, err);
        if (req->has_answer && !req->answer_held && !req->sent_raw && !mhd_response_send_raw(req))
            http_conn_shut_down(c);
        return;
    }
    req->head_processed = true;
    req->began_ns = ev_now(c->s->ev);
    http_answer_refusal(req, err);
    mhd_response_send_raw(req);
    if (!c->req) {
        request_report_done(req, true);
        http_req_detach_conn(req);
    }
}

void request_refuse_input(struct http_conn *c, const struct err *err)
{
    c->input_refused = true;
    if (c->scanner.requests_ended > c->requests_answered)
        c->pending_refusal = *err; /* earlier requests are answered first */
    else
        request_refuse_now(c, err);
}

/* There is an answer, but the client still sends the body. A short rest is read and discarded;
 * before a long rest the answer is sent at once. */
static enum MHD_Result request_discard_body(struct http_req *req, size_t *size)
{
    if (!request_may_send(req))
        return request_wait(req);
    req->body_received += *size;
    req->body_discarded_bytes += *size;
    *size = 0;
    if (req->body_discarded_bytes > LINGER_MAX)
        return MHD_NO;
    bool much = request_body_bytes_left(req) > BODY_DISCARD_MAX || req->body_discarded_bytes > BODY_DISCARD_MAX;
    return !much || req->sent_raw || mhd_response_send_raw(req) ? MHD_YES : MHD_NO;
}

static enum MHD_Result request_at_body(struct http_req *req, const char *data, size_t *size)
{
    size_t taken = *size;

    if (req->conn->phase == CONN_BODY)
        http_conn_note_progress(req->conn);
    else if (!req->sent_raw)
        http_conn_set_phase(req->conn, CONN_BODY);
    if (!req->body_discarded && *size > req->body_max - req->body_received)
        request_body_too_large(req);
    bool buffered = !req->body_discarded && req->match.route->body == HTTP_BODY_BUFFERED;
    if (buffered && *size > req->s->settings.limits.buffered_max - req->s->buffered_bytes) {
        request_body_no_memory(req);
    } else if (buffered) {
        buf_add(&req->body, data, *size);
        req->s->buffered_bytes += *size;
    } else if (!req->body_discarded) {
        if (!req->reader)
            return request_wait(req);
        taken = req->reader->on_data(req->reader_arg, data, *size);
    }
    if (req->body_discarded || req->has_answer) {
        req->body_discarded = true;
        return request_discard_body(req, size);
    }
    req->body_received += taken;
    *size -= taken;
    if (*size > 0)
        http_conn_suspend(req->conn);
    return MHD_YES;
}

static enum MHD_Result request_at_end(struct http_req *req)
{
    if (req->sent_raw)
        return MHD_NO; /* already answered; this closes the connection */
    if (!req->body_done) {
        req->body_done = true;
        req->close_after_answer |= req->is_chunked;
        if (req->hook_passed && !req->handler_called && !req->has_answer)
            request_call_handler(req);
    }
    if (req->reader && !req->body_end_reported) {
        req->body_end_reported = true;
        req->reader->on_end(req->reader_arg);
    }
    if (!request_may_send(req))
        return request_wait(req);
    if (req->response_queued)
        return MHD_YES;
    return mhd_response_queue(req) ? MHD_YES : MHD_NO;
}

/* Whether the scanner has seen the head that the daemon has. False after a refusal, or if bytes
 * bypassed the scanner. */
static bool request_head_was_scanned(const struct http_conn *c)
{
    enum request_scanner_state state = c->scanner.state;

    return c->scanner.requests_ended > c->requests_answered ||
           (state != SCAN_REQUEST_LINE && state != SCAN_HEADERS && state != SCAN_REFUSED);
}

enum MHD_Result request_on_access(void *cls UNUSED, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **ctx)
{
    struct http_req *req = *ctx;

    if (!req || req->conn->shut_down || (!req->head_processed && !request_head_was_scanned(req->conn)))
        return MHD_NO;
    req->in_daemon_callback = true;
    if (!req->head_processed)
        request_process_head(req, mhd, url, method, version);
    enum MHD_Result ret = req->at_head ? request_at_head(req)
                          : *size > 0  ? request_at_body(req, data, size)
                                       : request_at_end(req);
    req->in_daemon_callback = false;
    return ret;
}

/* entry points outside of the daemon's callbacks */

void request_answer_ready(struct http_req *req)
{
    struct http_conn *c = req->conn;

    if (!c)
        http_req_free_if_done(req);
    else if (c->suspended)
        http_conn_resume(c);
    else if (req->has_body && !req->at_head && !req->body_done && !req->in_daemon_callback)
        mhd_response_send_raw(
            /* The daemon waits for bytes that may never arrive; an answer that cannot be sent
             * without it waits too. */
            req);
}

/* A connection that waits for something else is not resumed, for example for the rest of a body
 * before the answer can begin. */
void request_stream_has_more(struct http_req *req)
{
    if (req->response_queued)
        http_conn_resume(req->conn);
}

void http_pass_to_handler(struct http_req *req)
{
    req->waiting_for_hook = false;
    if (!req->conn) {
        http_req_free_if_done(req);
    } else if (!req->has_answer) {
        req->hook_passed = true;
        http_conn_resume(req->conn);
    }
}

void http_read_body(struct http_req *req, const struct http_reader *reader, void *arg)
{
    struct err gone;

    req->reader = reader;
    req->reader_arg = arg;
    if (req->conn) {
        http_conn_resume(req->conn);
    } else if (!req->body_end_reported) { /* the client disconnected before the handler read, and no callback has
                                             reported it */
        req->body_end_reported = true;
        err_set(&gone, ERR_CLIENT_GONE, "the client disconnected before its request was complete");
        reader->on_fail(arg, &gone);
    }
}

void http_resume_body(struct http_req *req)
{
    if (req->conn && !req->body_done)
        http_conn_resume(req->conn);
}

void http_discard_body(struct http_req *req)
{
    req->body_discarded = true;
    req->body_end_reported = true;
}

/* the end */

void request_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why)
{
    struct http_server *s = cls;
    struct http_req *req = *ctx;
    struct http_conn *c = http_conn_of_mhd(mhd);

    *ctx = NULL;
    if (!req)
        return;
    request_report_done(req, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (req->ws)
        ws_abort(take_ptr(&req->ws));
    c->req = NULL;
    c->suspended = false;
    c->requests_answered++;
    http_conn_set_phase(c, CONN_IDLE);
    if (s->draining ||
        (c->scanner.requests_ended == c->requests_answered && !request_scanner_upgrade_declined(&c->scanner)))
        http_conn_shut_down(c);
    else if (c->input_refused && c->scanner.requests_ended == c->requests_answered &&
             why == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        request_refuse_now(c, &c->pending_refusal);
    http_req_detach_conn(req);
}
