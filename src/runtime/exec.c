/* Output is read only while the stream has room, so a slow host slows the program and nothing piles up here; input is
 * written as the program takes it, and credit goes back at that pace.
 *
 * Invariants:
 * 1. A pipe is read once a turn and for one frame at most, so a flood shares the loop with everybody else.
 * 2. EXIT is said once, after STARTED and after all DATA. The end of a single channel is said only when the program
 *    lives on without it: nearly always EXIT follows at once, and says it too.
 * 3. Output is told before what a kernel says after it on its channel.
 * 4. `pid` is signalled only while it is not reaped: afterwards the number may belong to somebody else. */
#include "runtime/exec.h"

#include "base/fd.h"
#include "base/mem.h"
#include "runtime/adopt.h"
#include "runtime/env.h"
#include "runtime/inlet.h"
#include "runtime/spawn.h"
#include "runtime/stats.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define REAP_SLICE 256
#define END_DELAY_MS 10u

struct outlet { /* one direction out of the program */
    struct exec *x;
    struct ev_io io;
    int fd;
    uint8_t channel;
    bool had;    /* there was one from the beginning */
    size_t owed; /* bytes that lay in the pipe when the main process ended, or when the kernel had something to say */
};

struct exec {
    struct runtime *rt;
    struct stream *s;
    struct exec *next;
    pid_t pid;
    bool tty;
    bool joined;  /* not started by us; `pid` is 0 until it has told it */
    bool started; /* exec worked, and the host knows */
    bool failed;  /* exec did not work; the child is on its way out */
    bool reaped;
    struct ev_io verdict;
    int verdict_fd;

    struct outlet out[3]; /* standard output, standard error, the kernel's channel */
    struct inlet in, kernel_in;

    struct ev_timer grace; /* before the end: a channel's end is to be said. After it: silence */
    uint64_t ended_at;
    uint64_t first_pid; /* last process number before it started; RT_UNKNOWN */
    struct rt_exit exit;
};

static bool outlets_open(const struct exec *x)
{
    return x->out[0].fd >= 0 || x->out[1].fd >= 0 || x->out[2].fd >= 0;
}

static void outlet_close(struct outlet *o)
{
    if (o->fd < 0)
        return;
    ev_io_del(o->x->rt->ev, &o->io);
    fd_close(&o->fd);
}

static void on_lives_on(void *arg)
{
    struct exec *x = arg;

    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        if (x->out[i].had && x->out[i].fd < 0)
            stream_end(x->s, x->out[i].channel);
}

static void close_all(struct exec *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        outlet_close(&x->out[i]);
    inlet_close(&x->in);
    inlet_close(&x->kernel_in);
    ev_timer_clear(x->rt->ev, &x->grace);
}

/* The end */

static void finish(struct exec *x)
{
    struct rt_exit *e = &x->exit;
    uint64_t last;

    close_all(x);
    e->tasks_started = RT_UNKNOWN;
    if (x->first_pid != RT_UNKNOWN && procs_last_pid(&x->rt->procs, &last) && last > x->first_pid)
        e->tasks_started = last - x->first_pid; /* when the numbers wrapped around, nobody knows */
    e->full = stats_full();
    int n = rt_exit_encode(e, stream_scratch(), NULL);
    assert(n >= 0);
    stream_last(x->s, FRAME_EXIT, stream_scratch(), (size_t)n);
}

static void on_grace(void *arg);

static void listen_on(struct exec *x)
{
    ev_timer_set(x->rt->ev, &x->grace, ev_now(x->rt->ev) + EXEC_GRACE_MS * NS_PER_MS, on_grace, x);
}

static bool owes(const struct exec *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        if (x->out[i].fd >= 0 && x->out[i].owed > 0)
            return true;
    return false;
}

static bool outlet_read(struct outlet *o);
static bool kernel_read(struct exec *x);

/* Silence counts only if nothing is there to be read: what waits for the host's credit is not silent. */
static void on_grace(void *arg)
{
    struct exec *x = arg;

    if (stream_room(x->s) > 0) {
        bool heard = outlet_read(&x->out[0]);

        heard = outlet_read(&x->out[1]) || heard;
        heard = kernel_read(x) || heard;
        if (!heard || !outlets_open(x)) {
            finish(x);
            return;
        }
    }
    listen_on(x);
}

static void check_end(struct exec *x)
{
    if (!x->reaped || !x->started || x->s->over)
        return;
    uint64_t linger = x->ended_at + EXEC_LINGER_MS * NS_PER_MS;
    if (!outlets_open(x) || (!owes(x) && ev_now(x->rt->ev) >= linger))
        finish(x);
    else
        listen_on(x);
}

