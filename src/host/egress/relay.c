/* Bytes are read into the scratch memory that all relays share and written at once; only what the
 * receiver does not take is copied into a buffer of the direction. Most connections never have one.
 *
 * splice(2) was tried: between TCP sockets it moved no more bytes, and its pipe costs two
 * descriptors for each direction. */
#include "host/egress/relay.h"

#include "core/base/mem.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define READS_PER_CALL 4
#define RETRY_NS (20 * NS_PER_MS)

struct relay_direction {
    struct relay *relay;
    struct ev_io *from, *to;
    uint8_t *buffer; /* NULL: nothing is held back */
    size_t start, len;
    size_t held; /* counted in shares */
    bool is_inspected;
    bool has_ended, end_sent;
};

struct relay {
    struct relay_shared *shared;
    struct share_tenant *tenant;
    const struct relay_ops *ops;
    void *arg;
    struct ev_io client, server;
    struct relay_direction up, down; /* to the server, to the client */
    uint64_t active_at;
    struct ev_timer idle_timer, retry_timer;
    struct ev_defer start_defer, end_defer;
    bool is_over;
    enum relay_end end;
};

static void relay_set_interest(struct relay *r)
{
    struct relay_direction *up = &r->up, *down = &r->down;
    bool paused = r->retry_timer.slot;
    bool up_waits = up->len > 0 && !up->is_inspected, down_waits = down->len > 0;
    bool reads_client = !up->has_ended && !up_waits && !paused && up->len < RELAY_BUFFER;
    bool reads_server = !down->has_ended && !down_waits && !paused;

    ev_io_set(r->shared->ev, &r->client, (reads_client ? EPOLLIN : 0u) | (down_waits ? EPOLLOUT : 0u));
    ev_io_set(r->shared->ev, &r->server, (reads_server ? EPOLLIN : 0u) | (up_waits ? EPOLLOUT : 0u));
}

static void relay_report_end(void *arg)
{
    struct relay *r = arg;

    r->ops->on_end(r->arg, r->end);
}

static void relay_end(struct relay *r, enum relay_end why)
{
    if (r->is_over)
        return;
    r->is_over = true;
    r->end = why;
    ev_io_del(r->shared->ev, &r->client);
    ev_io_del(r->shared->ev, &r->server);
    ev_defer(r->shared->ev, &r->end_defer, relay_report_end, r);
}

static void relay_release_buffer(struct relay_direction *d)
{
    struct relay *r = d->relay;

    shares_unbuffer(r->shared->shares, r->tenant, d->held);
    free(d->buffer);
    d->buffer = NULL;
    d->start = d->len = d->held = 0;
}

/* `n` bytes that could not be sent now. */
static void relay_hold(struct relay_direction *d, const uint8_t *data, size_t n)
{
    if (!d->buffer) {
        d->held = d->is_inspected ? RELAY_BUFFER : n;
        d->buffer = mem_resize(NULL, d->held, 1);
        shares_buffer(d->relay->shared->shares, d->relay->tenant, d->held);
    }
    memcpy(d->buffer + d->start + d->len, data, n);
    d->len += n;
}

/* Returns false if the relay is over. */
static bool relay_count(struct relay_direction *d, size_t n)
{
    struct relay *r = d->relay;

    shares_count_moved(r->tenant, n);
    r->active_at = ev_now(r->shared->ev);
    if (d == &r->up ? r->ops->on_bytes(r->arg, n, 0) : r->ops->on_bytes(r->arg, 0, n))
        return true;
    relay_end(r, RELAY_STOPPED);
    return false;
}

/* Passes the end on when everything before it was sent. */
static void relay_pass_end(struct relay_direction *d)
{
    struct relay *r = d->relay;

    if (!d->has_ended || d->end_sent || d->len > 0)
        return;
    d->end_sent = true;
    (void)shutdown(d->to->fd, SHUT_WR);
    if (r->up.end_sent && r->down.end_sent)
        relay_end(r, RELAY_FINISHED);
}

/* Sends and returns how much; -1: the relay is over. */
static ssize_t relay_send(struct relay_direction *d, const uint8_t *data, size_t n)
{
    ssize_t sent = send(d->to->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        relay_end(d->relay, RELAY_BROKEN);
        return -1;
    }
    if (sent <= 0)
        return 0;
    return relay_count(d, (size_t)sent) ? sent : -1;
}

static void relay_flush(struct relay_direction *d)
{
    if (d->len > 0) {
        ssize_t sent = relay_send(d, d->buffer + d->start, d->len);

        if (sent < 0)
            return;
        d->start += (size_t)sent;
        d->len -= (size_t)sent;
        if (d->len == 0)
            relay_release_buffer(d);
    }
    relay_pass_end(d);
}

static void relay_inspect(struct relay_direction *d)
{
    struct relay *r = d->relay;
    enum relay_verdict v = r->ops->inspect(r->arg, d->buffer, d->len, d->has_ended || d->len == RELAY_BUFFER);

    if (v == RELAY_MORE)
        return;
    if (v == RELAY_REFUSE) {
        relay_end(r, RELAY_REFUSED);
        return;
    }
    d->is_inspected = false;
    relay_flush(d);
}

