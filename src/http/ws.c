/* One WebSocket on its own descriptor in our loop. wslay reads and writes frames; what it is given, when, and what
 * follows from it is decided here.
 *
 * Invariants:
 * 1. What a client can make us hold is bounded: a message by its size and its number of fragments (wslay allocates for
 *    each), all messages under way together by the bound for bodies, answers to pings by not reading while much waits
 *    to be sent.
 * 2. Frames are counted against a rate. Who is beyond it is not read from until it is not, which costs the client time
 *    and us nothing.
 * 3. A sign of life is a byte that came, or one that was taken after the socket had been full. Without one a ping is
 *    sent, and without one for as long again the socket is closed; unless it was us who did not read.
 * 4. A close frame overtakes messages in wslay's queues, so it is queued only when they are empty.
 * 5. After a frame that cannot be read, wslay sends a close frame without a code. The code is put in on its way out
 *    (on_send): it is the last frame, and its header is two bytes that nothing else in that position has. */
#include "http/inside.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

#define READ_MAX (64 * KIB) /* of one socket in a turn */
#define FRAGMENTS_MAX 1024u /* of a message */
#define CLOSE_MS 3000       /* for what still waits, and the other side's farewell */
#define REASON_MAX 123u
#define FRAME_COST 64u /* what a waiting frame counts beside its bytes */

struct http_ws {
    struct http_server *s;
    struct http_ws *prev, *next;
    const struct ws_ops *ops;
    void *arg;
    wslay_event_context_ptr ctx;
    struct buf early; /* came with the request */
    int fd;           /* -1 until the handshake is through */
    struct ev_io io;
    struct ev_timer clock; /* ping, or the end of patience */
    struct ev_timer thaw;  /* the rate allows more */
    struct ev_defer work, end;
    uint64_t alive_at, pinged_at;
    uint64_t rated_until; /* when the frames that came would have come at the allowed rate */
    uint64_t gathered;    /* bytes of the message that is coming */
    size_t budget;
    unsigned fragments;
    unsigned code; /* to be told */
    uint8_t addr[16];
    char reason[REASON_MAX + 1];
    uint8_t head[14], nhead; /* header of a frame, for wslay sent already; as long as the longest one */
    bool local;
    bool held, limited; /* not read from: by its owner, by the rate */
    bool full;          /* the writer was told to wait */
    bool took;          /* the kernel's queue has moved */
    bool look;          /* something may have come that the loop does not tell of */
    bool closing;       /* by our side, or after an error: messages are of no interest any more */
    bool unreadable;    /* what comes is thrown away */
    bool ended;         /* the other side sends no more */
    bool over;
};

static void pump(struct http_ws *ws);

static size_t waiting(const struct http_ws *ws)
{
    return wslay_event_get_queued_msg_length(ws->ctx) + FRAME_COST * wslay_event_get_queued_msg_count(ws->ctx);
}

static bool may_read(const struct http_ws *ws)
{
    return ws->closing || (!ws->held && !ws->limited && waiting(ws) < WS_HIGH);
}

/* --- the end --- */

static void unlink_ws(struct http_ws *ws)
{
    struct http_server *s = ws->s;

    *(ws->prev ? &ws->prev->next : &s->sockets) = ws->next;
    if (ws->next)
        ws->next->prev = ws->prev;
    s->stats.sockets--;
    s->buffered -= ws->gathered;
    ev_io_del(s->ev, &ws->io);
    ev_timer_clear(s->ev, &ws->clock);
    ev_timer_clear(s->ev, &ws->thaw);
    ev_defer_clear(s->ev, &ws->work);
    ev_defer_clear(s->ev, &ws->end);
    if (ws->fd >= 0)
        close(ws->fd);
}