/* Output */

static void outlet_listen(struct outlet *o)
{
    if (o->fd >= 0 && o->x->started)
        ev_io_set(o->x->rt->ev, &o->io, stream_room(o->x->s) > 0 ? EPOLLIN : 0);
}

static size_t pending(const struct outlet *o)
{
    int n = 0;

    return o->fd >= 0 && ioctl(o->fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

static bool outlet_read_some(struct outlet *o, size_t most)
{
    struct exec *x = o->x;
    size_t room = o->fd < 0 ? 0 : min_size(most, stream_room(x->s));

    if (room == 0)
        return false;
    ssize_t n = read(o->fd, stream_scratch(), room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        stream_send(x->s, o->channel, stream_scratch(), (size_t)n);
        o->owed -= min_size(o->owed, (size_t)n);
    } else {
        outlet_close(o); /* a terminal says EIO when the last process has closed it */
        if (!x->reaped)
            ev_timer_set(x->rt->ev, &x->grace, ev_now(x->rt->ev) + END_DELAY_MS * NS_PER_MS, on_lives_on, x);
    }
    return true;
}

/* One frame's worth. False when nothing was there. */
static bool outlet_read(struct outlet *o)
{
    return outlet_read_some(o, FRAME_PAYLOAD_MAX);
}

/* Measures the kernel's channel first: all output that was written before what it says then lies in the pipes. */
static void measure(struct exec *x)
{
    for (size_t i = ARRAY_LEN(x->out); i-- > 0;)
        x->out[i].owed = pending(&x->out[i]);
}

/* What the kernel says of an output comes behind it. */
static bool kernel_read(struct exec *x)
{
    struct outlet *k = &x->out[2];

    if (k->fd < 0)
        return false;
    if (k->owed == 0)
        measure(x);
    for (int i = 0; i < 2; i++)
        while (x->out[i].owed > 0 && outlet_read(&x->out[i]))
            ;
    if (stream_room(x->s) == 0)
        return true;
    return outlet_read_some(k, k->owed > 0 ? k->owed : 1); /* nothing is there: it is the end, if anything */
}

static void on_output(void *arg, uint32_t events UNUSED)
{
    struct outlet *o = arg;
    struct exec *x = o->x;

    if (x->s->over || !x->started) /* a hang-up needs no interest, and may come before the host knows of the start */
        return;
    bool heard = o->channel == RT_KERNEL ? kernel_read(x) : outlet_read(o);
    outlet_listen(o);
    if (heard)
        check_end(x);
}

static void exec_room(struct stream *s)
{
    struct exec *x = s->obj;

    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        outlet_listen(&x->out[i]);
}

/* Input */

static void exec_data(struct stream *s, const struct frame *f)
{
    struct exec *x = s->obj;
    uint8_t channel = f->flags & RT_CHANNEL;

    if (channel == RT_STDIN)
        inlet_take(&x->in, f);
    else if (channel == RT_KERNEL)
        inlet_take(&x->kernel_in, f);
    else
        stream_consumed(s, f->len);
}

/* Signals and size */

static bool alone(const struct runtime *rt, const struct exec *x)
{
    for (const struct exec *e = rt->execs; e; e = e->next)
        if (e != x && !e->s->over)
            return false;
    return true;
}

static void kill_tree(struct exec *x)
{
    if (x->pid == 0) /* it ends when its socket is closed */
        return;
    if (getpid() == 1 && alone(x->rt, x)) {
        kill(-1, SIGKILL); /* everybody but PID 1, also those who left session and parents behind */
        return;
    }
    procs_signal_tree(x->pid, SIGKILL);
    if (x->reaped)
        return;
    kill(x->pid, SIGKILL);  /* before its exec it is as hidden from /proc as we are, and has no group yet */
    kill(-x->pid, SIGKILL); /* also members of its group that hide from /proc by not being dumpable */
}

static void signal_group(struct exec *x, int signo)
{
    pid_t group = x->pid, front;

    if (x->tty && x->out[0].fd >= 0 && ioctl(x->out[0].fd, TIOCGPGRP, &front) == 0 && front > 1)
        group = front; /* as a terminal would: to whoever is in front */
    kill(-group, signo);
}

/* One that has not told who it is: it finds its socket closed, if it ever comes. */
static void call_off(struct exec *x)
{
    struct err err;

    err_set(&err, ERR_LOST, "it was ended before it could begin");
    x->failed = true;
    stream_fail(x->s, &err);
}

static void exec_signal(struct exec *x, const struct rt_signal *m)
{
    if (m->signo == SIGKILL && x->pid == 0 && x->joined && !x->s->over)
        call_off(x);
    if (m->signo == 0 || m->signo >= NSIG || x->pid == 0)
        return;
    if (m->scope == RT_SCOPE_TREE) {
        if (m->signo == SIGKILL)
            kill_tree(x);
        else
            procs_signal_tree(x->pid, (int)m->signo);
    } else if (!x->reaped) {
        if (m->scope == RT_SCOPE_GROUP)
            signal_group(x, (int)m->signo);
        else
            kill(x->pid, (int)m->signo);
    }
}

static void exec_other(struct stream *s, const struct frame *f)
{
    struct exec *x = s->obj;
    struct rt_signal sig;
    struct rt_resize size;

    if (f->type == FRAME_SIGNAL && rt_signal_decode(f, &sig, NULL) == 0) {
        exec_signal(x, &sig);
    } else if (f->type == FRAME_RESIZE && rt_resize_decode(f, &size, NULL) == 0 && x->tty && x->out[0].fd >= 0) {
        struct winsize w = { .ws_row = size.rows, .ws_col = size.cols };

        ioctl(x->out[0].fd, TIOCSWINSZ, &w);
    }
}

/* The beginning */

static void say_started(struct exec *x)
{
    struct rt_number m = { .value = (uint32_t)x->pid };
    uint8_t out[16];
    int n = rt_number_encode(&m, out, NULL);

    assert(n >= 0);
    stream_frame(x->s, FRAME_STARTED, 0, out, (size_t)n);
}

static void on_started(struct exec *x)
{
    x->started = true;
    say_started(x);
    exec_room(x->s);
    check_end(x);
}

/* Of a process that is not a child of ours we would never hear the end, and an execution has one to itself. */
static bool answers_for_itself(const struct exec *x)
{
    siginfo_t si = { 0 };

    for (const struct exec *e = x->rt->execs; e; e = e->next)
        if (e != x && e->pid == x->pid && !e->reaped)
            return false;
    return waitid(P_PID, (id_t)x->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void on_verdict(void *arg, uint32_t events UNUSED)
{
    struct exec *x = arg;
    struct err err = { 0 };

    if (x->s->over)
        return;
    int verdict = x->joined ? adopt_verdict(x->verdict_fd, &x->pid, &err) : spawn_verdict(x->verdict_fd, &err);
    if (verdict == 0)
        return;
    if (verdict > 0 && x->joined && !answers_for_itself(x)) {
        x->pid = 0;
        verdict = err_set(&err, ERR_LOST, "somebody else answered in the place of the interpreter");
    }
    ev_io_del(x->rt->ev, &x->verdict);
    fd_close(&x->verdict_fd);
    if (verdict < 0) {
        x->failed = true;
        stream_fail(x->s, &err);
        return;
    }
    on_started(x);
}

static void exec_resume(struct stream *s)
{
    struct exec *x = s->obj;

    if (x->started)
        say_started(x);
}

static void exec_release(struct stream *s)
{
    struct exec *x = s->obj;
    struct ev *ev = x->rt->ev;
    struct exec **at = &x->rt->execs;

    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    if (!x->reaped && !x->failed) /* the host lost interest before the end */
        kill_tree(x);
    close_all(x);
    ev_io_del(ev, &x->verdict);
    fd_close(&x->verdict_fd);
    free(x);
}

static const struct stream_ops exec_ops = {
    .on_data = exec_data,
    .on_other = exec_other,
    .on_room = exec_room,
    .resume = exec_resume,
    .release = exec_release,
};

static int watch(struct exec *x, struct err *err)
{
    struct ev *ev = x->rt->ev;

    for (size_t i = 0; i < ARRAY_LEN(x->out); i++)
        if (x->out[i].fd >= 0 && ev_io_add(ev, &x->out[i].io, x->out[i].fd, 0, on_output, &x->out[i], err) < 0)
            return -1;
    if (inlet_watch(&x->in, err) < 0 || inlet_watch(&x->kernel_in, err) < 0)
        return -1;
    if (x->verdict_fd >= 0)
        return ev_io_add(ev, &x->verdict, x->verdict_fd, EPOLLIN, on_verdict, x, err);
    on_started(x);
    return 0;
}

/* The order goes between two lines of the host: a half one is not finished by it, and a kernel that does not read what
 * it has been sent already is not asked for more. */
static int fork_kernel(struct runtime *rt, uint32_t of, struct spawned *ret, struct err *err)
{
    const struct stream *s = stream_find(&rt->streams, of);
    const struct exec *x = s && s->ops == &exec_ops && !s->over ? s->obj : NULL;

    if (!x || !x->started || x->reaped || x->kernel_in.fd < 0)
        return err_set(err, ERR_LOST, "there is no kernel that could be forked");
    if (x->kernel_in.buf.len > 0 || (x->kernel_in.last != '\0' && x->kernel_in.last != '\n'))
        return err_set(err, ERR_EXISTS, "its kernel is busy");
    return adopt_fork(x->kernel_in.fd, ret, err);
}

static int start(struct runtime *rt, struct stream *s, const struct rt_exec *req, struct err *err)
{
    uint64_t first_pid = RT_UNKNOWN;
    struct spawned sp;

    if (env_check(req->env, err) < 0)
        return -1;
    auto_free const char **env = env_merge(rt->env, req->env);
    if (!procs_last_pid(&rt->procs, &first_pid))
        first_pid = RT_UNKNOWN;
    if (req->flags & RT_EXEC_FORKED   ? fork_kernel(rt, req->of, &sp, err) < 0
        : req->flags & RT_EXEC_JOINED ? adopt_start(rt, req, env, &sp, err) < 0
                                      : spawn_start(&rt->paths, req, env, first_pid == 1, &sp, err) < 0)
        return -1;

    struct exec *x = mem_new(struct exec);
    *x = (struct exec){
        .rt = rt,
        .s = s,
        .next = rt->execs,
        .pid = sp.pid,
        .tty = req->flags & RT_EXEC_TTY,
        .joined = req->flags & (RT_EXEC_JOINED | RT_EXEC_FORKED),
        .verdict_fd = sp.verdict,
        .out = { { .x = x, .fd = sp.out, .channel = RT_STDOUT, .had = true },
                 { .x = x, .fd = sp.err, .channel = RT_STDERR, .had = sp.err >= 0 },
                 { .x = x, .fd = sp.kernel, .channel = RT_KERNEL, .had = sp.kernel >= 0 } },
        .in = { .s = s, .fd = sp.in, .kind = req->flags & RT_EXEC_TTY ? INLET_TERMINAL : INLET_PIPE },
        .kernel_in = { .s = s, .fd = sp.kernel_in, .kind = INLET_SOCKET },
        .first_pid = first_pid,
    };
    rt->execs = x;
    s->obj = x;
    s->ops = &exec_ops;
    return watch(x, err);
}

int exec_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
{
    auto_free void *strings = NULL;
    struct rt_exec req;

    if (rt_exec_decode(f, &req, &strings, err) < 0)
        return -1;
    return start(rt, s, &req, err);
}

uint32_t exec_count(const struct runtime *rt)
{
    uint32_t n = 0;

    for (const struct exec *x = rt->execs; x; x = x->next)
        n += !x->s->over;
    return n;
}

uint32_t exec_alive(const struct runtime *rt)
{
    uint32_t n = 0;

    for (const struct exec *x = rt->execs; x; x = x->next)
        n += !x->reaped && !x->failed;
    return n;
}

/* Reaping */

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec;
}

static void reap_main(struct exec *x)
{
    struct procs_io before = { 0 }, after = { 0 };
    struct rt_exit *e = &x->exit;
    struct rusage ru = { 0 };
    int status = 0;
    bool counted = procs_io(&x->rt->procs, &before);

    if (wait4(x->pid, &status, WNOHANG, &ru) != x->pid)
        return;
    e->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    e->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    e->user_us = microseconds(ru.ru_utime);
    e->sys_us = microseconds(ru.ru_stime);
    e->max_rss = (uint64_t)ru.ru_maxrss * KIB;
    e->read_bytes = e->write_bytes = RT_UNKNOWN;
    if (counted && procs_io(&x->rt->procs, &after)) {
        e->read_bytes = after.rchar - before.rchar - before.cost;
        e->write_bytes = after.wchar - before.wchar;
    }
    x->reaped = true;
    x->ended_at = ev_now(x->rt->ev);
    measure(x);
    check_end(x);
}

bool exec_reap(struct runtime *rt)
{
    /* One that joined may have ended already, and its number be known from what it said before. */
    for (struct exec *x = rt->execs, *next; x; x = next) {
        next = x->next;
        if (x->joined && x->verdict_fd >= 0)
            on_verdict(x, 0);
    }
    for (int i = 0; i < REAP_SLICE; i++) {
        siginfo_t si = { 0 };
        struct exec *x = rt->execs;

        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
            return false;
        while (x && (x->pid != si.si_pid || x->reaped))
            x = x->next;
        if (x)
            reap_main(x);
        else
            waitpid(si.si_pid, NULL, WNOHANG);
    }
    return true;
}
