/* One connection to the jailer, shared by every box.
 *
 * A question is a heap object in a small hash by stream number; its answer, or the news that there will be none, is
 * delivered exactly once and never from inside the call that asked. So callers have one path: also on an engine that
 * lost its jailer a question is put and answered, a moment later, with that loss.
 *
 * Invariants:
 * 1. A sandbox that the jailer made for a question nobody waits for any more is destroyed at once.
 * 2. Descriptors that came with an answer are closed here unless the callee took them.
 * 3. on_lost is called once, after every box has been told and has drained what its sandbox still said. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <sys/resource.h>

#define MONITOR_WAIT_NS (50 * NS_PER_MS)
#define MONITOR_WAIT_MAX_NS (5 * NS_PER_S)

/* --- callbacks on the stack --- */

/* Of the thread and not of an engine, because a callback may free the engine it came from. */
static _Thread_local int depth;

void engine_enter(void)
{
    depth++;
}

void engine_leave(void)
{
    depth--;
}

void engine_release(struct ev *ev, struct ev_defer *d, void *mem)
{
    if (depth > 0)
        ev_defer(ev, d, free, mem);
    else
        free(mem);
}

/* --- questions --- */

static struct ask **bucket(struct engine *e, uint32_t stream)
{
    return &e->asks[(stream >> 1) % ASK_BUCKETS];
}

static struct ask **find_ask(struct engine *e, uint32_t stream)
{
    struct ask **p = bucket(e, stream);

    while (*p && (*p)->stream != stream)
        p = &(*p)->next;
    return p;
}

static uint32_t fresh_stream(struct engine *e)
{
    do
        e->next_stream += 2;
    while (e->next_stream == 0 || *find_ask(e, e->next_stream));
    return e->next_stream;
}

static void on_lost_timer(void *arg);

struct ask *engine_ask(struct engine *e, uint8_t type, const uint8_t *data, uint32_t len, const int *fds, size_t nfds,
                       ask_fn *fn, void *owner)
{
    struct ask *a = mem_new(struct ask);
    struct frame f = { .type = type, .len = len, .data = data };

    f.stream = a->stream = fresh_stream(e);
    a->type = type;
    a->fn = fn;
    a->owner = owner;
    a->next = *bucket(e, a->stream);
    *bucket(e, a->stream) = a;
    if (e->lost)
        ev_timer_set(e->ev, &e->lost_timer, 0, on_lost_timer, e);
    else
        chan_send_fds(type == FRAME_J_DENIALS ? &e->monitor : &e->chan, &f, fds, nfds);
    return a;
}

struct ask *engine_ask_id(struct engine *e, uint8_t type, const char *id, ask_fn *fn, void *owner)
{
    struct jail_id m = { { 0 } };
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    struct ask *a = engine_ask(e, type, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, fn, owner);
    memcpy(a->id, m.id, sizeof(a->id));
    return a;
}

void engine_ask_denials(struct engine *e, const char *id, ask_fn *fn, void *owner)
{
    engine_ask_id(e, FRAME_J_DENIALS, id, fn, owner);
}

bool engine_nothing_refused(const struct box *b)
{
    return !b->e->unwatched && b->watched && !b->refused && !chan_pending(&b->e->monitor);
}

void engine_forget(struct engine *e, const void *owner)
{
    for (size_t i = 0; i < ASK_BUCKETS; i++)
        for (struct ask *a = e->asks[i]; a; a = a->next)
            if (a->owner == owner) {
                a->fn = NULL;
                a->owner = NULL;
            }
}

static uint8_t expected_answer(uint8_t type)
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

void engine_error(const struct rt_error *m, struct err *ret)
{
    enum err_id id = m->id > ERR_NONE && m->id < ERR_COUNT ? (enum err_id)m->id : ERR_BUG;

    err_set(ret, id, "%s", m->msg);
    ret->sys = m->sys;
    str_tame(ret->msg);
}

static void answer_ask(struct engine *e, struct ask *a, const struct answer *ans, const struct err *err)
{
    if (a->fn)
        a->fn(a, ans, err);
    else if (a->type == FRAME_J_CREATE && !err)
        engine_ask_id(e, FRAME_J_DESTROY, a->id, NULL, NULL);
    free(a);
}

static void on_list(struct ask *ask, const struct answer *a, const struct err *err)
{
    static struct jail_list m; /* 24 KiB: more than a stack should hold */
    struct err why = { 0 };

    if (err || jail_list_decode(a->f, &m, &why) < 0)
        ask->list(ask->done_arg, NULL, 0, err ? err : &why);
    else
        ask->list(ask->done_arg, m.ids, m.n, NULL);
}

