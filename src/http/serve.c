/* One request from its first line to its end, as the daemon calls it.
 *
 * The daemon calls serve_access() once when the head has come, again with each piece of the body, and once more at the
 * end of the body; and again from where it was after each wait. It takes an answer at the first and the last of these
 * moments only, and one given at the first ends the connection. Handlers must not know: their answer is kept in the
 * request until its time comes. Where that would mean to read a body that nobody wants, the answer goes around the
 * daemon (send_raw), and the rest of the body is thrown away for a moment before the connection ends, because closing a
 * socket with unread bytes in it would take the answer back.
 *
 * An answer may also be held (http_on_answer): it counts as given, and the connection waits as if it were not.
 *
 * 1. An answer is queued once, at the end of the body, or at the head when the framing is not to be trusted or the
 * client waits to be told to go on.
 * 2. A connection that carried a chunked body is not used again. Chunks are read by the letter here (frame.c), but
 *    something in front may have seen the body end elsewhere; what follows is never read as a request.
 * 3. Whenever nothing can be done the connection is suspended, and whoever changes that resumes it. */
#include "http/daemon.h"

void *serve_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http_server *s = cls;
    struct conn *c = conn_of(mhd);

    c->req = req_new(s, c, uri);
    conn_phase(c, CONN_HEAD);
    return c->req;
}

/* who counts is told */

static void tell_done(struct http_req *req, bool ok)
{
    struct http_server *s = req->s;
    struct http_done done = {
        .id = req->id,
        .own_id = req->own_id,
        .error = req->error,
        .method = req->is_head ? "HEAD" : req->method,
        .path = req->path,
        .route = req->match.route,
        .asked = req->asked,
        .peer = &req->peer,
        .user = req->user,
        .status = req->queued || req->raw ? req->status : 0,
        .whole = ok || req->raw,
        .bytes_in = req->received,
        .bytes_out = req->is_head ? 0 : req->sent,
        .duration_ns = ev_now(s->ev) - req->began,
    };

    if (s->set.on_done && req->begun)
        s->set.on_done(&done, s->set.ctx);
}

/* the head */

static void dispatch(struct http_req *req)
{
    req->waits_hook = false;
    req->dispatched = true;
    req->match.route->fn(req, req->s->set.ctx);
}

/* Screens, routes and asks the hook, once. */
static void begin(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                  const char *version)
{
    struct http_server *s = req->s;
    struct err err = { 0 };

    req->begun = true;
    req->began = ev_now(s->ev);
    if (screen_head(req, mhd, url, method, version, &err) < 0) {
        req->head_bad = true;
        answer_error(req, &err);
    } else if (check_request(req, &err) < 0) {
        answer_error(req, &err);
    } else if (!check_preflight(req)) {
        req->waits_hook = true;
        req->asked = true;
        if (!s->set.on_request || s->set.on_request(req, s->set.ctx)) {
            req->waits_hook = false;
            req->passed = !req->answered;
        }
    }
}

static enum MHD_Result wait(struct http_req *req)
{
    conn_suspend(req->conn);
    return MHD_YES;
}

static bool may_send(const struct http_req *req)
{
    return req->answered && !req->held;
}

/* Bytes of the body that are still to come, as far as that is known. */
static uint64_t body_left(const struct http_req *req)
{
    return req->chunked ? 0 : req->declared - req->received;
}

static enum MHD_Result at_head(struct http_req *req)
{
    if (req->passed && !req->dispatched && req->match.route->body == HTTP_BODY_STREAMED)
        dispatch(req);
    if (req->held)
        return wait(req);
    if (req->answered) {
        if (req->head_bad || (req->has_body && req->expects)) {
            req->in_head = false;
            return send_queue(req) ? MHD_YES : MHD_NO;
        }
        req->body_dropped = req->has_body;
        if (body_left(req) > DISCARD_MAX && !req->raw && !send_raw(req))
            return MHD_NO;
    } else if (req->waits_hook || (req->dispatched && !req->reader && req->has_body)) {
        return wait(req);
    }
    req->in_head = false;
    if (!req->raw)
        conn_phase(req->conn, req->has_body ? CONN_BODY : CONN_WAIT);
    return MHD_YES;
}

