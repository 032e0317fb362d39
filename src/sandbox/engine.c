/* One connection to the jailer, shared by every sandbox_handle.
 *
 * A request is a heap object in a small hash by stream number. Its reply, or an error when there
 * will be none, is delivered exactly once and never from inside the call that made the request.
 * So callers have one code path: also on an engine that lost its jailer a request is accepted,
 * and answered a moment later with that loss.
 *
 * Invariants:
 * 1. A sandbox that the jailer created for a request that is no longer wanted is destroyed at
 *    once.
 * 2. Descriptors that came with a reply are closed here unless the callback took them.
 * 3. on_lost is called once, after every sandbox_handle was notified and has read all that its
 *    sandbox still sent. */
#include "sandbox/engine_internal.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <sys/resource.h>

#define MONITOR_WAIT_NS (50 * NS_PER_MS)
#define MONITOR_WAIT_MAX_NS (5 * NS_PER_S)

/* --- callbacks on the stack --- */

/* Per thread and not per engine, because a callback may free the engine that it came from. */
static _Thread_local int engine_callback_depth;

void engine_callback_begin(void)
{
    engine_callback_depth++;
}

void engine_callback_end(void)
{
    engine_callback_depth--;
}

void engine_free_deferred(struct ev *ev, struct ev_defer *d, void *mem)
{
    if (engine_callback_depth > 0)
        ev_defer(ev, d, free, mem);
    else
        free(mem);
}

/* --- requests --- */

static struct jailer_request **engine_request_bucket(struct engine *e, uint32_t stream)
{
    return &e->requests[(stream >> 1) % JAILER_REQUEST_BUCKETS];
}

static struct jailer_request **engine_find_request(struct engine *e, uint32_t stream)
{
    struct jailer_request **p = engine_request_bucket(e, stream);

    while (*p && (*p)->stream != stream)
        p = &(*p)->next;
    return p;
}

static uint32_t engine_next_stream(struct engine *e)
{
    do
        e->next_stream += 2;
    while (e->next_stream == 0 || *engine_find_request(e, e->next_stream));
    return e->next_stream;
}

static void engine_on_lost_timer(void *arg);

struct jailer_request *engine_request(struct engine *e, uint8_t type, const uint8_t *data, uint32_t len, const int *fds,
                                      size_t nfds, jailer_reply_fn *fn, void *owner)
{
    struct jailer_request *a = mem_new(struct jailer_request);
    struct frame f = { .type = type, .len = len, .data = data };

    f.stream = a->stream = engine_next_stream(e);
    a->type = type;
    a->on_reply = fn;
    a->owner = owner;
    a->next = *engine_request_bucket(e, a->stream);
    *engine_request_bucket(e, a->stream) = a;
    if (e->lost)
        ev_timer_set(e->ev, &e->lost_timer, 0, engine_on_lost_timer, e);
    else
        chan_send_fds(type == FRAME_J_DENIALS ? &e->monitor : &e->chan, &f, fds, nfds);
    return a;
}

struct jailer_request *engine_request_for_sandbox(struct engine *e, uint8_t type, const char *id, jailer_reply_fn *fn,
                                                  void *owner)
{
    struct jail_id m = { { 0 } };
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    struct jailer_request *a = engine_request(e, type, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, fn, owner);
    memcpy(a->id, m.id, sizeof(a->id));
    return a;
}

struct jailer_request *engine_request_denials(struct engine *e, const char *id, jailer_reply_fn *fn, void *owner)
{
    return engine_request_for_sandbox(e, FRAME_J_DENIALS, id, fn, owner);
}

bool engine_has_no_new_denials(const struct sandbox_handle *b)
{
    return !b->engine->monitor_absent_why && b->is_monitored && !b->has_new_denials &&
           !chan_pending(&b->engine->monitor);
}

void engine_forget_requests(struct engine *e, const void *owner)
{
    for (size_t i = 0; i < JAILER_REQUEST_BUCKETS; i++)
        for (struct jailer_request *a = e->requests[i]; a; a = a->next)
            if (a->owner == owner) {
                a->on_reply = NULL;
                a->owner = NULL;
            }
}

