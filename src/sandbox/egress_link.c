/* A request is one heap object in a list. Requests have the same time to live, so the list is
 * ordered by deadline and one timer serves it. The proxy answers in order, so an answer is found at
 * the head of the list.
 *
 * Without a connection a request is accepted too. It comes first in the list, and the timer answers
 * it in the next iteration of the loop.
 *
 * Invariants:
 * 1. A request is removed from the list before its callback is called, which may make others.
 * 2. An answer that belongs to no request is ignored: its request timed out or was forgotten. An
 *    answer of a wrong type, or with a wrong payload, ends the connection.
 * 3. Payloads of E_BIND hold secrets. They are not kept here. */
#include "sandbox/egress_link.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/wire/rt.h"
#include "core/wire/unix_listener.h"
#include "sandbox/driver/driver.h"

#define ANSWER_NS (4 * NS_PER_S)
#define RETRY_MIN_NS (10 * NS_PER_MS)
#define RETRY_MAX_NS (250 * NS_PER_MS)

static void egress_link_retry(struct egress_link *l);
static void egress_link_on_answer_timer(void *arg);

/* --- requests --- */

static void egress_link_set_timer(struct egress_link *l)
{
    if (l->head)
        ev_timer_set(l->ev, &l->answer_timer, l->head->deadline, egress_link_on_answer_timer, l);
    else
        ev_timer_clear(l->ev, &l->answer_timer);
}

static struct egress_request *egress_link_add(struct egress_link *l, uint8_t answer, const struct err *why)
{
    struct egress_request *r = mem_new(struct egress_request);

    l->next_stream = l->next_stream % UINT32_MAX + 1;
    r->stream = l->next_stream;
    r->answer = answer;
    r->sent = !why;
    if (why)
        r->why = *why;
    l->nsent += r->sent;
    r->deadline = ev_now(l->ev) + (why ? 0 : ANSWER_NS);
    /* Answers that are known already come first. */
    struct egress_request **at = l->tail && !why ? &l->tail->next : &l->head;
    while (*at && !(*at)->sent)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (!r->next)
        l->tail = r;
    egress_link_set_timer(l);
    return r;
}

static struct egress_request *egress_link_send(struct egress_link *l, uint8_t type, uint8_t answer, const uint8_t *data,
                                               uint32_t len)
{
    struct egress_request *r = egress_link_add(l, answer, l->connected ? NULL : &l->why);

    if (l->connected)
        chan_send(&l->chan, &(struct frame){ .type = type, .stream = r->stream, .len = len, .data = data });
    return r;
}

static struct egress_request *egress_link_send_id(struct egress_link *l, uint8_t type, uint8_t answer, const char *id)
{
    struct egress_id m;
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    int len = egress_id_encode(&m, payload, NULL);
    return egress_link_send(l, type, answer, payload, len > 0 ? (uint32_t)len : 0);
}

struct egress_request *egress_link_bind(struct egress_link *l, const uint8_t *payload, uint32_t len,
                                        egress_link_done_fn *fn, void *owner)
{
    struct egress_request *r = egress_link_send(l, FRAME_E_BIND, FRAME_E_BOUND, payload, len);

    r->on.done = fn;
    r->owner = owner;
    return r;
}

struct egress_request *egress_link_unbind(struct egress_link *l, const char *id, egress_link_report_fn *fn, void *owner)
{
    struct egress_request *r = egress_link_send_id(l, FRAME_E_UNBIND, FRAME_E_REPORTED, id);

    r->on.report = fn;
    r->owner = owner;
    return r;
}

struct egress_request *egress_link_report(struct egress_link *l, const char *id, egress_link_report_fn *fn, void *owner)
{
    struct egress_request *r = egress_link_send_id(l, FRAME_E_REPORT, FRAME_E_REPORTED, id);

    r->on.report = fn;
    r->owner = owner;
    return r;
}

struct egress_request *egress_link_list(struct egress_link *l, const char *id, egress_link_list_fn *fn, void *owner)
{
    struct egress_request *r = egress_link_send_id(l, FRAME_E_LIST, FRAME_E_LISTED, id);

    r->on.list = fn;
    r->owner = owner;
    return r;
}