/* the body */

static void body_failed(struct http_req *req, const struct err *err)
{
    bool streamed = req->dispatched && req->reader && !req->body_told;

    req->body_dropped = true;
    if (streamed) {
        req->body_told = true;
        req->reader->on_fail(req->reader_arg, err);
    } else if (!req->answered && !req->dispatched) {
        answer_error(req, err);
    }
}

static void too_large(struct http_req *req)
{
    struct err err = { 0 };

    err_set(&err, ERR_HTTP_TOO_LARGE, "the body has more than the %" PRIu64 " bytes that are taken", req->body_max);
    body_failed(req, &err);
}

static void no_room(struct http_req *req)
{
    struct err err = { 0 };

    err_set(&err, ERR_BUSY, "the server holds as many bodies of requests as it has memory for");
    body_failed(req, &err);
}

void serve_body_late(struct http_req *req)
{
    struct err err = { 0 };
    struct conn *c = req->conn;

    if (req->answered) {
        conn_cut(c);
        return;
    }
    err_set(&err, ERR_HTTP_TIMEOUT, "no byte of the body came for %" PRIu64 " ms", req->s->set.limits.body_ms);
    req->close = true;
    body_failed(req, &err);
}

/* The client sent something that is no request, or no body. A request whose own body it is gets its answer by whoever
 * has it; for others there is one to make here. */
static void refuse_now(struct conn *c, const struct err *err)
{
    struct http_req *req = c->req ? c->req : req_new(c->s, c, "");

    if (req->begun) {
        req->close = true;
        body_failed(req, err);
        if (req->answered && !req->held && !req->raw && !send_raw(req))
            conn_cut(c);
        return;
    }
    req->begun = true;
    req->began = ev_now(c->s->ev);
    answer_error(req, err);
    send_raw(req);
    if (!c->req) {
        tell_done(req, true);
        req_gone(req);
    }
}

void serve_refuse(struct conn *c, const struct err *err)
{
    c->refused = true;
    if (c->frame.ended > c->answered)
        c->refusal = *err; /* requests before it are answered first */
    else
        refuse_now(c, err);
}

/* There is an answer, and somebody still sends the body. A little of it is read and thrown away; with more to come the
 * answer goes at once. */
static enum MHD_Result throw_away(struct http_req *req, size_t *size)
{
    if (!may_send(req))
        return wait(req);
    req->received += *size;
    req->discarded += *size;
    *size = 0;
    if (req->discarded > LINGER_MAX)
        return MHD_NO;
    bool much = body_left(req) > DISCARD_MAX || req->discarded > DISCARD_MAX;
    return !much || req->raw || send_raw(req) ? MHD_YES : MHD_NO;
}

static enum MHD_Result at_body(struct http_req *req, const char *data, size_t *size)
{
    size_t taken = *size;

    if (req->conn->phase == CONN_BODY)
        conn_progress(req->conn);
    else if (!req->raw)
        conn_phase(req->conn, CONN_BODY);
    if (!req->body_dropped && *size > req->body_max - req->received)
        too_large(req);
    bool buffered = !req->body_dropped && req->match.route->body == HTTP_BODY_BUFFERED;
    if (buffered && *size > req->s->set.limits.buffered_max - req->s->buffered) {
        no_room(req);
    } else if (buffered) {
        buf_add(&req->body, data, *size);
        req->s->buffered += *size;
    } else if (!req->body_dropped) {
        if (!req->reader)
            return wait(req);
        taken = req->reader->on_data(req->reader_arg, data, *size);
    }
    if (req->body_dropped || req->answered) {
        req->body_dropped = true;
        return throw_away(req, size);
    }
    req->received += taken;
    *size -= taken;
    if (*size > 0)
        conn_suspend(req->conn);
    return MHD_YES;
}

