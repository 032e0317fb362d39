/* One WebSocket on its own descriptor in the event loop. wslay encodes and decodes frames; this
 * file decides which input it gets, when, and how to react.
 *
 * Invariants:
 * 1. The memory that a client can use is bounded: a message by its size and its number of fragments
 *    (wslay allocates for each), all incomplete messages together by the limit for buffered bodies,
 *    and pongs because nothing is read while many bytes wait to be sent.
 * 2. Frames are rate-limited. A client beyond the rate is not read from until it is within the rate
 *    again, which costs the client time and the server nothing.
 * 3. A client is alive if a byte arrived, or if it took a byte after the socket had been full.
 *    Otherwise a ping is sent, and after the same time again the socket is closed, unless the
 *    server itself was not reading.
 * 4. A close frame overtakes messages in wslay's queues, so it is queued only when they are empty.
 * 5. After a frame that cannot be decoded, wslay sends a close frame without a code. ws_on_send()
 *    inserts the code: it is the last frame, and its two-byte header cannot be confused with
 *    anything else in that position. */
#include "server/http/http_internal.h"

#include "core/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

#define READ_MAX (64 * KIB) /* bytes read from one socket per loop iteration */
#define FRAGMENTS_MAX 1024u /* per message */
#define CLOSE_MS 3000       /* time limit for queued bytes and the client's close frame */
#define REASON_MAX 123u
#define WS_FRAME_OVERHEAD 64u /* bytes that a queued frame counts in addition to its payload */

struct http_ws {
    struct http_server *s;
    struct http_ws *prev, *next;
    const struct ws_ops *ops;
    void *arg;
    wslay_event_context_ptr ctx;
    struct buf early_input; /* bytes that arrived with the request */
    int fd;                 /* -1 until the handshake is complete */
    struct ev_io io;
    struct ev_timer ping_timer; /* next ping, or the end of the wait for a pong */
    struct ev_timer rate_timer; /* fires when the rate allows reading again */
    struct ev_defer pump_defer, closed_defer;
    uint64_t last_sign_of_life_ns, pinged_at_ns;
    uint64_t rate_filled_until_ns; /* time by which the received frames would have arrived at the allowed rate */
    uint64_t message_bytes;        /* bytes of the incomplete message */
    size_t read_budget;
    unsigned fragments;
    unsigned close_code; /* code for on_closed */
    uint8_t addr[16];
    char close_reason[REASON_MAX + 1];
    uint8_t pending_header[14],
        /* header of a frame that wslay believes to be sent; as long as the longest one */
        pending_header_len;
    bool is_unix;
    bool reading_paused, rate_limited; /* reading is paused: by the owner, by the rate limit */
    bool writer_paused;                /* ws_send() has returned false */
    bool socket_drained;               /* the socket buffer has drained since it was full */
    bool input_may_wait;               /* input may be available that epoll does not report */
    bool closing;                      /* closed by the server, or after an error: messages are ignored */
    bool input_discarded;              /* input is discarded */
    bool peer_ended;                   /* the client has closed its sending side */
    bool finished;
};

static void ws_pump(struct http_ws *ws);

static size_t ws_queued_bytes(const struct http_ws *ws)
{
    return wslay_event_get_queued_msg_length(ws->ctx) + WS_FRAME_OVERHEAD * wslay_event_get_queued_msg_count(ws->ctx);
}

static bool ws_may_read(const struct http_ws *ws)
{
    return ws->closing || (!ws->reading_paused && !ws->rate_limited && ws_queued_bytes(ws) < WS_HIGH_WATER);
}

/* --- closing --- */

static void ws_unlink(struct http_ws *ws)
{
    struct http_server *s = ws->s;

    *(ws->prev ? &ws->prev->next : &s->websockets) = ws->next;
    if (ws->next)
        ws->next->prev = ws->prev;
    s->stats.websockets--;
    s->buffered_bytes -= ws->message_bytes;
    ev_io_del(s->ev, &ws->io);
    ev_timer_clear(s->ev, &ws->ping_timer);
    ev_timer_clear(s->ev, &ws->rate_timer);
    ev_defer_clear(s->ev, &ws->pump_defer);
    ev_defer_clear(s->ev, &ws->closed_defer);
    if (ws->fd >= 0)
        close(ws->fd);
}