static uint8_t engine_expected_reply(uint8_t type)
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

void engine_error_from_wire(const struct rt_error *m, struct err *ret)
{
    enum err_id id = m->id > ERR_NONE && m->id < ERR_COUNT ? (enum err_id)m->id : ERR_BUG;

    err_set(ret, id, "%s", m->msg);
    ret->sys = m->sys;
    str_strip_control_chars(ret->msg);
}

static void engine_complete_request(struct engine *e, struct jailer_request *a, const struct jailer_reply *ans,
                                    const struct err *err)
{
    if (a->on_reply)
        a->on_reply(a, ans, err);
    else if (a->type == FRAME_J_CREATE && !err)
        engine_request_for_sandbox(e, FRAME_J_DESTROY, a->id, NULL, NULL);
    free(a);
}

static void engine_on_list_reply(struct jailer_request *ask, const struct jailer_reply *a, const struct err *err)
{
    static struct jail_list m; /* 24 KiB: more than a stack should hold */
    struct err why = { 0 };

    if (err || jail_list_decode(a->f, &m, &why) < 0)
        ask->on_list(ask->done_arg, NULL, 0, err ? err : &why);
    else
        ask->on_list(ask->done_arg, m.ids, m.n, NULL);
}

void engine_list_sandboxes(struct engine *e, const char *after, engine_list_fn *fn, void *arg)
{
    struct jailer_request *a = after ? engine_request_for_sandbox(e, FRAME_J_LIST, after, engine_on_list_reply, e)
                                     : engine_request(e, FRAME_J_LIST, NULL, 0, NULL, 0, engine_on_list_reply, e);

    _Static_assert(ENGINE_LIST_MAX == JAIL_LIST_MAX, "a full list is known by its length");
    a->on_list = fn;
    a->done_arg = arg;
}

void engine_destroy_sandbox(struct engine *e, const char *id)
{
    if (id_valid(id, "sb"))
        engine_request_for_sandbox(e, FRAME_J_DESTROY, id, NULL, NULL);
}

/* --- loss --- */

static struct jailer_request *engine_pop_request(struct engine *e)
{
    for (size_t i = 0; i < JAILER_REQUEST_BUCKETS; i++)
        if (e->requests[i]) {
            struct jailer_request *a = e->requests[i];

            e->requests[i] = a->next;
            return a;
        }
    return NULL;
}

static bool engine_has_unfinished_handles(const struct engine *e)
{
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (const struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (sandbox_handle_is_unfinished(b))
                return true;
    return false;
}

static void engine_notify_handles_lost(struct engine *e)
{
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            sandbox_handle_jailer_lost(b, &e->why);
}

static void engine_on_lost_timer(void *arg)
{
    struct engine *e = arg;

    engine_callback_begin();
    for (struct jailer_request *a; (a = engine_pop_request(e));)
        engine_complete_request(e, a, NULL, &e->why);
    engine_notify_handles_lost(e);
    if (!e->lost_reported && !engine_has_unfinished_handles(e)) {
        e->lost_reported = true;
        if (e->ops && e->ops->on_lost)
            e->ops->on_lost(e->arg, &e->why);
    }
    engine_callback_end();
}

static void engine_set_lost(struct engine *e, const struct err *why)
{
    if (e->lost)
        return;
    e->lost = true;
    e->why = *why;
    err_wrap(&e->why, "jailer");
    chan_done(&e->chan);
    ev_timer_set(e->ev, &e->lost_timer, 0, engine_on_lost_timer, e);
}

void engine_maybe_report_lost(struct engine *e)
{
    if (e->lost && !e->lost_reported)
        ev_timer_set(e->ev, &e->lost_timer, 0, engine_on_lost_timer, e);
}

/* --- frames --- */

static struct sandbox_handle *engine_find_handle(struct engine *e, const char *id);

static int engine_on_jailer_event(struct engine *e, const struct frame *f, struct err *err)
{
    struct jail_event m;

    if (jail_event_decode(f, &m, err) < 0)
        return -1;
    struct sandbox_handle *b = engine_find_handle(e, m.id);
    if (b)
        sandbox_handle_on_jailer_event(b, &m);
    return 0;
}

/* The jailer and the monitor have separate channels, and neither may answer for the other. */
static int engine_on_reply(struct engine *e, bool monitor, const struct jailer_reply *ans, struct err *err)
{
    const struct frame *f = ans->f;
    struct jailer_request **p = engine_find_request(e, f->stream);
    struct jailer_request *a = *p;
    struct rt_error m;
    struct err reported = { 0 };

    if (!a || (a->type == FRAME_J_DENIALS) != monitor)
        return err_set(err, ERR_PROTOCOL, "%s does not answer a request", frame_name(f->type));
    if (f->type == FRAME_J_ERROR) {
        if (rt_error_decode(f, &m, err) < 0)
            return -1;
        engine_error_from_wire(&m, &reported);
    } else if (f->type != engine_expected_reply(a->type)) {
        return err_set(err, ERR_PROTOCOL, "%s is not an answer to %s", frame_name(f->type), frame_name(a->type));
    }
    *p = a->next;
    engine_complete_request(e, a, reported.id ? NULL : ans, reported.id ? &reported : NULL);
    return 0;
}

static void engine_on_jailer_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct engine *e = arg;
    struct jailer_reply ans = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };
    int rc;

    engine_callback_begin();
    if (f->type == FRAME_J_EVENT && f->stream == 0)
        rc = engine_on_jailer_event(e, f, &err);
    else
        rc = engine_on_reply(e, false, &ans, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if (rc < 0)
        engine_set_lost(e, &err);
    engine_callback_end();
}

