/* The connection to the monitor, which counts denied system calls.
 *
 * Sandboxes go on without the monitor: their denied calls return ENOSYS or wait for the next
 * monitor, and are not counted. */
#include "sandbox/jailed/jailed_internal.h"

#include "core/base/fd.h"

#include <errno.h>

#define MONITOR_WAIT_NS (50 * NS_PER_MS)
#define MONITOR_WAIT_MAX_NS (5 * NS_PER_S)

/* --- requests for denials --- */

static const char *jailed_denials_absent_why(const struct jail_denied *m)
{
    if (m->watched == JAIL_UNWATCHABLE && m->sys == EBUSY)
        return "another program on this host already listens to denied calls, and the kernel allows one listener";
    if (m->watched == JAIL_UNWATCHED || m->sys == EMFILE)
        return "the monitor already watches its maximum of sandboxes";
    if (m->watched != JAIL_WATCHED)
        return "this kernel does not support listening to denied calls";
    return NULL;
}

static int jailed_read_denials(const struct frame *f, struct driver_denials *ret, struct err *err)
{
    struct jail_denied m;

    _Static_assert(DRIVER_DENIALS_MAX == JAIL_DENIALS_MAX && DRIVER_DENIAL_ARGS == JAIL_DENIAL_ARGS,
                   "the answer has room for the message");
    if (jail_denied_decode(f, &m, err) < 0)
        return -1;
    ret->absent_why = jailed_denials_absent_why(&m);
    ret->overflow_count = m.overflow_count;
    ret->n = m.n;
    for (uint32_t i = 0; i < m.n; i++) {
        ret->entries[i] = (struct driver_denial){ .nr = m.entries[i].nr, .count = m.entries[i].count };
        memcpy(ret->entries[i].args, m.entries[i].args, sizeof(ret->entries[i].args));
    }
    return 0;
}

static void jailed_on_denials(struct jailed_link *l UNUSED, struct jailed_request *a, const struct jailed_reply *reply,
                              const struct err *err)
{
    struct driver_denials d = { 0 };
    struct err why = { 0 };

    if (!a->base.on.denials)
        return;
    if (!err && jailed_read_denials(reply->f, &d, &why) < 0)
        err = &why;
    a->base.on.denials(&a->base, err ? NULL : &d, err);
}

struct driver_request *jailed_denials(struct driver_link *l, const char *id, driver_denials_fn *fn, void *owner)
{
    struct jailed_request *a = jailed_send_id(jailed_link(l), FRAME_J_DENIALS, id, jailed_on_denials, owner);

    a->base.on.denials = fn;
    return &a->base;
}

bool jailed_has_unread_denials(struct driver_link *l)
{
    return chan_pending(&jailed_link(l)->monitor);
}

void jailed_forget_denials(struct driver_link *l, const char *id)
{
    struct jail_id m = { { 0 } };
    PAYLOAD(payload);

    if (l->denials_absent_why)
        return;
    memcpy(m.id, id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    chan_send(&jailed_link(l)->monitor,
              &(struct frame){ .type = FRAME_J_UNWATCH, .len = (uint32_t)len, .data = payload });
}

/* --- the connection --- */

static void jailed_request_monitor(void *arg);

/* A monitor that the jailer knows may be restarted; then a new connection must be requested. */
static void jailed_retry_monitor(struct jailed_link *l)
{
    if (!l->monitor_backoff.min_ns || l->base.lost)
        return;
    ev_timer_set(l->ev, &l->monitor_timer, ev_now(l->ev) + backoff_next(&l->monitor_backoff), jailed_request_monitor,
                 l);
}

static void jailed_on_monitor_end(void *arg, const struct err *why)
{
    struct jailed_link *l = arg;

    driver_callback_begin();
    chan_done(&l->monitor);
    l->base.events->on_denials_lost(l->base.arg, &l->base);
    jailed_retry_monitor(l);
    l->base.denials_absent_why = "the monitor was lost; after that, denied calls returned ENOSYS and were not counted";
    jailed_fail_requests(l, true, why);
    driver_callback_end();
}

static int jailed_on_denial_notice(struct jailed_link *l, const struct frame *f, struct err *err)
{
    struct jail_denial_notice m;

    if (jail_denial_notice_decode(f, &m, err) < 0)
        return -1;
    l->base.events->on_denial_notice(l->base.arg, m.id, m.watched == JAIL_WATCHED, m.refused);
    return 0;
}

static void jailed_on_monitor_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct jailed_link *l = arg;
    struct jailed_reply reply = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };

    driver_callback_begin();
    if ((f->type == FRAME_J_DENIAL_NOTICE ? jailed_on_denial_notice(l, f, &err)
                                          : jailed_take_reply(l, true, &reply, &err)) < 0)
        jailed_on_monitor_end(l, &err);
    driver_callback_end();
}

int jailed_set_monitor(struct driver_link *link, int monitor_fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = jailed_on_monitor_frame, .on_end = jailed_on_monitor_end };
    struct jailed_link *l = jailed_link(link);

    if (chan_init(&l->monitor, l->ev, monitor_fd, false, &ops, l, err) < 0)
        return err_wrap(err, "connection to the monitor");
    l->base.denials_absent_why = NULL;
    return 0;
}

static void jailed_on_monitor_reply(struct jailed_link *l, struct jailed_request *a UNUSED,
                                    const struct jailed_reply *reply, const struct err *err)
{
    if (!err && reply->nfds == 1 && jailed_set_monitor(&l->base, take_fd(&reply->fds[0]), NULL) == 0)
        backoff_reset(&l->monitor_backoff);
    else
        jailed_retry_monitor(l);
}

static void jailed_request_monitor(void *arg)
{
    jailed_send(arg, FRAME_J_MONITOR, NULL, 0, NULL, 0, jailed_on_monitor_reply, arg);
}

void jailed_connect_monitor(struct driver_link *link)
{
    struct jailed_link *l = jailed_link(link);

    l->monitor_backoff = (struct backoff){ .min_ns = MONITOR_WAIT_NS, .max_ns = MONITOR_WAIT_MAX_NS };
    jailed_request_monitor(l);
}