static void ws_report_closed(void *arg)
{
    struct http_ws *ws = arg;
    struct http_server *s = ws->s;

    ws_unlink(ws);
    ws->ops->on_closed(ws->arg, ws->close_code);
    wslay_event_context_free(ws->ctx);
    buf_done(&ws->early_input);
    free(ws);
    http_server_conn_closed(s);
}

static void ws_finish(struct http_ws *ws)
{
    if (ws->finished)
        return;
    ws->finished = true;
    ev_io_del(ws->s->ev, &ws->io);
    ev_defer(ws->s->ev, &ws->closed_defer, ws_report_closed, ws);
}

void ws_abort(struct http_ws *ws)
{
    ws->close_code = WS_ABNORMAL;
    ws_finish(ws);
}

static void ws_on_ping_timer(void *arg);

static void ws_set_ping_timer(struct http_ws *ws, uint64_t at)
{
    ev_timer_set(ws->s->ev, &ws->ping_timer, at, ws_on_ping_timer, ws);
}

/* --- callbacks of wslay --- */

static ssize_t ws_would_block(struct http_ws *ws)
{
    wslay_event_set_error(ws->ctx, WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t ws_on_recv(wslay_event_context_ptr ctx, uint8_t *to, size_t len, int flags UNUSED, void *arg)
{
    struct http_ws *ws = arg;
    size_t n = min_size(len, ws->early_input.len);

    if (n > 0) {
        memcpy(to, ws->early_input.data, n);
        buf_drop(&ws->early_input, n);
        if (ws->early_input.len == 0)
            buf_done(&ws->early_input);
        return (ssize_t)n;
    }
    if (!ws_may_read(ws) || ws->read_budget == 0)
        return ws_would_block(ws);
    ssize_t got = recv(ws->fd, to, min_size(len, ws->read_budget), MSG_DONTWAIT);
    if (got > 0) {
        ws->read_budget -= (size_t)got;
        ws->last_sign_of_life_ns = ev_now(ws->s->ev);
        return got;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return ws_would_block(ws);
    ws->peer_ended = true;
    wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

/* Sends the data together with the stored header of its frame, if there is one. The returned count
 * excludes the header, which wslay already counts as sent. */
static ssize_t ws_send_after_header(struct http_ws *ws, const uint8_t *data, size_t len)
{
    struct iovec parts[2] = { { ws->pending_header, ws->pending_header_len }, { (void *)(uintptr_t)data, len } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = 2 };
    ssize_t n;

    do
        n = sendmsg(ws->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    size_t of_head = min_size((size_t)n, ws->pending_header_len);
    memmove(ws->pending_header, ws->pending_header + of_head, ws->pending_header_len - of_head);
    ws->pending_header_len = (uint8_t)(ws->pending_header_len - of_head);
    if ((size_t)n > of_head)
        return n - (ssize_t)of_head;
    errno = EAGAIN;
    return -1;
}

/* wslay sends a header and then the payload; with many viewers of one terminal, the system call for
 * each header is half of all work. So a header waits for its payload. */
static ssize_t ws_on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
    static const uint8_t bare[2] = { 0x88, 0 }, coded[4] = { 0x88, 2, WS_PROTOCOL >> 8, WS_PROTOCOL & 0xff };
    struct http_ws *ws = arg;
    bool put_code = ws->input_discarded && len == sizeof(bare) && memcmp(data, bare, sizeof(bare)) == 0;

    if ((flags & WSLAY_MSG_MORE) && ws->pending_header_len == 0 && len <= sizeof(ws->pending_header)) {
        memcpy(ws->pending_header, data, len);
        ws->pending_header_len = (uint8_t)len;
        return (ssize_t)len;
    }
    ssize_t n = put_code ? ws_send_after_header(ws, coded, sizeof(coded)) : ws_send_after_header(ws, data, len);
    if (n > 0 && ws->socket_drained)
        ws->last_sign_of_life_ns = ev_now(ws->s->ev);
    if (n > 0)
        return put_code ? (ssize_t)sizeof(bare) : n;
    if (n < 0 && errno == EAGAIN)
        return ws_would_block(ws);
    ws->peer_ended = true;
    wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void ws_on_rate_timer(void *arg)
{
    struct http_ws *ws = arg;

    ws->rate_limited = false;
    ws_pump(ws);
}

/* A token bucket that holds the frames of two seconds, stored as one point in time. */
static void ws_count_frame(struct http_ws *ws)
{
    uint64_t now = ev_now(ws->s->ev), window = 2 * NS_PER_S;

    ws->rate_filled_until_ns = max_u64(ws->rate_filled_until_ns, now) +
                               NS_PER_S / ws->s->settings.limits.ws_frames_per_second;
    if (ws->rate_filled_until_ns <= now + window)
        return;
    ws->rate_limited = true;
    ev_timer_set(ws->s->ev, &ws->rate_timer, ws->rate_filled_until_ns - window + window / 8, ws_on_rate_timer, ws);
}

/* Closes in the middle of a message: the rest of the input is discarded. */
static void ws_refuse_input(struct http_ws *ws, unsigned code, const char *why)
{
    ws_close(ws, code, why);
    ws->input_discarded = true;
    wslay_event_shutdown_read(ws->ctx);
}

static void ws_on_frame_start(wslay_event_context_ptr ctx UNUSED, const struct wslay_event_on_frame_recv_start_arg *f,
                              void *arg)
{
    struct http_ws *ws = arg;
    struct http_server *s = ws->s;

    ws_count_frame(ws);
    if (wslay_is_ctrl_frame(f->opcode) || ws->closing)
        return;
    ws->fragments = f->opcode == WSLAY_CONTINUATION_FRAME ? ws->fragments + 1 : 0;
    if (f->payload_length >
        s->settings.limits.buffered_max - min_u64(s->buffered_bytes, s->settings.limits.buffered_max)) {
        ws_refuse_input(ws, WS_TRY_AGAIN, "the server has no memory for more messages at the moment; retry later");
        return;
    }
    ws->message_bytes += f->payload_length;
    s->buffered_bytes += f->payload_length;
    if (ws->fragments > FRAGMENTS_MAX)
        ws_refuse_input(ws, WS_TOO_BIG, "the message has more than 1024 fragments");
}

static void ws_on_message(wslay_event_context_ptr ctx UNUSED, const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
    struct http_ws *ws = arg;

    if (m->opcode == WSLAY_CONNECTION_CLOSE && !ws->closing) {
        ws->close_code = m->status_code ? m->status_code : WSLAY_CODE_NO_STATUS_RCVD;
        ws_set_ping_timer(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS); /* wslay has queued the close frame */
    }
    if (wslay_is_ctrl_frame(m->opcode))
        return;
    ws->s->buffered_bytes -= ws->message_bytes;
    ws->message_bytes = 0;
    if (!ws->closing)
        ws->ops->on_message(ws->arg, m->opcode == WSLAY_TEXT_FRAME, m->msg ? (const char *)m->msg : "", m->msg_length);
}

/* --- reading and writing --- */

static void ws_discard_input(struct http_ws *ws)
{
    char waste[4096] __attribute__((uninitialized));

    while (!ws->peer_ended && ws->read_budget > 0) {
        ssize_t n = recv(ws->fd, waste, sizeof(waste), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            ws->peer_ended = true;
        else
            ws->read_budget -= min_size((size_t)n, ws->read_budget);
    }
}

static void ws_receive(struct http_ws *ws)
{
    ws->read_budget = READ_MAX;
    if (!ws->input_discarded && wslay_event_get_read_enabled(ws->ctx)) {
        int rc = wslay_event_recv(ws->ctx);

        if (!wslay_event_get_read_enabled(ws->ctx) && !wslay_event_get_close_received(ws->ctx) && !ws->peer_ended) {
            ws->input_discarded = true;
            if (!ws->closing) { /* wslay has queued a close frame with the reason */
                ws->closing = true;
                ws->close_code = rc == 0 ? 0 : WS_PROTOCOL;
                ws_set_ping_timer(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS);
            }
        }
    } else {
        ws_discard_input(ws);
    }
}

static void ws_transmit(struct http_ws *ws)
{
    for (;;) {
        if (wslay_event_want_write(ws->ctx) && wslay_event_send(ws->ctx) < 0)
            ws->peer_ended = true;
        if (!ws->close_reason[0] || wslay_event_get_queued_msg_count(ws->ctx) > 0 || ws->peer_ended)
            return;
        (void)wslay_event_queue_close(ws->ctx, (uint16_t)ws->close_code, (const uint8_t *)ws->close_reason,
                                      strlen(ws->close_reason));
        ws->close_reason[0] = '\0';
    }
}

/* Returns true if nothing is left to be done on this socket. */
static bool ws_close_is_complete(struct http_ws *ws)
{
    bool said = wslay_event_get_close_sent(ws->ctx), heard = wslay_event_get_close_received(ws->ctx);

    if (said && ws->close_code == 0)
        ws->close_code = wslay_event_get_status_code_sent(ws->ctx);
    if (ws->peer_ended && ws->close_code == 0)
        ws->close_code = WS_ABNORMAL;
    if (said && ws->input_discarded && !ws->peer_ended)
        shutdown(ws->fd, SHUT_WR); /* closing now, with unread bytes, would discard the close frame */
    return ws->peer_ended || (said && heard);
}

static void ws_on_io(void *arg, uint32_t events)
{
    struct http_ws *ws = arg;

    ws->socket_drained = events & EPOLLOUT;
    if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN)) {
        ws->peer_ended = true; /* otherwise epoll would report it repeatedly */
        ws->close_code = ws->close_code ? ws->close_code : WS_ABNORMAL;
        ws_finish(ws);
        return;
    }
    ws_pump(ws);
    ws->socket_drained = false;
}

static void ws_update_events(struct http_ws *ws)
{
    uint32_t events = (ws_may_read(ws) ? EPOLLIN : 0u) | (wslay_event_want_write(ws->ctx) ? EPOLLOUT : 0u);

    if (ws->io.events != events)
        ev_io_set(ws->s->ev, &ws->io, events);
}

static void ws_flush(struct http_ws *ws)
{
    ws_transmit(ws);
    if (ws->writer_paused && ws_queued_bytes(ws) <= WS_HIGH_WATER / 2 && !ws->closing && !ws->peer_ended) {
        ws->writer_paused = false;
        ws->ops->on_room(ws->arg);
        ws_transmit(ws);
    }
    if (ws_close_is_complete(ws))
        ws_finish(ws);
    else
        ws_update_events(ws);
}

static void ws_pump(struct http_ws *ws)
{
    if (ws->finished || ws->fd < 0)
        return;
    ws->input_may_wait = false;
    ws_receive(ws);
    ws_flush(ws);
}

static void ws_on_pump(void *arg)
{
    struct http_ws *ws = arg;

    if (ws->input_may_wait)
        ws_pump(ws);
    else if (!ws->finished)
        ws_flush(ws);
}

/* look: also check for input. Not needed if only output was queued: epoll reports input. */
static void ws_schedule_pump(struct http_ws *ws, bool look)
{
    ws->input_may_wait = ws->input_may_wait || look;
    if (!ws->finished && ws->fd >= 0)
        ev_defer(ws->s->ev, &ws->pump_defer, ws_on_pump, ws);
}

static void ws_on_ping_timer(void *arg)
{
    struct http_ws *ws = arg;
    uint64_t now = ev_now(ws->s->ev), gap = ws->s->settings.limits.ws_ping_ms * NS_PER_MS;
    struct wslay_event_msg ping = { .opcode = WSLAY_PING };

    if (ws->closing || wslay_event_get_close_received(ws->ctx)) {
        ws->close_code = ws->close_code ? ws->close_code : WS_ABNORMAL;
        ws_finish(ws);
        return;
    }
    if (ws->pinged_at_ns > ws->last_sign_of_life_ns && (ws->reading_paused || ws->rate_limited))
        ws->pinged_at_ns = now; /* the pong may be waiting while the server does not read */
    if (ws->pinged_at_ns > ws->last_sign_of_life_ns && now >= ws->pinged_at_ns + gap) {
        ws_close(ws, WS_INTERNAL, "no answer to a ping");
        return;
    }
    if (ws->pinged_at_ns <= ws->last_sign_of_life_ns && now >= ws->last_sign_of_life_ns + gap) {
        (void)wslay_event_queue_msg(ws->ctx, &ping);
        ws->pinged_at_ns = now;
        ws_schedule_pump(ws, true);
    }
    ws_set_ping_timer(ws, max_u64(ws->pinged_at_ns, ws->last_sign_of_life_ns) + gap);
}

/* --- construction --- */

int ws_check_capacity(const struct http_server *s, const struct http_conn *c, struct err *err)
{
    unsigned n = 0;

    if (s->stats.websockets >= s->settings.limits.ws_max)
        return err_set(err, ERR_BUSY, "the server already has its maximum of %u WebSockets; retry later",
                       s->stats.websockets);
    for (const struct http_ws *ws = s->websockets; ws && !c->peer.is_unix; ws = ws->next)
        n += !ws->is_unix && memcmp(ws->addr, c->addr, sizeof(ws->addr)) == 0;
    if (n >= s->settings.limits.ws_per_addr)
        return err_set(err, ERR_BUSY, "this address already has its maximum of %u WebSockets; close one first", n);
    return 0;
}

struct http_ws *ws_new(struct http_server *s, const struct http_conn *c, const struct ws_ops *ops, void *arg)
{
    static const struct wslay_event_callbacks callbacks = { .recv_callback = ws_on_recv,
                                                            .send_callback = ws_on_send,
                                                            .on_frame_recv_start_callback = ws_on_frame_start,
                                                            .on_msg_recv_callback = ws_on_message };
    struct http_ws *ws = mem_new(struct http_ws);

    ws->s = s;
    ws->ops = ops;
    ws->arg = arg;
    ws->fd = -1;
    if (c) {
        ws->is_unix = c->peer.is_unix;
        memcpy(ws->addr, c->addr, sizeof(ws->addr));
    }
    if (wslay_event_context_server_init(&ws->ctx, &callbacks, ws) != 0)
        abort(); /* out of memory, as in mem_alloc() */
    wslay_event_config_set_max_recv_msg_length(ws->ctx, s->settings.limits.ws_message_max);
    ws->next = s->websockets;
    if (ws->next)
        ws->next->prev = ws;
    s->websockets = ws;
    s->stats.websockets++;
    return ws;
}

void ws_attach_fd(struct http_ws *ws, int fd, const char *early, size_t n)
{
    uint64_t now = ev_now(ws->s->ev);

    ws->fd = fd;
    if (fd < 0 || ev_io_add(ws->s->ev, &ws->io, fd, EPOLLIN, ws_on_io, ws, NULL) < 0) {
        ws_abort(ws);
        return;
    }
    buf_add(&ws->early_input, early, n);
    if (n == 0)
        buf_done(&ws->early_input);
    ws->last_sign_of_life_ns = now;
    ws_set_ping_timer(ws, now + (ws->closing ? CLOSE_MS : ws->s->settings.limits.ws_ping_ms) * NS_PER_MS);
    ws_schedule_pump(ws, true);
}

void ws_abort_all(struct http_server *s)
{
    for (struct http_ws *ws = s->websockets; ws; ws = ws->next)
        if (ws->fd >= 0)
            ws_abort(ws);
}

void ws_close_all(struct http_server *s)
{
    for (struct http_ws *ws = s->websockets; ws; ws = ws->next)
        ws_close(ws, WS_GOING_AWAY, "the server is stopping");
}

void ws_free_all(struct http_server *s)
{
    for (struct http_ws *ws = s->websockets, *next; ws; ws = next) {
        next = ws->next;
        ws->close_code = WS_GOING_AWAY;
        ws->finished = true;
        ws_report_closed(ws);
    }
}

/* --- calls of the owner --- */

size_t ws_room(const struct http_ws *ws)
{
    size_t n = ws->closing || ws->finished ? 0 : ws_queued_bytes(ws);

    return n < WS_HIGH_WATER ? WS_HIGH_WATER - n : 0;
}

bool ws_send(struct http_ws *ws, const void *text, size_t len)
{
    struct wslay_event_msg m = { WSLAY_TEXT_FRAME, text, len };

    if (ws->closing || ws->finished)
        return true;
    (void)wslay_event_queue_msg(ws->ctx, &m); /* fails only after a close frame, when the message no longer matters */
    ws_schedule_pump(ws, false);
    ws->writer_paused = ws_room(ws) == 0;
    return !ws->writer_paused;
}

void ws_set_reading_paused(struct http_ws *ws, bool hold)
{
    if (ws->reading_paused == hold)
        return;
    ws->reading_paused = hold;
    ws_schedule_pump(ws, true);
}

void ws_close(struct http_ws *ws, unsigned code, const char *reason)
{
    if (ws->closing || ws->finished)
        return;
    ws->closing = true;
    ws->close_code = code;
    size_t n = min_size(strlen(reason), REASON_MAX);
    memcpy(ws->close_reason, reason, n);
    if (ws->fd >= 0) /* before the handshake is complete the timeouts of the connection apply */
        ws_set_ping_timer(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS);
    ws_schedule_pump(ws, true);
}