static void tell_closed(void *arg)
{
    struct http_ws *ws = arg;
    struct http_server *s = ws->s;

    unlink_ws(ws);
    ws->ops->on_closed(ws->arg, ws->code);
    wslay_event_context_free(ws->ctx);
    buf_done(&ws->early);
    free(ws);
    server_conn_gone(s);
}

static void finish(struct http_ws *ws)
{
    if (ws->over)
        return;
    ws->over = true;
    ev_io_del(ws->s->ev, &ws->io);
    ev_defer(ws->s->ev, &ws->end, tell_closed, ws);
}

void ws_lost(struct http_ws *ws)
{
    ws->code = WS_ABNORMAL;
    finish(ws);
}

static void on_clock(void *arg);

static void set_clock(struct http_ws *ws, uint64_t at)
{
    ev_timer_set(ws->s->ev, &ws->clock, at, on_clock, ws);
}

/* --- what wslay asks --- */

static ssize_t wait_more(struct http_ws *ws)
{
    wslay_event_set_error(ws->ctx, WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *to, size_t len, int flags UNUSED, void *arg)
{
    struct http_ws *ws = arg;
    size_t n = min_size(len, ws->early.len);

    if (n > 0) {
        memcpy(to, ws->early.data, n);
        buf_drop(&ws->early, n);
        if (ws->early.len == 0)
            buf_done(&ws->early);
        return (ssize_t)n;
    }
    if (!may_read(ws) || ws->budget == 0)
        return wait_more(ws);
    ssize_t got = recv(ws->fd, to, min_size(len, ws->budget), MSG_DONTWAIT);
    if (got > 0) {
        ws->budget -= (size_t)got;
        ws->alive_at = ev_now(ws->s->ev);
        return got;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return wait_more(ws);
    ws->ended = true;
    wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

/* Behind the header of its frame, if that was kept. Of the header nothing is counted: it was told to be sent. */
static ssize_t send_behind(struct http_ws *ws, const uint8_t *data, size_t len)
{
    struct iovec parts[2] = { { ws->head, ws->nhead }, { (void *)(uintptr_t)data, len } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = 2 };
    ssize_t n;

    do
        n = sendmsg(ws->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    size_t of_head = min_size((size_t)n, ws->nhead);
    memmove(ws->head, ws->head + of_head, ws->nhead - of_head);
    ws->nhead = (uint8_t)(ws->nhead - of_head);
    if ((size_t)n > of_head)
        return n - (ssize_t)of_head;
    errno = EAGAIN;
    return -1;
}

/* wslay sends a header and then what is in the frame; with many viewers of one terminal a system call for each is half
 * of all that is done. So a header waits for its frame. */
static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
    static const uint8_t bare[2] = { 0x88, 0 }, coded[4] = { 0x88, 2, WS_PROTOCOL >> 8, WS_PROTOCOL & 0xff };
    struct http_ws *ws = arg;
    bool put_code = ws->unreadable && len == sizeof(bare) && memcmp(data, bare, sizeof(bare)) == 0;

    if ((flags & WSLAY_MSG_MORE) && ws->nhead == 0 && len <= sizeof(ws->head)) {
        memcpy(ws->head, data, len);
        ws->nhead = (uint8_t)len;
        return (ssize_t)len;
    }
    ssize_t n = put_code ? send_behind(ws, coded, sizeof(coded)) : send_behind(ws, data, len);
    if (n > 0 && ws->took)
        ws->alive_at = ev_now(ws->s->ev);
    if (n > 0)
        return put_code ? (ssize_t)sizeof(bare) : n;
    if (n < 0 && errno == EAGAIN)
        return wait_more(ws);
    ws->ended = true;
    wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void on_thaw(void *arg)
{
    struct http_ws *ws = arg;

    ws->limited = false;
    pump(ws);
}

/* A bucket of two seconds' worth of frames, kept as one instant. */
static void count_frame(struct http_ws *ws)
{
    uint64_t now = ev_now(ws->s->ev), window = 2 * NS_PER_S;

    ws->rated_until = max_u64(ws->rated_until, now) + NS_PER_S / ws->s->set.limits.ws_rate;
    if (ws->rated_until <= now + window)
        return;
    ws->limited = true;
    ev_timer_set(ws->s->ev, &ws->thaw, ws->rated_until - window + window / 8, on_thaw, ws);
}

/* In the middle of what it sends: the rest is thrown away. */
static void refuse(struct http_ws *ws, unsigned code, const char *why)
{
    ws_close(ws, code, why);
    ws->unreadable = true;
    wslay_event_shutdown_read(ws->ctx);
}

static void on_frame(wslay_event_context_ptr ctx UNUSED, const struct wslay_event_on_frame_recv_start_arg *f, void *arg)
{
    struct http_ws *ws = arg;
    struct http_server *s = ws->s;

    count_frame(ws);
    if (wslay_is_ctrl_frame(f->opcode) || ws->closing)
        return;
    ws->fragments = f->opcode == WSLAY_CONTINUATION_FRAME ? ws->fragments + 1 : 0;
    if (f->payload_length > s->set.limits.buffered_max - min_u64(s->buffered, s->set.limits.buffered_max)) {
        refuse(ws, WS_TRY_AGAIN, "the server holds as many messages as it has memory for");
        return;
    }
    ws->gathered += f->payload_length;
    s->buffered += f->payload_length;
    if (ws->fragments > FRAGMENTS_MAX)
        refuse(ws, WS_TOO_BIG, "a message in more than 1024 fragments");
}

static void on_message(wslay_event_context_ptr ctx UNUSED, const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
    struct http_ws *ws = arg;

    if (m->opcode == WSLAY_CONNECTION_CLOSE && !ws->closing) {
        ws->code = m->status_code ? m->status_code : WSLAY_CODE_NO_STATUS_RCVD;
        set_clock(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS); /* wslay has queued our own */
    }
    if (wslay_is_ctrl_frame(m->opcode))
        return;
    ws->s->buffered -= ws->gathered;
    ws->gathered = 0;
    if (!ws->closing)
        ws->ops->on_message(ws->arg, m->opcode == WSLAY_TEXT_FRAME, m->msg ? (const char *)m->msg : "", m->msg_length);
}

/* --- reading, writing, waiting --- */

static void discard(struct http_ws *ws)
{
    char waste[4096] __attribute__((uninitialized));

    while (!ws->ended && ws->budget > 0) {
        ssize_t n = recv(ws->fd, waste, sizeof(waste), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            ws->ended = true;
        else
            ws->budget -= min_size((size_t)n, ws->budget);
    }
}

static void receive(struct http_ws *ws)
{
    ws->budget = READ_MAX;
    if (!ws->unreadable && wslay_event_get_read_enabled(ws->ctx)) {
        int rc = wslay_event_recv(ws->ctx);

        if (!wslay_event_get_read_enabled(ws->ctx) && !wslay_event_get_close_received(ws->ctx) && !ws->ended) {
            ws->unreadable = true;
            if (!ws->closing) { /* wslay has queued why */
                ws->closing = true;
                ws->code = rc == 0 ? 0 : WS_PROTOCOL;
                set_clock(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS);
            }
        }
    } else {
        discard(ws);
    }
}

static void transmit(struct http_ws *ws)
{
    for (;;) {
        if (wslay_event_want_write(ws->ctx) && wslay_event_send(ws->ctx) < 0)
            ws->ended = true;
        if (!ws->reason[0] || wslay_event_get_queued_msg_count(ws->ctx) > 0 || ws->ended)
            return;
        (void)wslay_event_queue_close(ws->ctx, (uint16_t)ws->code, (const uint8_t *)ws->reason, strlen(ws->reason));
        ws->reason[0] = '\0';
    }
}

/* True: nothing is left to be done on this socket. */
static bool is_done(struct http_ws *ws)
{
    bool said = wslay_event_get_close_sent(ws->ctx), heard = wslay_event_get_close_received(ws->ctx);

    if (said && ws->code == 0)
        ws->code = wslay_event_get_status_code_sent(ws->ctx);
    if (ws->ended && ws->code == 0)
        ws->code = WS_ABNORMAL;
    if (said && ws->unreadable && !ws->ended)
        shutdown(ws->fd, SHUT_WR); /* closing now, with bytes unread, would take the farewell back */
    return ws->ended || (said && heard);
}

static void on_io(void *arg, uint32_t events)
{
    struct http_ws *ws = arg;

    ws->took = events & EPOLLOUT;
    if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN)) {
        ws->ended = true; /* it would be told again and again */
        ws->code = ws->code ? ws->code : WS_ABNORMAL;
        finish(ws);
        return;
    }
    pump(ws);
    ws->took = false;
}

static void wait_for_more(struct http_ws *ws)
{
    uint32_t events = (may_read(ws) ? EPOLLIN : 0u) | (wslay_event_want_write(ws->ctx) ? EPOLLOUT : 0u);

    if (ws->io.events != events)
        ev_io_set(ws->s->ev, &ws->io, events);
}

static void flush(struct http_ws *ws)
{
    transmit(ws);
    if (ws->full && waiting(ws) <= WS_HIGH / 2 && !ws->closing && !ws->ended) {
        ws->full = false;
        ws->ops->on_room(ws->arg);
        transmit(ws);
    }
    if (is_done(ws))
        finish(ws);
    else
        wait_for_more(ws);
}

static void pump(struct http_ws *ws)
{
    if (ws->over || ws->fd < 0)
        return;
    ws->look = false;
    receive(ws);
    flush(ws);
}

static void on_work(void *arg)
{
    struct http_ws *ws = arg;

    if (ws->look)
        pump(ws);
    else if (!ws->over)
        flush(ws);
}

/* look: also whether something came; what is only sent does not need that, for then the loop tells it. */
static void kick(struct http_ws *ws, bool look)
{
    ws->look = ws->look || look;
    if (!ws->over && ws->fd >= 0)
        ev_defer(ws->s->ev, &ws->work, on_work, ws);
}

static void on_clock(void *arg)
{
    struct http_ws *ws = arg;
    uint64_t now = ev_now(ws->s->ev), gap = ws->s->set.limits.ws_ping_ms * NS_PER_MS;
    struct wslay_event_msg ping = { .opcode = WSLAY_PING };

    if (ws->closing || wslay_event_get_close_received(ws->ctx)) {
        ws->code = ws->code ? ws->code : WS_ABNORMAL;
        finish(ws);
        return;
    }
    if (ws->pinged_at > ws->alive_at && (ws->held || ws->limited))
        ws->pinged_at = now; /* its answer may be there, and it is us who do not look */
    if (ws->pinged_at > ws->alive_at && now >= ws->pinged_at + gap) {
        ws_close(ws, WS_INTERNAL, "no answer to a ping");
        return;
    }
    if (ws->pinged_at <= ws->alive_at && now >= ws->alive_at + gap) {
        (void)wslay_event_queue_msg(ws->ctx, &ping);
        ws->pinged_at = now;
        kick(ws, true);
    }
    set_clock(ws, max_u64(ws->pinged_at, ws->alive_at) + gap);
}

/* --- its life --- */

int ws_room_for_one(const struct http_server *s, const struct conn *c, struct err *err)
{
    unsigned n = 0;

    if (s->stats.sockets >= s->set.limits.ws_max)
        return err_set(err, ERR_BUSY, "the server has %u WebSockets open, and no more at one time", s->stats.sockets);
    for (const struct http_ws *ws = s->sockets; ws && !c->peer.local; ws = ws->next)
        n += !ws->local && memcmp(ws->addr, c->addr, sizeof(ws->addr)) == 0;
    if (n >= s->set.limits.ws_per_addr)
        return err_set(err, ERR_BUSY, "this address has %u WebSockets open, and no more at one time", n);
    return 0;
}

struct http_ws *ws_new(struct http_server *s, const struct conn *c, const struct ws_ops *ops, void *arg)
{
    static const struct wslay_event_callbacks callbacks = { .recv_callback = on_recv,
                                                            .send_callback = on_send,
                                                            .on_frame_recv_start_callback = on_frame,
                                                            .on_msg_recv_callback = on_message };
    struct http_ws *ws = mem_new(struct http_ws);

    ws->s = s;
    ws->ops = ops;
    ws->arg = arg;
    ws->fd = -1;
    if (c) {
        ws->local = c->peer.local;
        memcpy(ws->addr, c->addr, sizeof(ws->addr));
    }
    if (wslay_event_context_server_init(&ws->ctx, &callbacks, ws) != 0)
        abort(); /* out of memory, as everywhere */
    wslay_event_config_set_max_recv_msg_length(ws->ctx, s->set.limits.ws_message_max);
    ws->next = s->sockets;
    if (ws->next)
        ws->next->prev = ws;
    s->sockets = ws;
    s->stats.sockets++;
    return ws;
}

void ws_opened(struct http_ws *ws, int fd, const char *early, size_t n)
{
    uint64_t now = ev_now(ws->s->ev);

    ws->fd = fd;
    if (fd < 0 || ev_io_add(ws->s->ev, &ws->io, fd, EPOLLIN, on_io, ws, NULL) < 0) {
        ws_lost(ws);
        return;
    }
    buf_add(&ws->early, early, n);
    if (n == 0)
        buf_done(&ws->early);
    ws->alive_at = now;
    set_clock(ws, now + (ws->closing ? CLOSE_MS : ws->s->set.limits.ws_ping_ms) * NS_PER_MS);
    kick(ws, true);
}

void ws_cut_all(struct http_server *s)
{
    for (struct http_ws *ws = s->sockets; ws; ws = ws->next)
        if (ws->fd >= 0)
            ws_lost(ws);
}

void ws_close_all(struct http_server *s)
{
    for (struct http_ws *ws = s->sockets; ws; ws = ws->next)
        ws_close(ws, WS_GOING_AWAY, "the server is stopping");
}

void ws_end_all(struct http_server *s)
{
    for (struct http_ws *ws = s->sockets, *next; ws; ws = next) {
        next = ws->next;
        ws->code = WS_GOING_AWAY;
        ws->over = true;
        tell_closed(ws);
    }
}

/* --- what its owner asks --- */

size_t ws_room(const struct http_ws *ws)
{
    size_t n = ws->closing || ws->over ? 0 : waiting(ws);

    return n < WS_HIGH ? WS_HIGH - n : 0;
}

bool ws_send(struct http_ws *ws, const void *text, size_t len)
{
    struct wslay_event_msg m = { WSLAY_TEXT_FRAME, text, len };

    if (ws->closing || ws->over)
        return true;
    (void)wslay_event_queue_msg(ws->ctx, &m); /* refuses after a close, and then it matters no more */
    kick(ws, false);
    ws->full = ws_room(ws) == 0;
    return !ws->full;
}

void ws_hold(struct http_ws *ws, bool hold)
{
    if (ws->held == hold)
        return;
    ws->held = hold;
    kick(ws, true);
}

void ws_close(struct http_ws *ws, unsigned code, const char *reason)
{
    if (ws->closing || ws->over)
        return;
    ws->closing = true;
    ws->code = code;
    size_t n = min_size(strlen(reason), REASON_MAX);
    memcpy(ws->reason, reason, n);
    if (ws->fd >= 0) /* before that, the clocks of the connection count */
        set_clock(ws, ev_now(ws->s->ev) + CLOSE_MS * NS_PER_MS);
    kick(ws, true);
}