static void engine_on_jailer_end(void *arg, const struct err *why)
{
    struct engine *e = arg;

    engine_callback_begin();
    engine_set_lost(e, why);
    engine_callback_end();
}

static const struct chan_ops engine_jailer_chan_ops = { .on_frame = engine_on_jailer_frame,
                                                        .on_end = engine_on_jailer_end };

/* --- the monitor --- */

static struct jailer_request *engine_pop_monitor_request(struct engine *e)
{
    for (size_t i = 0; i < JAILER_REQUEST_BUCKETS; i++)
        for (struct jailer_request **p = &e->requests[i]; *p; p = &(*p)->next)
            if ((*p)->type == FRAME_J_DENIALS) {
                struct jailer_request *a = *p;

                *p = a->next;
                return a;
            }
    return NULL;
}

static void engine_request_monitor(void *arg);

/* A monitor that the jailer knows may be restarted; then a new connection must be requested. */
static void engine_retry_monitor(struct engine *e)
{
    if (!e->monitor_backoff.min_ns || e->lost)
        return;
    ev_timer_set(e->ev, &e->monitor_timer, ev_now(e->ev) + backoff_next(&e->monitor_backoff), engine_request_monitor,
                 e);
}

/* Sandboxes go on without the monitor: their denied calls return ENOSYS or wait for the next
 * monitor, and are not counted. */
static void engine_on_monitor_end(void *arg, const struct err *why)
{
    struct engine *e = arg;

    engine_callback_begin();
    chan_done(&e->monitor);
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            denials_monitor_lost(b);
    engine_retry_monitor(e);
    e->monitor_absent_why = "the monitor was lost; after that, denied calls returned ENOSYS and were not counted";
    for (struct jailer_request *a; (a = engine_pop_monitor_request(e));)
        engine_complete_request(e, a, NULL, why);
    engine_callback_end();
}

static int engine_on_denial_notice(struct engine *e, const struct frame *f, struct err *err)
{
    struct jail_denial_notice m;

    if (jail_denial_notice_decode(f, &m, err) < 0)
        return -1;
    struct sandbox_handle *b = engine_find_handle(e, m.id);
    if (b && m.watched == JAIL_WATCHED)
        b->is_monitored = true;
    if (b)
        b->has_new_denials |= m.refused;
    return 0;
}

static void engine_on_monitor_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct engine *e = arg;
    struct jailer_reply ans = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };

    engine_callback_begin();
    if ((f->type == FRAME_J_DENIAL_NOTICE ? engine_on_denial_notice(e, f, &err)
                                          : engine_on_reply(e, true, &ans, &err)) < 0)
        engine_on_monitor_end(e, &err);
    engine_callback_end();
}

