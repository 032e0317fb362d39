/* Frames on stream 0 concern the connection and the sandbox; every other stream belongs to one
 * request. The peer is the host, which is trusted, but a mistake of the host must not end the
 * sandbox: a malformed request is answered with ERROR on its own stream. Only the end of the socket
 * ends the process, and with it the sandbox: a process that may reconnect later holds a duplicate
 * of that socket. */
#include "inside/runtime/runtime.h"

#include "core/base/mutate.h"
#include "core/base/fd.h"
#include "inside/runtime/interpreter.h"
#include "inside/runtime/archive.h"
#include "inside/runtime/runtime_claim.h"
#include "inside/runtime/runtime_exec.h"
#include "inside/runtime/snapshot.h"
#include "inside/runtime/file_remove.h"
#include "inside/runtime/runtime_reset.h"
#include "inside/runtime/stats.h"
#include "inside/runtime/runtime_walls.h"
#include "inside/runtime/watch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

static const struct {
    uint8_t type;
    request_open_fn *open;
} control_requests[] = {
    { FRAME_EXEC, runtime_exec_open }, { FRAME_STATS, stats_open },     { FRAME_READ, file_read_open },
    { FRAME_WRITE, file_write_open },  { FRAME_LIST, dir_list_open },   { FRAME_STAT, file_stat_open },
    { FRAME_MKDIR, dir_make_open },    { FRAME_MOVE, file_move_open },  { FRAME_REMOVE, file_remove_open },
    { FRAME_TAR_IN, tar_in_open },     { FRAME_TAR_OUT, tar_out_open }, { FRAME_SNAPSHOT, snapshot_open },
    { FRAME_CHANGES, changes_open },   { FRAME_WATCH, watch_open },     { FRAME_RESET, runtime_reset_open },
};

static void control_send_frame(struct runtime *rt, uint32_t stream, uint8_t type, const void *data, int len)
{
    struct frame f = { .type = type, .stream = stream, .len = (uint32_t)len, .data = data };

    assert(len >= 0);
    chan_send(&rt->chan, &f);
}

static void control_send_error(struct runtime *rt, uint32_t stream, const struct err *err)
{
    struct rt_error m = { .id = (uint32_t)err->id, .sys = err->sys };

    memcpy(m.msg, err->msg, sizeof(m.msg) - 1);
    control_send_frame(rt, stream, FRAME_ERROR, runtime_scratch_buffer(),
                       rt_error_encode(&m, runtime_scratch_buffer(), NULL));
}

static void control_send_claimed(struct runtime *rt)
{
    control_send_frame(rt, 0, FRAME_CLAIMED, runtime_scratch_buffer(),
                       rt_claimed_encode(&rt->claimed_walls, runtime_scratch_buffer(), NULL));
}

static int control_on_hello(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct rt_hello m;

    if (rt_hello_decode(f, &m, err) < 0)
        return -1;
    if (m.version != WIRE_VERSION)
        return err_set(err, ERR_VERSION, "the host uses version %u of the protocol, this runtime version %u", m.version,
                       WIRE_VERSION);
    struct rt_hello answer = { .version = WIRE_VERSION,
                               .epoch = m.epoch,
                               .features = RT_FEATURE_PRELOAD_RULES | RT_FEATURE_WARM_UP };
    bool taken_over = rt->greeted && m.epoch != rt->epoch;

    rt->greeted = true;
    rt->epoch = m.epoch;
    control_send_frame(rt, 0, FRAME_HELLO, runtime_scratch_buffer(),
                       rt_hello_encode(&answer, runtime_scratch_buffer(), NULL));
    if (!taken_over)
        return 0;
    interpreter_drop(rt); /* the new host does not know about it and would never use it */
    if (rt->claimed)      /* the new host checks the walls like the first one */
        control_send_claimed(rt);
    runtime_streams_resume(&rt->streams);
    return 0;
}

static int control_on_connection_frame(struct runtime *rt, const struct frame *f, struct err *err)
{
    if (f->type == FRAME_HELLO)
        return control_on_hello(rt, f, err);
    if (f->type == FRAME_CLAIM) {
        if (runtime_claim_open(rt, f, err) < 0)
            return -1;
        control_send_claimed(rt);
        return 0;
    }
    if (f->type == FRAME_PRELOAD_RULES) {
        runtime_reset_record_baseline(rt); /* before any request waits, and only for sandboxes that may be reset */
        return runtime_claim_preload_rules(rt, f, err);
    }
    if (f->type == FRAME_INTERPRETER)
        return interpreter_hold(rt, err);
    if (f->type == FRAME_WARM_UP) { /* the waiting interpreter may have ended meanwhile */
        interpreter_warm_up(rt);
        return 0;
    }
    return err_set(err, ERR_PROTOCOL, "%s is not allowed on stream 0", frame_name(f->type));
}