void engine_list(struct engine *e, const char *after, engine_list_fn *fn, void *arg)
{
    struct ask *a = after ? engine_ask_id(e, FRAME_J_LIST, after, on_list, e)
                          : engine_ask(e, FRAME_J_LIST, NULL, 0, NULL, 0, on_list, e);

    _Static_assert(ENGINE_LIST_MAX == JAIL_LIST_MAX, "a full list is known by its length");
    a->list = fn;
    a->done_arg = arg;
}

void engine_destroy(struct engine *e, const char *id)
{
    if (id_valid(id, "sb"))
        engine_ask_id(e, FRAME_J_DESTROY, id, NULL, NULL);
}

/* --- loss --- */

static struct ask *pop_ask(struct engine *e)
{
    for (size_t i = 0; i < ASK_BUCKETS; i++)
        if (e->asks[i]) {
            struct ask *a = e->asks[i];

            e->asks[i] = a->next;
            return a;
        }
    return NULL;
}

static bool boxes_unfinished(const struct engine *e)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (const struct box *b = e->boxes[i]; b; b = b->next)
            if (box_unfinished(b))
                return true;
    return false;
}

static void tell_boxes(struct engine *e)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = e->boxes[i]; b; b = b->next)
            box_jailer_lost(b, &e->why);
}

static void on_lost_timer(void *arg)
{
    struct engine *e = arg;

    engine_enter();
    for (struct ask *a; (a = pop_ask(e));)
        answer_ask(e, a, NULL, &e->why);
    tell_boxes(e);
    if (!e->told && !boxes_unfinished(e)) {
        e->told = true;
        if (e->ops && e->ops->on_lost)
            e->ops->on_lost(e->arg, &e->why);
    }
    engine_leave();
}

static void engine_lose(struct engine *e, const struct err *why)
{
    if (e->lost)
        return;
    e->lost = true;
    e->why = *why;
    err_wrap(&e->why, "jailer");
    chan_done(&e->chan);
    ev_timer_set(e->ev, &e->lost_timer, 0, on_lost_timer, e);
}

void engine_settle(struct engine *e)
{
    if (e->lost && !e->told)
        ev_timer_set(e->ev, &e->lost_timer, 0, on_lost_timer, e);
}

/* --- frames --- */

static struct box *find_box(struct engine *e, const char *id);

static int on_event(struct engine *e, const struct frame *f, struct err *err)
{
    struct jail_event m;

    if (jail_event_decode(f, &m, err) < 0)
        return -1;
    struct box *b = find_box(e, m.id);
    if (b)
        box_event(b, &m);
    return 0;
}

/* The jailer and the monitor are asked over channels of their own, and neither may answer for the other. */
static int on_answer(struct engine *e, bool monitor, const struct answer *ans, struct err *err)
{
    const struct frame *f = ans->f;
    struct ask **p = find_ask(e, f->stream);
    struct ask *a = *p;
    struct rt_error m;
    struct err told = { 0 };

    if (!a || (a->type == FRAME_J_DENIALS) != monitor)
        return err_set(err, ERR_PROTOCOL, "%s answers no question", frame_name(f->type));
    if (f->type == FRAME_J_ERROR) {
        if (rt_error_decode(f, &m, err) < 0)
            return -1;
        engine_error(&m, &told);
    } else if (f->type != expected_answer(a->type)) {
        return err_set(err, ERR_PROTOCOL, "%s is no answer to %s", frame_name(f->type), frame_name(a->type));
    }
    *p = a->next;
    answer_ask(e, a, told.id ? NULL : ans, told.id ? &told : NULL);
    return 0;
}

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct engine *e = arg;
    struct answer ans = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };
    int rc;

    engine_enter();
    if (f->type == FRAME_J_EVENT && f->stream == 0)
        rc = on_event(e, f, &err);
    else
        rc = on_answer(e, false, &ans, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if (rc < 0)
        engine_lose(e, &err);
    engine_leave();
}

static void on_end(void *arg, const struct err *why)
{
    struct engine *e = arg;

    engine_enter();
    engine_lose(e, why);
    engine_leave();
}

static const struct chan_ops chan_ops = { .on_frame = on_frame, .on_end = on_end };

/* --- the monitor --- */

static struct ask *pop_monitor_ask(struct engine *e)
{
    for (size_t i = 0; i < ASK_BUCKETS; i++)
        for (struct ask **p = &e->asks[i]; *p; p = &(*p)->next)
            if ((*p)->type == FRAME_J_DENIALS) {
                struct ask *a = *p;

                *p = a->next;
                return a;
            }
    return NULL;
}

static void ask_for_monitor(void *arg);

/* A monitor that the jailer knows may be restarted, and then there is another one to ask for. */
static void look_for_monitor(struct engine *e)
{
    if (!e->monitor_wait_ns || e->lost)
        return;
    ev_timer_set(e->ev, &e->monitor_timer, ev_now(e->ev) + e->monitor_wait_ns, ask_for_monitor, e);
    e->monitor_wait_ns = min_u64(e->monitor_wait_ns * 2, MONITOR_WAIT_MAX_NS);
}