struct egress_request *egress_link_refuse(struct egress_link *l, const struct err *why, egress_link_done_fn *fn,
                                          void *owner)
{
    struct egress_request *r = egress_link_add(l, FRAME_E_BOUND, why);

    r->on.done = fn;
    r->owner = owner;
    return r;
}

void egress_request_forget(struct egress_request *r)
{
    r->on.done = NULL;
    r->owner = NULL;
}

void egress_link_forget(struct egress_link *l, const void *owner)
{
    for (struct egress_request *r = l->head; r; r = r->next)
        if (r->owner == owner)
            egress_request_forget(r);
}

/* --- answers --- */

static struct egress_request *egress_link_remove(struct egress_link *l, struct egress_request **at)
{
    struct egress_request *r = *at;

    *at = r->next;
    l->nsent -= r->sent;
    if (l->tail == r) {
        l->tail = l->head;
        while (l->tail && l->tail->next)
            l->tail = l->tail->next;
    }
    return r;
}

static void egress_link_fail_request(struct egress_request *r, const struct err *err)
{
    if (!r->on.done)
        return;
    if (r->answer == FRAME_E_BOUND)
        r->on.done(r, err);
    else if (r->answer == FRAME_E_REPORTED)
        r->on.report(r, NULL, err);
    else
        r->on.list(r, NULL, err);
}

/* Answers the requests that were refused or timed out, or with `lost` those that were sent.
 * Requests that the callbacks make come later in time, so that a client that repeats a request when
 * it fails cannot hold the loop. */
static void egress_link_fail_due(struct egress_link *l, bool lost, const struct err *why)
{
    uint32_t newest = l->next_stream;

    for (struct egress_request **at = &l->head; l->ops && *at;) {
        bool is_new = (int32_t)((*at)->stream - newest) > 0;
        bool is_due = lost ? (*at)->sent : !(*at)->sent || (*at)->deadline <= ev_now(l->ev);

        if (is_new || !is_due) {
            at = &(*at)->next;
            continue;
        }
        struct egress_request *r = egress_link_remove(l, at);
        egress_link_fail_request(r, r->sent ? why : &r->why);
        free(r);
        at = &l->head; /* the callback may have changed the list */
    }
}

static void egress_link_on_answer_timer(void *arg)
{
    struct egress_link *l = arg;
    struct err why;

    err_set(&why, ERR_NETWORK_UNAVAILABLE, "the egress proxy did not answer within %llu s", ANSWER_NS / NS_PER_S);
    driver_callback_begin();
    egress_link_fail_due(l, false, &why);
    if (l->ops) {
        egress_link_set_timer(l);
        l->ops->on_answered(l->arg);
    }
    driver_callback_end();
}

static int egress_link_read_answer(struct egress_request *r, const struct frame *f, struct err *err)
{
    /* 27 and 37 KiB: more than a stack should hold */
    static struct egress_reported reported;
    static struct egress_listed listed;

    if (f->type == FRAME_E_BOUND && f->len > 0)
        err_set(err, ERR_PROTOCOL, "E_BOUND with a payload");
    else if (f->type == FRAME_E_REPORTED)
        (void)egress_reported_decode(f, &reported, err);
    else if (f->type == FRAME_E_LISTED)
        (void)egress_listed_decode(f, &listed, err);
    if (err->id) {
        egress_link_fail_request(r, err);
        return -1;
    }
    if (!r->on.done)
        return 0;
    if (f->type == FRAME_E_BOUND)
        r->on.done(r, NULL);
    else if (f->type == FRAME_E_REPORTED)
        r->on.report(r, &reported, NULL);
    else
        r->on.list(r, &listed, NULL);
    return 0;
}

static int egress_link_take_answer(struct egress_link *l, const struct frame *f, struct err *err)
{
    struct egress_request **at = &l->head;
    struct rt_error m;
    struct err reported = { 0 };

    while (*at && (*at)->stream != f->stream)
        at = &(*at)->next;
    if (!*at)
        return 0;
    if (f->type == FRAME_E_ERROR) {
        if (rt_error_decode(f, &m, err) < 0)
            return -1;
        rt_error_to_err(&m, &reported);
    } else if (f->type != (*at)->answer) {
        return err_set(err, ERR_PROTOCOL, "%s is not the answer to a request", frame_name(f->type));
    }
    auto_free struct egress_request *r = egress_link_remove(l, at);
    egress_link_set_timer(l);
    if (reported.id)
        egress_link_fail_request(r, &reported);
    else if (egress_link_read_answer(r, f, err) < 0)
        return -1;
    if (l->ops)
        l->ops->on_answered(l->arg);
    return 0;
}