static enum MHD_Result at_end(struct http_req *req)
{
    if (req->raw)
        return MHD_NO; /* answered; this lets the connection go */
    if (!req->body_done) {
        req->body_done = true;
        req->close |= req->chunked;
        if (req->passed && !req->dispatched && !req->answered)
            dispatch(req);
    }
    if (req->reader && !req->body_told) {
        req->body_told = true;
        req->reader->on_end(req->reader_arg);
    }
    if (!may_send(req))
        return wait(req);
    if (req->queued)
        return MHD_YES;
    return send_queue(req) ? MHD_YES : MHD_NO;
}

/* Has the guard seen the head that the daemon has? Not so after a refusal, or if something could read around it. */
static bool head_came(const struct conn *c)
{
    enum frame_state state = c->frame.state;

    return c->frame.ended > c->answered || (state != FRAME_LINE && state != FRAME_HEADERS && state != FRAME_REFUSED);
}

enum MHD_Result serve_access(void *cls UNUSED, struct MHD_Connection *mhd, const char *url, const char *method,
                             const char *version, const char *data, size_t *size, void **ctx)
{
    struct http_req *req = *ctx;

    if (!req || req->conn->cut || (!req->begun && !head_came(req->conn)))
        return MHD_NO;
    req->in_call = true;
    if (!req->begun)
        begin(req, mhd, url, method, version);
    enum MHD_Result ret = req->in_head ? at_head(req) : *size > 0 ? at_body(req, data, size) : at_end(req);
    req->in_call = false;
    return ret;
}

/* what comes from outside of the daemon */

void serve_answered(struct http_req *req)
{
    struct conn *c = req->conn;

    if (!c)
        req_release(req);
    else if (c->suspended)
        conn_resume(c);
    else if (req->has_body && !req->in_head && !req->body_done && !req->in_call)
        send_raw(req); /* the daemon waits for bytes that may never come; what cannot go around it waits with it */
}

/* A connection that waits for something else is left alone: for the rest of a body before the answer can begin. */
void serve_more(struct http_req *req)
{
    if (req->queued)
        conn_resume(req->conn);
}

void http_continue(struct http_req *req)
{
    req->waits_hook = false;
    if (!req->conn) {
        req_release(req);
    } else if (!req->answered) {
        req->passed = true;
        conn_resume(req->conn);
    }
}

void http_read_body(struct http_req *req, const struct http_reader *reader, void *arg)
{
    struct err gone;

    req->reader = reader;
    req->reader_arg = arg;
    if (req->conn) {
        conn_resume(req->conn);
    } else if (!req->body_told) { /* it went before anybody read, and nobody was told */
        req->body_told = true;
        err_set(&gone, ERR_CLIENT_GONE, "the client went away before its request was complete");
        reader->on_fail(arg, &gone);
    }
}

void http_resume_body(struct http_req *req)
{
    if (req->conn && !req->body_done)
        conn_resume(req->conn);
}

void http_drop_body(struct http_req *req)
{
    req->body_dropped = true;
    req->body_told = true;
}

/* the end */

void serve_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why)
{
    struct http_server *s = cls;
    struct http_req *req = *ctx;
    struct conn *c = conn_of(mhd);

    *ctx = NULL;
    if (!req)
        return;
    tell_done(req, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (req->ws)
        ws_lost(take_ptr(&req->ws));
    c->req = NULL;
    c->suspended = false;
    c->answered++;
    conn_phase(c, CONN_IDLE);
    if (s->draining || (c->frame.ended == c->answered && !frame_declined(&c->frame)))
        conn_cut(c);
    else if (c->refused && c->frame.ended == c->answered && why == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        refuse_now(c, &c->refusal);
    req_gone(req);
}
