/* One connection to the jailer, shared by every sandbox of the drivers that it serves.
 *
 * A request is a heap object in a small hash by stream number. Its reply, or an error when there
 * will be none, is delivered exactly once and never from inside the call that made the request.
 *
 * Invariants:
 * 1. A sandbox that the jailer created for a request that is no longer wanted is destroyed at
 *    once.
 * 2. Descriptors that came with a reply are closed here unless the callback took them.
 * 3. on_lost follows the answers to all open requests. */
#include "sandbox/jailed/jailed_internal.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

/* --- requests --- */

static struct jailed_request **jailed_request_bucket(struct jailed_link *l, uint32_t stream)
{
    return &l->requests[(stream >> 1) % JAILED_REQUEST_BUCKETS];
}

static struct jailed_request **jailed_find_request(struct jailed_link *l, uint32_t stream)
{
    struct jailed_request **p = jailed_request_bucket(l, stream);

    while (*p && (*p)->stream != stream)
        p = &(*p)->next;
    return p;
}

static uint32_t jailed_next_stream(struct jailed_link *l)
{
    do
        l->next_stream += 2;
    while (l->next_stream == 0 || *jailed_find_request(l, l->next_stream));
    return l->next_stream;
}

static void jailed_on_lost_timer(void *arg);

struct jailed_request *jailed_send(struct jailed_link *l, uint8_t type, const uint8_t *data, uint32_t len,
                                   const int *fds, size_t nfds, jailed_reply_fn *on_reply, void *owner)
{
    struct jailed_request *a = mem_new(struct jailed_request);
    struct frame f = { .type = type, .len = len, .data = data };

    f.stream = a->stream = jailed_next_stream(l);
    a->type = type;
    a->on_reply = on_reply;
    a->base.owner = owner;
    a->next = *jailed_request_bucket(l, a->stream);
    *jailed_request_bucket(l, a->stream) = a;
    if (l->base.lost)
        ev_timer_set(l->ev, &l->lost_timer, 0, jailed_on_lost_timer, l);
    else
        chan_send_fds(type == FRAME_J_DENIALS ? &l->monitor : &l->chan, &f, fds, nfds);
    return a;
}

struct jailed_request *jailed_send_id(struct jailed_link *l, uint8_t type, const char *id, jailed_reply_fn *on_reply,
                                      void *owner)
{
    struct jail_id m = { { 0 } };
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    struct jailed_request *a = jailed_send(l, type, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, on_reply, owner);
    memcpy(a->id, m.id, sizeof(a->id));
    return a;
}

void jailed_forget(struct driver_link *link, const void *owner)
{
    for (size_t i = 0; i < JAILED_REQUEST_BUCKETS; i++)
        for (struct jailed_request *a = jailed_link(link)->requests[i]; a; a = a->next)
            if (a->base.owner == owner)
                driver_request_forget(&a->base);
}

void jailed_on_done(struct jailed_link *l UNUSED, struct jailed_request *a, const struct jailed_reply *reply UNUSED,
                    const struct err *err)
{
    if (a->base.on.done)
        a->base.on.done(&a->base, err);
}

/* --- replies --- */

static uint8_t jailed_expected_reply(uint8_t type)
{
    switch (type) {
    case FRAME_J_CREATE:
    case FRAME_J_ADOPT:
        return FRAME_J_CREATED;
    case FRAME_J_STATS:
    case FRAME_J_DESTROY:
    case FRAME_J_LIST:
        return FRAME_DONE;
    case FRAME_J_DENIALS:
        return FRAME_J_DENIED;
    default:
        return FRAME_J_OK;
    }
}

/* The jailer and the monitor have separate channels, and neither may answer for the other. */
int jailed_take_reply(struct jailed_link *l, bool from_monitor, const struct jailed_reply *reply, struct err *err)
{
    const struct frame *f = reply->f;
    struct jailed_request **p = jailed_find_request(l, f->stream);
    struct jailed_request *a = *p;
    struct rt_error m;
    struct err reported = { 0 };

    if (!a || (a->type == FRAME_J_DENIALS) != from_monitor)
        return err_set(err, ERR_PROTOCOL, "%s does not answer a request", frame_name(f->type));
    if (f->type == FRAME_J_ERROR) {
        if (rt_error_decode(f, &m, err) < 0)
            return -1;
        rt_error_to_err(&m, &reported);
    } else if (f->type != jailed_expected_reply(a->type)) {
        return err_set(err, ERR_PROTOCOL, "%s is not an answer to %s", frame_name(f->type), frame_name(a->type));
    }
    *p = a->next;
    a->on_reply(l, a, reported.id ? NULL : reply, reported.id ? &reported : NULL);
    free(a);
    return 0;
}