static int control_open_request(struct runtime *rt, const struct frame *f, struct err *err)
{
    size_t i = 0;

    while (i < ARRAY_LEN(control_requests) && control_requests[i].type != f->type)
        i++;
    if (i == ARRAY_LEN(control_requests))
        return err_set(err, ERR_PROTOCOL, "%s cannot open a stream", frame_name(f->type));
    if (f->stream % 2 != 0)
        return err_set(err, ERR_PROTOCOL, "odd stream numbers are reserved for the runtime");
    if (!rt->claimed)
        return err_set(err, ERR_DENIED, "%s before CLAIM", frame_name(f->type));
    if (rt->streams.count >= RUNTIME_STREAMS_MAX)
        return err_set(err, ERR_LIMIT, "%u streams are open, which is the maximum", RUNTIME_STREAMS_MAX);

    struct runtime_stream *s = runtime_stream_open(&rt->streams, f->stream, f->type);
    struct err why = { 0 };
    if (control_requests[i].open(rt, s, f, &why) < 0)
        runtime_stream_fail(s, &why);
    runtime_stream_release_if_finished(s);
    return 0;
}

/* A CREDIT, CLOSE or similar frame of a closed stream was sent before the host received our last
 * frame. */
static bool control_frame_is_late(const struct frame *f)
{
    return f->type == FRAME_CREDIT || f->type == FRAME_CLOSE || f->type == FRAME_DATA || f->type == FRAME_SIGNAL ||
           f->type == FRAME_RESIZE;
}

static int control_route_frame(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct runtime_stream *s = runtime_stream_find(&rt->streams, f->stream);

    if (!s)
        return control_frame_is_late(f) ? 0 : control_open_request(rt, f, err);
    switch (f->type) {
    case FRAME_CREDIT:
        runtime_stream_on_credit(s, f);
        return 0;
    case FRAME_CLOSE:
        runtime_stream_close(s);
        return 0;
    case FRAME_DATA:
        runtime_stream_on_data(s, f);
        return 0;
    case FRAME_SIGNAL:
    case FRAME_RESIZE:
        if (!s->is_finished && s->ops && s->ops->on_control)
            s->ops->on_control(s, f);
        return 0;
    default:
        return err_set(err, ERR_PROTOCOL, "%s on an open stream", frame_name(f->type));
    }
}

static void control_on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct runtime *rt = arg;
    struct err err = { 0 };
    int r;

    rt->frame_fds = fds;
    rt->nframe_fds = nfds;
    if (!rt->greeted && f->type != FRAME_HELLO)
        r = err_set(&err, ERR_PROTOCOL, "%s before HELLO", frame_name(f->type));
    else
        r = f->stream == 0 ? control_on_connection_frame(rt, f, &err) : control_route_frame(rt, f, &err);
    if (r < 0)
        control_send_error(rt, f->stream, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    rt->nframe_fds = 0;
}

static void control_on_end(void *arg, const struct err *why)
{
    struct runtime *rt = arg;

    rt->status = why->id == ERR_LOST ? 0 : 1;
    ev_stop(rt->ev);
}

static void control_on_drain(void *arg)
{
    struct runtime *rt = arg;

    runtime_streams_on_drained(&rt->streams);
}

static void control_on_reap(void *arg)
{
    struct runtime *rt = arg;

    if (runtime_exec_reap(rt))
        ev_defer(rt->ev, &rt->reap, control_on_reap, rt);
}

static void control_on_sigchld(void *arg, int signo UNUSED)
{
    control_on_reap(arg);
}

static int control_init(struct runtime *rt, int fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = control_on_frame,
                                         .on_end = control_on_end,
                                         .on_drain = control_on_drain };
    sigset_t set;

    signal(SIGPIPE, SIG_IGN); /* a program that closed its input must not end the runtime */
    signal(SIGXFSZ, SIG_IGN); /* nor must a file that would exceed its size limit: write fails with EFBIG */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (ev_new(&rt->ev, err) < 0 || paths_init(&rt->paths, err) < 0 ||
        ev_signals(rt->ev, &set, control_on_sigchld, rt, err) < 0 ||
        chan_init(&rt->chan, rt->ev, fd, true, &ops, rt, err) < 0)
        return -1;
    runtime_streams_init(&rt->streams, rt->ev, &rt->chan);
    return 0;
}

int runtime_serve(int control_fd)
{
    static struct runtime rt;
    struct err err = { 0 };

    rt.ruleset = rt.preloaded.ruleset = -1;
    for (size_t i = 0; i < RT_INTERPRETER_FDS; i++)
        rt.interpreter_fds[i] = -1;
    procs_init(&rt.procs);
    if ((!wall_is_mutated("dumpable") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) ||
        fcntl(control_fd, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    if (control_init(&rt, control_fd, &err) < 0)
        return 1;
    rt.measured_walls = runtime_walls_measure();
    ev_run(rt.ev);
    return rt.status;
}
