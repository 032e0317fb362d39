/* Frames on stream 0 are about the connection and the sandbox; everything else is a stream with a request behind it.
 *
 * The socket's other side is the host, which is trusted, but a mistake of the host must not end the sandbox: a request
 * that makes no sense is answered with ERROR on its own stream. Only the end of the socket ends the process, and with
 * it the sandbox: whoever might come back to it holds a duplicate of that socket. */
#include "runtime/runtime.h"

#include "base/mutate.h"
#include "base/fd.h"
#include "runtime/adopt.h"
#include "runtime/archive.h"
#include "runtime/claim.h"
#include "runtime/exec.h"
#include "runtime/mark.h"
#include "runtime/remove.h"
#include "runtime/reset.h"
#include "runtime/stats.h"
#include "runtime/walls.h"
#include "runtime/watch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

static const struct {
    uint8_t type;
    request_open *open;
} requests[] = {
    { FRAME_EXEC, exec_open },       { FRAME_STATS, stats_open },     { FRAME_READ, read_open },
    { FRAME_WRITE, write_open },     { FRAME_LIST, list_open },       { FRAME_STAT, stat_open },
    { FRAME_MKDIR, mkdir_open },     { FRAME_MOVE, move_open },       { FRAME_REMOVE, remove_open },
    { FRAME_TAR_IN, tar_in_open },   { FRAME_TAR_OUT, tar_out_open }, { FRAME_MARK, mark_open },
    { FRAME_CHANGES, changes_open }, { FRAME_WATCH, watch_open },     { FRAME_RESET, reset_open },
};

static void say(struct runtime *rt, uint32_t stream, uint8_t type, const void *data, int len)
{
    struct frame f = { .type = type, .stream = stream, .len = (uint32_t)len, .data = data };

    assert(len >= 0);
    chan_send(&rt->chan, &f);
}

static void complain(struct runtime *rt, uint32_t stream, const struct err *err)
{
    struct rt_error m = { .id = (uint32_t)err->id, .sys = err->sys };

    memcpy(m.msg, err->msg, sizeof(m.msg) - 1);
    say(rt, stream, FRAME_ERROR, stream_scratch(), rt_error_encode(&m, stream_scratch(), NULL));
}

static void say_claimed(struct runtime *rt)
{
    say(rt, 0, FRAME_CLAIMED, stream_scratch(), rt_claimed_encode(&rt->walls, stream_scratch(), NULL));
}

static int hello(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct rt_hello m;

    if (rt_hello_decode(f, &m, err) < 0)
        return -1;
    if (m.version != WIRE_VERSION)
        return err_set(err, ERR_VERSION, "the host speaks version %u of the protocol, this runtime %u", m.version,
                       WIRE_VERSION);
    struct rt_hello answer = { .version = WIRE_VERSION,
                               .epoch = m.epoch,
                               .features = RT_FEATURE_EXPECT | RT_FEATURE_REHEARSE };
    bool taken_over = rt->greeted && m.epoch != rt->epoch;

    rt->greeted = true;
    rt->epoch = m.epoch;
    say(rt, 0, FRAME_HELLO, stream_scratch(), rt_hello_encode(&answer, stream_scratch(), NULL));
    if (!taken_over)
        return 0;
    adopt_drop(rt);  /* the new host has not heard of it, and would never take it */
    if (rt->claimed) /* the new host checks the walls as the first one did */
        say_claimed(rt);
    streams_resume(&rt->streams);
    return 0;
}

static int connection(struct runtime *rt, const struct frame *f, struct err *err)
{
    if (f->type == FRAME_HELLO)
        return hello(rt, f, err);
    if (f->type == FRAME_CLAIM) {
        if (claim_open(rt, f, err) < 0)
            return -1;
        say_claimed(rt);
        return 0;
    }
    if (f->type == FRAME_EXPECT) {
        reset_init(rt); /* while nobody waits, and only where somebody may come again */
        return claim_expect(rt, f, err);
    }
    if (f->type == FRAME_MEMBER)
        return adopt_hold(rt, err);
    if (f->type == FRAME_REHEARSE) { /* what waited may have ended meanwhile */
        adopt_rehearse(rt);
        return 0;
    }
    return err_set(err, ERR_PROTOCOL, "%s has no place on stream 0", frame_name(f->type));
}