/* --- loss --- */

static struct jailed_request *jailed_pop_request(struct jailed_link *l, bool monitor_only)
{
    for (size_t i = 0; i < JAILED_REQUEST_BUCKETS; i++)
        for (struct jailed_request **p = &l->requests[i]; *p; p = &(*p)->next)
            if (!monitor_only || (*p)->type == FRAME_J_DENIALS) {
                struct jailed_request *a = *p;

                *p = a->next;
                return a;
            }
    return NULL;
}

void jailed_fail_requests(struct jailed_link *l, bool monitor_only, const struct err *why)
{
    for (struct jailed_request *a; (a = jailed_pop_request(l, monitor_only));) {
        a->on_reply(l, a, NULL, why);
        free(a);
    }
}

static void jailed_on_lost_timer(void *arg)
{
    struct jailed_link *l = arg;

    driver_callback_begin();
    jailed_fail_requests(l, false, &l->base.why);
    if (l->base.events)
        l->base.events->on_lost(l->base.arg, &l->base);
    driver_callback_end();
}

static void jailed_set_lost(struct jailed_link *l, const struct err *why)
{
    if (l->base.lost)
        return;
    l->base.lost = true;
    l->base.why = *why;
    err_wrap(&l->base.why, "jailer");
    chan_done(&l->chan);
    ev_timer_set(l->ev, &l->lost_timer, 0, jailed_on_lost_timer, l);
}

/* --- frames --- */

static int jailed_on_event(struct jailed_link *l, const struct frame *f, struct err *err)
{
    struct jail_event m;

    if (jail_event_decode(f, &m, err) < 0)
        return -1;
    if (m.kind == JAIL_EVENT_ENDED)
        l->base.events->on_exit(l->base.arg, m.id, m.status);
    else
        l->base.events->on_oom(l->base.arg, m.id);
    return 0;
}

static void jailed_on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct jailed_link *l = arg;
    struct jailed_reply reply = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };
    int rc;

    driver_callback_begin();
    if (f->type == FRAME_J_EVENT && f->stream == 0)
        rc = jailed_on_event(l, f, &err);
    else
        rc = jailed_take_reply(l, false, &reply, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if (rc < 0)
        jailed_set_lost(l, &err);
    driver_callback_end();
}

static void jailed_on_end(void *arg, const struct err *why)
{
    driver_callback_begin();
    jailed_set_lost(arg, why);
    driver_callback_end();
}

/* --- lifecycle --- */

int jailed_open(struct ev *ev, const struct driver_settings *s, const struct driver_events *events, void *arg,
                struct driver_link **ret, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = jailed_on_frame, .on_end = jailed_on_end };
    struct jailed_link *l = mem_new(struct jailed_link);

    l->base = (struct driver_link){
        .ops = &jailed_driver_ops, .events = events, .arg = arg, .denials_absent_why = "no monitor watches this sandbox"
    };
    l->ev = ev;
    if (chan_init(&l->chan, ev, s->jailer_fd, true, &ops, l, err) < 0) {
        free(l);
        return err_wrap(err, "connection to the jailer");
    }
    *ret = &l->base;
    return 0;
}

void jailed_close(struct driver_link *link)
{
    struct jailed_link *l = jailed_link(link);

    l->base.events = NULL;
    for (struct jailed_request *a; (a = jailed_pop_request(l, false));)
        free(a);
    ev_timer_clear(l->ev, &l->lost_timer);
    ev_timer_clear(l->ev, &l->monitor_timer);
    chan_done(&l->chan);
    chan_done(&l->monitor);
    free(take_ptr(&l->templates));
    l->ntemplates = 0;
    driver_free_deferred(l->ev, &l->defer, l);
}