int engine_set_monitor(struct engine *e, int monitor_fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = engine_on_monitor_frame, .on_end = engine_on_monitor_end };

    if (chan_init(&e->monitor, e->ev, monitor_fd, false, &ops, e, err) < 0)
        return err_wrap(err, "connection to the monitor");
    e->monitor_absent_why = NULL;
    return 0;
}

static void engine_on_monitor_reply(struct jailer_request *ask, const struct jailer_reply *a, const struct err *err)
{
    struct engine *e = ask->owner;

    if (!err && a->nfds == 1 && engine_set_monitor(e, take_fd(&a->fds[0]), NULL) == 0)
        backoff_reset(&e->monitor_backoff);
    else
        engine_retry_monitor(e);
}

static void engine_request_monitor(void *arg)
{
    engine_request(arg, FRAME_J_MONITOR, NULL, 0, NULL, 0, engine_on_monitor_reply, arg);
}

void engine_connect_monitor(struct engine *e)
{
    e->monitor_backoff = (struct backoff){ .min_ns = MONITOR_WAIT_NS, .max_ns = MONITOR_WAIT_MAX_NS };
    engine_request_monitor(e);
}

/* --- sandbox handles --- */

static struct sandbox_handle **engine_handle_bucket(struct engine *e, const char *id)
{
    return &e->handles[hash_str(HASH_INIT, id) % SANDBOX_HANDLE_BUCKETS];
}

static struct sandbox_handle *engine_find_handle(struct engine *e, const char *id)
{
    struct sandbox_handle *b = *engine_handle_bucket(e, id);

    while (b && strcmp(b->id, id) != 0)
        b = b->next;
    return b;
}

void engine_add_handle(struct engine *e, struct sandbox_handle *b)
{
    struct sandbox_handle **p = engine_handle_bucket(e, b->id);

    b->next = *p;
    *p = b;
    e->nhandles++;
}

void engine_remove_handle(struct engine *e, struct sandbox_handle *b)
{
    struct sandbox_handle **p = engine_handle_bucket(e, b->id);

    while (*p && *p != b)
        p = &(*p)->next;
    if (!*p)
        return;
    *p = b->next;
    e->nhandles--;
    if (!e->monitor_absent_why) {
        struct jail_id m = { { 0 } };
        PAYLOAD(payload);

        memcpy(m.id, b->id, sizeof(m.id));
        int len = jail_id_encode(&m, payload, NULL);
        chan_send(&e->monitor, &(struct frame){ .type = FRAME_J_UNWATCH, .len = (uint32_t)len, .data = payload });
    }
}

/* --- lifecycle --- */

uint64_t engine_max_sandboxes(uint64_t nofile)
{
    return (nofile - min_u64(OTHER_FDS, nofile / 2)) / SANDBOX_HANDLE_FDS;
}

int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct engine *e = mem_new(struct engine);
    struct rlimit files = { .rlim_cur = 0 };

    (void)getrlimit(RLIMIT_NOFILE, &files);
    e->max_handles = engine_max_sandboxes(files.rlim_cur);
    e->ev = ev;
    e->ops = ops;
    e->arg = arg;
    e->cores = cores > 0 ? (uint32_t)cores : 1;
    e->monitor_absent_why = "no monitor watches this sandbox";
    if (chan_init(&e->chan, ev, jailer_fd, true, &engine_jailer_chan_ops, e, err) < 0) {
        free(e);
        return err_wrap(err, "connection to the jailer");
    }
    *ret = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    e->ops = NULL;
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        while (e->handles[i])
            sandbox_handle_detach_engine(e->handles[i]);
    for (struct jailer_request *a; (a = engine_pop_request(e));)
        free(a);
    ev_timer_clear(e->ev, &e->lost_timer);
    ev_timer_clear(e->ev, &e->monitor_timer);
    chan_done(&e->chan);
    free(take_ptr(&e->templates));
    e->ntemplates = 0;
    chan_done(&e->monitor);
    engine_free_deferred(e->ev, &e->defer, e);
}