static int egress_link_on_used(struct egress_link *l, const struct frame *f, struct err *err)
{
    struct egress_secret_used m;

    if (egress_secret_used_decode(f, &m, err) < 0)
        return -1;
    l->ops->on_secret_used(l->arg, &m);
    return 0;
}

/* --- the connection --- */

static void egress_link_lost(struct egress_link *l, const struct err *why)
{
    if (!l->connected)
        return;
    l->connected = false;
    err_set(&l->why, ERR_NETWORK_UNAVAILABLE, "the egress proxy (cove-egress) is not running: %s", why->msg);
    chan_done(&l->chan);
    egress_link_fail_due(l, true, &l->why);
    if (!l->ops)
        return;
    egress_link_set_timer(l);
    l->ops->on_lost(l->arg);
    egress_link_retry(l);
}

static void egress_link_on_frame(void *arg, const struct frame *f, int *fds UNUSED, size_t nfds UNUSED)
{
    struct egress_link *l = arg;
    struct err err = { 0 };

    driver_callback_begin();
    if ((f->type == FRAME_E_SECRET ? egress_link_on_used(l, f, &err) : egress_link_take_answer(l, f, &err)) < 0)
        egress_link_lost(l, &err);
    driver_callback_end();
}

static void egress_link_on_end(void *arg, const struct err *why)
{
    driver_callback_begin();
    egress_link_lost(arg, why);
    driver_callback_end();
}

int egress_link_set(struct egress_link *l, int fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = egress_link_on_frame, .on_end = egress_link_on_end };

    if (chan_init(&l->chan, l->ev, fd, false, &ops, l, err) < 0)
        return err_wrap(err, "connection to the egress proxy");
    l->connected = true;
    return 0;
}

static void egress_link_try(void *arg)
{
    struct egress_link *l = arg;
    struct err err = { 0 };
    int fd;

    driver_callback_begin();
    if (unix_connect(l->path, &fd, NULL, &err) < 0 || egress_link_set(l, fd, &err) < 0) {
        err_set(&l->why, ERR_NETWORK_UNAVAILABLE, "the egress proxy (cove-egress) is not running: %s", err.msg);
        egress_link_retry(l);
    } else {
        backoff_reset(&l->backoff);
        l->ops->on_connected(l->arg);
    }
    driver_callback_end();
}

static void egress_link_retry(struct egress_link *l)
{
    if (l->path && l->ops)
        ev_timer_set(l->ev, &l->retry_timer, ev_now(l->ev) + backoff_next(&l->backoff), egress_link_try, l);
}

void egress_link_connect(struct egress_link *l, const char *path)
{
    l->path = str_dup(path);
    l->backoff = (struct backoff){ .min_ns = RETRY_MIN_NS, .max_ns = RETRY_MAX_NS };
    egress_link_try(l);
}

const char *egress_link_absent_why(const struct egress_link *l)
{
    return l->connected ? NULL : l->why.msg;
}

bool egress_link_reconnects(const struct egress_link *l)
{
    return l->path != NULL;
}

void egress_link_init(struct egress_link *l, struct ev *ev, const struct egress_link_ops *ops, void *arg)
{
    *l = (struct egress_link){ .ev = ev, .ops = ops, .arg = arg };
    err_set(&l->why, ERR_NETWORK_UNAVAILABLE, "this process has no egress proxy (cove-egress)");
}

void egress_link_done(struct egress_link *l)
{
    l->ops = NULL;
    l->connected = false;
    chan_done(&l->chan);
    ev_timer_clear(l->ev, &l->retry_timer);
    ev_timer_clear(l->ev, &l->answer_timer);
    while (l->head)
        free(egress_link_remove(l, &l->head));
    free(take_ptr(&l->path));
    l->tail = NULL;
}