/* Sandboxes go on without it: their refused calls answer ENOSYS or wait for the next one, and nobody knows of them. */
static void on_monitor_end(void *arg, const struct err *why)
{
    struct engine *e = arg;

    engine_enter();
    chan_done(&e->monitor);
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = e->boxes[i]; b; b = b->next)
            denials_lost(b);
    look_for_monitor(e);
    e->unwatched = "the monitor was lost; from then on refused calls answered ENOSYS and were not counted";
    for (struct ask *a; (a = pop_monitor_ask(e));)
        answer_ask(e, a, NULL, why);
    engine_leave();
}

static int on_news(struct engine *e, const struct frame *f, struct err *err)
{
    struct jail_news m;

    if (jail_news_decode(f, &m, err) < 0)
        return -1;
    struct box *b = find_box(e, m.id);
    if (b && m.watched == JAIL_WATCHED)
        b->watched = true;
    if (b)
        b->refused |= m.refused;
    return 0;
}

static void on_monitor_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct engine *e = arg;
    struct answer ans = { .f = f, .fds = fds, .nfds = nfds };
    struct err err = { 0 };

    engine_enter();
    if ((f->type == FRAME_J_NEWS ? on_news(e, f, &err) : on_answer(e, true, &ans, &err)) < 0)
        on_monitor_end(e, &err);
    engine_leave();
}

int engine_watch(struct engine *e, int monitor_fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = on_monitor_frame, .on_end = on_monitor_end };

    if (chan_init(&e->monitor, e->ev, monitor_fd, false, &ops, e, err) < 0)
        return err_wrap(err, "connection to the monitor");
    e->unwatched = NULL;
    return 0;
}

static void on_monitor(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct engine *e = ask->owner;

    if (!err && a->nfds == 1 && engine_watch(e, take_fd(&a->fds[0]), NULL) == 0)
        e->monitor_wait_ns = MONITOR_WAIT_NS;
    else
        look_for_monitor(e);
}

static void ask_for_monitor(void *arg)
{
    engine_ask(arg, FRAME_J_MONITOR, NULL, 0, NULL, 0, on_monitor, arg);
}

void engine_watch_kept(struct engine *e)
{
    e->monitor_wait_ns = MONITOR_WAIT_NS;
    ask_for_monitor(e);
}

/* --- boxes --- */

static struct box **box_bucket(struct engine *e, const char *id)
{
    uint32_t h = 2166136261u;

    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    return &e->boxes[h % BOX_BUCKETS];
}

static struct box *find_box(struct engine *e, const char *id)
{
    struct box *b = *box_bucket(e, id);

    while (b && strcmp(b->id, id) != 0)
        b = b->next;
    return b;
}

void engine_add(struct engine *e, struct box *b)
{
    struct box **p = box_bucket(e, b->id);

    b->next = *p;
    *p = b;
    e->nboxes++;
}

void engine_remove(struct engine *e, struct box *b)
{
    struct box **p = box_bucket(e, b->id);

    while (*p && *p != b)
        p = &(*p)->next;
    if (!*p)
        return;
    *p = b->next;
    e->nboxes--;
    if (!e->unwatched) {
        struct jail_id m = { { 0 } };
        PAYLOAD(payload);

        memcpy(m.id, b->id, sizeof(m.id));
        int len = jail_id_encode(&m, payload, NULL);
        chan_send(&e->monitor, &(struct frame){ .type = FRAME_J_FORGET, .len = (uint32_t)len, .data = payload });
    }
}

/* --- life --- */

uint64_t engine_room(uint64_t nofile)
{
    return (nofile - min_u64(OTHER_FDS, nofile / 2)) / BOX_FDS;
}

int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct engine *e = mem_new(struct engine);
    struct rlimit files = { .rlim_cur = 0 };

    (void)getrlimit(RLIMIT_NOFILE, &files);
    e->room = engine_room(files.rlim_cur);
    e->ev = ev;
    e->ops = ops;
    e->arg = arg;
    e->cores = cores > 0 ? (uint32_t)cores : 1;
    e->unwatched = "no monitor watches this sandbox";
    if (chan_init(&e->chan, ev, jailer_fd, true, &chan_ops, e, err) < 0) {
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
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        while (e->boxes[i])
            box_orphan(e->boxes[i]);
    for (struct ask *a; (a = pop_ask(e));)
        free(a);
    ev_timer_clear(e->ev, &e->lost_timer);
    ev_timer_clear(e->ev, &e->monitor_timer);
    chan_done(&e->chan);
    free(take_ptr(&e->templates));
    e->ntemplates = 0;
    chan_done(&e->monitor);
    engine_release(e->ev, &e->defer, e);
}