static int request(struct runtime *rt, const struct frame *f, struct err *err)
{
    size_t i = 0;

    while (i < ARRAY_LEN(requests) && requests[i].type != f->type)
        i++;
    if (i == ARRAY_LEN(requests))
        return err_set(err, ERR_PROTOCOL, "%s opens no stream", frame_name(f->type));
    if (f->stream % 2 != 0)
        return err_set(err, ERR_PROTOCOL, "odd streams are the runtime's");
    if (!rt->claimed)
        return err_set(err, ERR_DENIED, "%s before CLAIM", frame_name(f->type));
    if (rt->streams.count >= STREAMS_MAX)
        return err_set(err, ERR_LIMIT, "%u streams are open", STREAMS_MAX);

    struct stream *s = stream_open(&rt->streams, f->stream, f->type);
    struct err why = { 0 };
    if (requests[i].open(rt, s, f, &why) < 0)
        stream_fail(s, &why);
    stream_settle(s);
    return 0;
}

/* CREDIT and CLOSE of a stream that is gone crossed our last word on the way. */
static bool is_late(const struct frame *f)
{
    return f->type == FRAME_CREDIT || f->type == FRAME_CLOSE || f->type == FRAME_DATA || f->type == FRAME_SIGNAL ||
           f->type == FRAME_RESIZE;
}

static int route(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct stream *s = stream_find(&rt->streams, f->stream);

    if (!s)
        return is_late(f) ? 0 : request(rt, f, err);
    switch (f->type) {
    case FRAME_CREDIT:
        stream_credit(s, f);
        return 0;
    case FRAME_CLOSE:
        stream_close(s);
        return 0;
    case FRAME_DATA:
        stream_data(s, f);
        return 0;
    case FRAME_SIGNAL:
    case FRAME_RESIZE:
        if (!s->over && s->ops && s->ops->on_other)
            s->ops->on_other(s, f);
        return 0;
    default:
        return err_set(err, ERR_PROTOCOL, "%s on a stream that is open", frame_name(f->type));
    }
}

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct runtime *rt = arg;
    struct err err = { 0 };
    int r;

    rt->lent = fds;
    rt->nlent = nfds;
    if (!rt->greeted && f->type != FRAME_HELLO)
        r = err_set(&err, ERR_PROTOCOL, "%s before HELLO", frame_name(f->type));
    else
        r = f->stream == 0 ? connection(rt, f, &err) : route(rt, f, &err);
    if (r < 0)
        complain(rt, f->stream, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    rt->nlent = 0;
}

static void on_end(void *arg, const struct err *why)
{
    struct runtime *rt = arg;

    rt->status = why->id == ERR_LOST ? 0 : 1;
    ev_stop(rt->ev);
}

static void on_drain(void *arg)
{
    struct runtime *rt = arg;

    streams_drained(&rt->streams);
}

static void on_more_dead(void *arg)
{
    struct runtime *rt = arg;

    if (exec_reap(rt))
        ev_defer(rt->ev, &rt->reap, on_more_dead, rt);
}

static void on_signal(void *arg, int signo UNUSED)
{
    on_more_dead(arg);
}

static int prepare(struct runtime *rt, int fd, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = on_frame, .on_end = on_end, .on_drain = on_drain };
    sigset_t set;

    signal(SIGPIPE, SIG_IGN); /* a program that closed its input is no reason to die */
    signal(SIGXFSZ, SIG_IGN); /* nor is a file that would grow past the limit: EFBIG says it */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (ev_new(&rt->ev, err) < 0 || paths_init(&rt->paths, err) < 0 ||
        ev_signals(rt->ev, &set, on_signal, rt, err) < 0 || chan_init(&rt->chan, rt->ev, fd, true, &ops, rt, err) < 0)
        return -1;
    streams_init(&rt->streams, rt->ev, &rt->chan);
    return 0;
}

int runtime_serve(int control_fd)
{
    static struct runtime rt;
    struct err err = { 0 };

    rt.ruleset = rt.expected.ruleset = -1;
    for (size_t i = 0; i < RT_MEMBER_FDS; i++)
        rt.member[i] = -1;
    procs_init(&rt.procs);
    if ((!mutated("dumpable") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) || fcntl(control_fd, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    if (prepare(&rt, control_fd, &err) < 0)
        return 1;
    rt.measured = walls_measure();
    ev_run(rt.ev);
    return rt.status;
}