static void relay_take(struct relay_direction *d, const uint8_t *data, size_t n)
{
    if (d->is_inspected) {
        relay_hold(d, data, n);
        relay_inspect(d);
        return;
    }
    ssize_t sent = relay_send(d, data, n);
    if (sent >= 0 && (size_t)sent < n)
        relay_hold(d, data + sent, n - (size_t)sent);
}

static void relay_resume(void *arg);

/* The tenant has moved its share of this turn: its connections continue after those of others. */
static bool relay_must_wait(struct relay *r)
{
    struct ev *ev = r->shared->ev;

    if (shares_may_move(r->shared->shares, r->tenant, ev_now(ev)))
        return false;
    if (!shares_may_buffer(r->shared->shares, r->tenant))
        ev_timer_set(ev, &r->retry_timer, ev_now(ev) + RETRY_NS, relay_resume, r);
    return true;
}

static void relay_resume(void *arg)
{
    struct relay *r = arg;

    (void)relay_must_wait(r);
    if (!r->retry_timer.slot)
        relay_set_interest(r);
}

static void relay_read(struct relay_direction *d)
{
    struct relay *r = d->relay;

    for (unsigned i = 0; i < READS_PER_CALL && !r->is_over && !d->has_ended; i++) {
        size_t room = d->is_inspected ? RELAY_BUFFER - d->len : RELAY_BUFFER;

        if ((d->len > 0 && !d->is_inspected) || room == 0 || relay_must_wait(r))
            return;
        ssize_t n = recv(d->from->fd, r->shared->scratch, room, MSG_DONTWAIT);
        if (n > 0) {
            relay_take(d, r->shared->scratch, (size_t)n);
        } else if (n == 0) {
            d->has_ended = true;
            if (d->is_inspected)
                relay_inspect(d);
            if (!r->is_over)
                relay_pass_end(d);
        } else if (errno != EAGAIN && errno != EINTR) {
            relay_end(r, RELAY_BROKEN);
        }
        if (n < (ssize_t)room)
            return;
    }
}

static void relay_on_ready(struct relay_direction *in, struct relay_direction *out, uint32_t events)
{
    struct relay *r = in->relay;

    if (events & EPOLLOUT)
        relay_flush(out);
    if (!r->is_over && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        relay_read(in);
    /* Reset while it is not read: nothing can be sent to it either. */
    if (!r->is_over && events & EPOLLERR)
        relay_end(r, RELAY_BROKEN);
    if (!r->is_over)
        relay_set_interest(r);
}

static void relay_on_client(void *arg, uint32_t events)
{
    struct relay *r = arg;

    relay_on_ready(&r->up, &r->down, events);
}

static void relay_on_server(void *arg, uint32_t events)
{
    struct relay *r = arg;

    relay_on_ready(&r->down, &r->up, events);
}

/* The timer is not moved with every byte; when it is due, it looks at the time of the last ones. */
static void relay_on_idle(void *arg)
{
    struct relay *r = arg;
    struct ev *ev = r->shared->ev;

    if (ev_now(ev) - r->active_at >= RELAY_IDLE_NS)
        relay_end(r, RELAY_IDLE);
    else
        ev_timer_set(ev, &r->idle_timer, r->active_at + RELAY_IDLE_NS, relay_on_idle, r);
}

static void relay_start(void *arg)
{
    struct relay *r = arg;

    if (r->up.len > 0 && r->up.is_inspected)
        relay_inspect(&r->up);
    else if (r->up.len > 0)
        relay_flush(&r->up);
    if (!r->is_over)
        relay_set_interest(r);
}

int relay_new(struct relay_shared *shared, struct share_tenant *tenant, int client, int server, const void *first,
              size_t nfirst, const struct relay_ops *ops, void *arg, struct relay **ret, struct err *err)
{
    struct relay *r = mem_new(struct relay);
    struct ev *ev = shared->ev;

    r->shared = shared;
    r->tenant = tenant;
    r->ops = ops;
    r->arg = arg;
    r->up = (struct relay_direction){ .relay = r, .from = &r->client, .to = &r->server, .is_inspected = ops->inspect };
    r->down = (struct relay_direction){ .relay = r, .from = &r->server, .to = &r->client };
    if (ev_io_add(ev, &r->client, client, EPOLLIN, relay_on_client, r, err) < 0 ||
        ev_io_add(ev, &r->server, server, EPOLLIN, relay_on_server, r, err) < 0) {
        ev_io_del(ev, &r->client);
        free(r);
        return -1;
    }
    r->active_at = ev_now(ev);
    ev_timer_set(ev, &r->idle_timer, r->active_at + RELAY_IDLE_NS, relay_on_idle, r);
    if (nfirst > 0) {
        relay_hold(&r->up, first, min_size(nfirst, RELAY_BUFFER));
        ev_defer(ev, &r->start_defer, relay_start, r);
    }
    *ret = r;
    return 0;
}

void relay_free(struct relay *r)
{
    if (!r)
        return;
    struct ev *ev = r->shared->ev;
    ev_io_del(ev, &r->client);
    ev_io_del(ev, &r->server);
    ev_timer_clear(ev, &r->idle_timer);
    ev_timer_clear(ev, &r->retry_timer);
    ev_defer_clear(ev, &r->start_defer);
    ev_defer_clear(ev, &r->end_defer);
    relay_release_buffer(&r->up);
    relay_release_buffer(&r->down);
    free(r);
}
