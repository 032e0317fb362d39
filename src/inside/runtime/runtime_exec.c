/* Output is read only while the stream has window, so a slow host slows the program and nothing
 * accumulates here; input is written as the program reads it, and credit is returned at that rate.
 *
 * Invariants
 * 1. A pipe is read once per round of the loop and for one frame at most, so a flood shares the
 *    loop with all other streams.
 * 2. EXIT is sent once, after STARTED and after all DATA. The end of a single channel is sent only
 *    if the program continues without it: nearly always EXIT follows at once and implies it.
 * 3. Output is sent before the messages that a language kernel writes to its channel after that
 *    output.
 * 4. `pid` is signalled only until it is reaped: afterwards the number may belong to another
 *    process. */
#include "inside/runtime/runtime_exec.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "inside/runtime/interpreter.h"
#include "inside/runtime/env.h"
#include "inside/runtime/program_input.h"
#include "inside/runtime/spawn.h"
#include "inside/runtime/stats.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define REAP_SLICE 256
#define END_DELAY_MS 10u

struct program_output { /* one direction out of the program */
    struct runtime_exec *x;
    struct ev_io io;
    int fd;
    uint8_t channel;
    bool existed; /* the channel was open at the start */
    /* Bytes in the pipe when the main process ended, or when the language kernel sent a
     * message. */
    size_t pending_bytes;
};

struct runtime_exec {
    struct runtime *rt;
    struct runtime_stream *s;
    struct runtime_exec *next;
    pid_t pid;
    bool tty;
    bool is_interpreter; /* not started by the runtime; `pid` is 0 until it is ready */
    bool started;        /* exec succeeded, and the host got STARTED */
    bool start_failed;   /* exec failed; the child is exiting */
    bool reaped;
    struct ev_io start_result_io;
    int start_result_fd;

    struct program_output outputs[3]; /* standard output, standard error, channel of the language kernel */
    struct program_input stdin_input, kernel_input;

    struct ev_timer grace_timer; /* before the end: reports closed channels; after it: detects silence */
    uint64_t ended_at;
    uint64_t first_pid; /* last pid assigned before it started; RT_UNKNOWN */
    struct rt_exit exit;
};

static bool runtime_exec_has_open_output(const struct runtime_exec *x)
{
    return x->outputs[0].fd >= 0 || x->outputs[1].fd >= 0 || x->outputs[2].fd >= 0;
}

static void program_output_close(struct program_output *o)
{
    if (o->fd < 0)
        return;
    ev_io_del(o->x->rt->ev, &o->io);
    fd_close(&o->fd);
}

static void runtime_exec_report_closed_channels(void *arg)
{
    struct runtime_exec *x = arg;

    for (size_t i = 0; i < ARRAY_LEN(x->outputs); i++)
        if (x->outputs[i].existed && x->outputs[i].fd < 0)
            runtime_stream_end_channel(x->s, x->outputs[i].channel);
}

static void runtime_exec_close_all(struct runtime_exec *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->outputs); i++)
        program_output_close(&x->outputs[i]);
    program_input_close(&x->stdin_input);
    program_input_close(&x->kernel_input);
    ev_timer_clear(x->rt->ev, &x->grace_timer);
}

/* --- end --- */

static void runtime_exec_finish(struct runtime_exec *x)
{
    struct rt_exit *e = &x->exit;
    uint64_t last;

    runtime_exec_close_all(x);
    e->tasks_started = RT_UNKNOWN;
    if (x->first_pid != RT_UNKNOWN && procs_last_pid(&x->rt->procs, &last) && last > x->first_pid)
        e->tasks_started = last - x->first_pid; /* unknown if the pids wrapped around */
    e->full = stats_full_filesystems();
    int n = rt_exit_encode(e, runtime_scratch_buffer(), NULL);
    assert(n >= 0);
    runtime_stream_send_last(x->s, FRAME_EXIT, runtime_scratch_buffer(), (size_t)n);
}

static void runtime_exec_on_grace(void *arg);

static void runtime_exec_set_grace_timer(struct runtime_exec *x)
{
    ev_timer_set(x->rt->ev, &x->grace_timer, ev_now(x->rt->ev) + EXEC_GRACE_MS * NS_PER_MS, runtime_exec_on_grace, x);
}

static bool runtime_exec_has_pending_output(const struct runtime_exec *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->outputs); i++)
        if (x->outputs[i].fd >= 0 && x->outputs[i].pending_bytes > 0)
            return true;
    return false;
}

static bool program_output_read(struct program_output *o);
static bool runtime_exec_read_kernel(struct runtime_exec *x);

/* Silence counts only if there is nothing to read: output that waits for the host's credit is not
 * silence. */
static void runtime_exec_on_grace(void *arg)
{
    struct runtime_exec *x = arg;

    if (runtime_stream_room(x->s) > 0) {
        bool heard = program_output_read(&x->outputs[0]);

        heard = program_output_read(&x->outputs[1]) || heard;
        heard = runtime_exec_read_kernel(x) || heard;
        if (!heard || !runtime_exec_has_open_output(x)) {
            runtime_exec_finish(x);
            return;
        }
    }
    runtime_exec_set_grace_timer(x);
}

static void runtime_exec_check_end(struct runtime_exec *x)
{
    if (!x->reaped || !x->started || x->s->is_finished)
        return;
    uint64_t linger = x->ended_at + EXEC_LINGER_MS * NS_PER_MS;
    if (!runtime_exec_has_open_output(x) || (!runtime_exec_has_pending_output(x) && ev_now(x->rt->ev) >= linger))
        runtime_exec_finish(x);
    else
        runtime_exec_set_grace_timer(x);
}

/* --- output --- */

static void program_output_listen(struct program_output *o)
{
    if (o->fd >= 0 && o->x->started)
        ev_io_set(o->x->rt->ev, &o->io, runtime_stream_room(o->x->s) > 0 ? EPOLLIN : 0);
}

static size_t program_output_pending(const struct program_output *o)
{
    int n = 0;

    return o->fd >= 0 && ioctl(o->fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

static bool program_output_read_some(struct program_output *o, size_t most)
{
    struct runtime_exec *x = o->x;
    size_t room = o->fd < 0 ? 0 : min_size(most, runtime_stream_room(x->s));

    if (room == 0)
        return false;
    ssize_t n = read(o->fd, runtime_scratch_buffer(), room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        runtime_stream_send_data(x->s, o->channel, runtime_scratch_buffer(), (size_t)n);
        o->pending_bytes -= min_size(o->pending_bytes, (size_t)n);
    } else {
        program_output_close(o); /* a terminal returns EIO when the last process has closed it */
        if (!x->reaped)
            ev_timer_set(x->rt->ev, &x->grace_timer, ev_now(x->rt->ev) + END_DELAY_MS * NS_PER_MS,
                         runtime_exec_report_closed_channels, x);
    }
    return true;
}

/* Reads one frame at most. False if there was nothing. */
static bool program_output_read(struct program_output *o)
{
    return program_output_read_some(o, FRAME_PAYLOAD_MAX);
}

/* Measures the language kernel's channel first: all output that was written before its message is
 * then in the pipes. */
static void runtime_exec_measure_output(struct runtime_exec *x)
{
    for (size_t i = ARRAY_LEN(x->outputs); i-- > 0;)
        x->outputs[i].pending_bytes = program_output_pending(&x->outputs[i]);
}

/* Sends pending output before the language kernel's messages about it. */
static bool runtime_exec_read_kernel(struct runtime_exec *x)
{
    struct program_output *k = &x->outputs[2];

    if (k->fd < 0)
        return false;
    if (k->pending_bytes == 0)
        runtime_exec_measure_output(x);
    for (int i = 0; i < 2; i++)
        while (x->outputs[i].pending_bytes > 0 && program_output_read(&x->outputs[i]))
            ;
    if (runtime_stream_room(x->s) == 0)
        return true;
    /* Without pending bytes, the read can only find the end of the channel. */
    return program_output_read_some(k, k->pending_bytes > 0 ? k->pending_bytes : 1);
}

static void program_output_on_readable(void *arg, uint32_t events UNUSED)
{
    struct program_output *o = arg;
    struct runtime_exec *x = o->x;

    /* A hang-up is reported without being requested, and may come before the host got STARTED. */
    if (x->s->is_finished || !x->started)
        return;
    bool heard = o->channel == RT_KERNEL ? runtime_exec_read_kernel(x) : program_output_read(o);
    program_output_listen(o);
    if (heard)
        runtime_exec_check_end(x);
}

static void runtime_exec_on_room(struct runtime_stream *s)
{
    struct runtime_exec *x = s->obj;

    for (size_t i = 0; i < ARRAY_LEN(x->outputs); i++)
        program_output_listen(&x->outputs[i]);
}

/* --- input --- */

static void runtime_exec_on_data(struct runtime_stream *s, const struct frame *f)
{
    struct runtime_exec *x = s->obj;
    uint8_t channel = f->flags & RT_CHANNEL;

    if (channel == RT_STDIN)
        program_input_take(&x->stdin_input, f);
    else if (channel == RT_KERNEL)
        program_input_take(&x->kernel_input, f);
    else
        runtime_stream_consumed(s, f->len);
}

/* --- signals and window size --- */

static bool runtime_exec_is_only_one(const struct runtime *rt, const struct runtime_exec *x)
{
    for (const struct runtime_exec *e = rt->execs; e; e = e->next)
        if (e != x && !e->s->is_finished)
            return false;
    return true;
}

static void runtime_exec_kill_tree(struct runtime_exec *x)
{
    if (x->pid == 0) /* it ends when its socket is closed */
        return;
    if (getpid() == 1 && runtime_exec_is_only_one(x->rt, x)) {
        kill(-1, SIGKILL); /* every process except PID 1, also those that left session and parents */
        return;
    }
    procs_signal_tree(x->pid, SIGKILL);
    if (x->reaped)
        return;
    kill(x->pid, SIGKILL);  /* before its exec it is hidden in /proc like PID 1 and has no group yet */
    kill(-x->pid, SIGKILL); /* also processes of its group that are hidden in /proc because they are not dumpable */
}

static void runtime_exec_signal_group(struct runtime_exec *x, int signo)
{
    pid_t group = x->pid, front;

    if (x->tty && x->outputs[0].fd >= 0 && ioctl(x->outputs[0].fd, TIOCGPGRP, &front) == 0 && front > 1)
        group = front; /* as a terminal does: to the foreground group */
    kill(-group, signo);
}

/* For an interpreter that has not reported its pid: it finds its socket closed if it ever
 * answers. */
static void runtime_exec_cancel_start(struct runtime_exec *x)
{
    struct err err;

    err_set(&err, ERR_LOST, "the interpreter was killed before it was ready");
    x->start_failed = true;
    runtime_stream_fail(x->s, &err);
}

static void runtime_exec_signal(struct runtime_exec *x, const struct rt_signal *m)
{
    if (m->signo == SIGKILL && x->pid == 0 && x->is_interpreter && !x->s->is_finished)
        runtime_exec_cancel_start(x);
    if (m->signo == 0 || m->signo >= NSIG || x->pid == 0)
        return;
    if (m->scope == RT_SCOPE_TREE) {
        if (m->signo == SIGKILL)
            runtime_exec_kill_tree(x);
        else
            procs_signal_tree(x->pid, (int)m->signo);
    } else if (!x->reaped) {
        if (m->scope == RT_SCOPE_GROUP)
            runtime_exec_signal_group(x, (int)m->signo);
        else
            kill(x->pid, (int)m->signo);
    }
}

static void runtime_exec_on_control(struct runtime_stream *s, const struct frame *f)
{
    struct runtime_exec *x = s->obj;
    struct rt_signal sig;
    struct rt_resize size;

    if (f->type == FRAME_SIGNAL && rt_signal_decode(f, &sig, NULL) == 0) {
        runtime_exec_signal(x, &sig);
    } else if (f->type == FRAME_RESIZE && rt_resize_decode(f, &size, NULL) == 0 && x->tty && x->outputs[0].fd >= 0) {
        struct winsize w = { .ws_row = size.rows, .ws_col = size.cols };

        ioctl(x->outputs[0].fd, TIOCSWINSZ, &w);
    }
}

/* --- start --- */

static void runtime_exec_send_started(struct runtime_exec *x)
{
    struct rt_number m = { .value = (uint32_t)x->pid };
    uint8_t out[16];
    int n = rt_number_encode(&m, out, NULL);

    assert(n >= 0);
    runtime_stream_send_frame(x->s, FRAME_STARTED, 0, out, (size_t)n);
}

static void runtime_exec_on_started(struct runtime_exec *x)
{
    x->started = true;
    runtime_exec_send_started(x);
    runtime_exec_on_room(x->s);
    runtime_exec_check_end(x);
}

/* The runtime would never notice the end of a process that is not its child, and each execution
 * needs its own process. */
static bool runtime_exec_pid_is_own_child(const struct runtime_exec *x)
{
    siginfo_t si = { 0 };

    for (const struct runtime_exec *e = x->rt->execs; e; e = e->next)
        if (e != x && e->pid == x->pid && !e->reaped)
            return false;
    return waitid(P_PID, (id_t)x->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void runtime_exec_on_start_result(void *arg, uint32_t events UNUSED)
{
    struct runtime_exec *x = arg;
    struct err err = { 0 };

    if (x->s->is_finished)
        return;
    int verdict = x->is_interpreter ? interpreter_start_result(x->start_result_fd, &x->pid, &err)
                                    : spawn_start_result(x->start_result_fd, &err);
    if (verdict == 0)
        return;
    if (verdict > 0 && x->is_interpreter && !runtime_exec_pid_is_own_child(x)) {
        x->pid = 0;
        verdict = err_set(&err, ERR_LOST, "another process answered in place of the interpreter");
    }
    ev_io_del(x->rt->ev, &x->start_result_io);
    fd_close(&x->start_result_fd);
    if (verdict < 0) {
        x->start_failed = true;
        runtime_stream_fail(x->s, &err);
        return;
    }
    runtime_exec_on_started(x);
}

static void runtime_exec_on_resume(struct runtime_stream *s)
{
    struct runtime_exec *x = s->obj;

    if (x->started)
        runtime_exec_send_started(x);
}

static void runtime_exec_release(struct runtime_stream *s)
{
    struct runtime_exec *x = s->obj;
    struct ev *ev = x->rt->ev;

    list_remove(&x->rt->execs, x);
    if (!x->reaped && !x->start_failed) /* the host closed the stream before the end */
        runtime_exec_kill_tree(x);
    runtime_exec_close_all(x);
    ev_io_del(ev, &x->start_result_io);
    fd_close(&x->start_result_fd);
    free(x);
}

static const struct runtime_stream_ops runtime_exec_stream_ops = {
    .on_data = runtime_exec_on_data,
    .on_control = runtime_exec_on_control,
    .on_room = runtime_exec_on_room,
    .resume = runtime_exec_on_resume,
    .release = runtime_exec_release,
};

static int runtime_exec_watch_fds(struct runtime_exec *x, struct err *err)
{
    struct ev *ev = x->rt->ev;

    for (size_t i = 0; i < ARRAY_LEN(x->outputs); i++)
        if (x->outputs[i].fd >= 0 &&
            ev_io_add(ev, &x->outputs[i].io, x->outputs[i].fd, 0, program_output_on_readable, &x->outputs[i], err) < 0)
            return -1;
    if (program_input_watch(&x->stdin_input, err) < 0 || program_input_watch(&x->kernel_input, err) < 0)
        return -1;
    if (x->start_result_fd >= 0)
        return ev_io_add(ev, &x->start_result_io, x->start_result_fd, EPOLLIN, runtime_exec_on_start_result, x, err);
    runtime_exec_on_started(x);
    return 0;
}

/* The fork order is sent only between two lines of the host: it must not complete a partial line,
 * and a language kernel that has not read earlier input gets no further input. */
static int runtime_exec_fork_kernel(struct runtime *rt, uint32_t of, struct spawned_program *ret, struct err *err)
{
    const struct runtime_stream *s = runtime_stream_find(&rt->streams, of);
    const struct runtime_exec *x = s && s->ops == &runtime_exec_stream_ops && !s->is_finished ? s->obj : NULL;

    if (!x || !x->started || x->reaped || x->kernel_input.fd < 0)
        return err_set(err, ERR_LOST, "the context has no running language kernel to fork");
    if (x->kernel_input.buf.len > 0 || (x->kernel_input.last_byte != '\0' && x->kernel_input.last_byte != '\n'))
        return err_set(err, ERR_EXISTS, "the language kernel is busy; try again when it is idle");
    return interpreter_fork_kernel(x->kernel_input.fd, ret, err);
}

static int runtime_exec_start(struct runtime *rt, struct runtime_stream *s, const struct rt_exec *req, struct err *err)
{
    uint64_t first_pid = RT_UNKNOWN;
    struct spawned_program sp;

    if (env_check(req->env, err) < 0)
        return -1;
    auto_free const char **env = env_merge(rt->env, req->env);
    if (!procs_last_pid(&rt->procs, &first_pid))
        first_pid = RT_UNKNOWN;
    if (req->flags & RT_EXEC_FORKED   ? runtime_exec_fork_kernel(rt, req->forked_stream, &sp, err) < 0
        : req->flags & RT_EXEC_JOINED ? interpreter_start_exec(rt, req, env, &sp, err) < 0
                                      : spawn_start(&rt->paths, req, env, first_pid == 1, &sp, err) < 0)
        return -1;

    struct runtime_exec *x = mem_new(struct runtime_exec);
    *x = (struct runtime_exec){
        .rt = rt,
        .s = s,
        .next = rt->execs,
        .pid = sp.pid,
        .tty = req->flags & RT_EXEC_TTY,
        .is_interpreter = req->flags & (RT_EXEC_JOINED | RT_EXEC_FORKED),
        .start_result_fd = sp.start_result,
        .outputs = { { .x = x, .fd = sp.out, .channel = RT_STDOUT, .existed = true },
                     { .x = x, .fd = sp.err, .channel = RT_STDERR, .existed = sp.err >= 0 },
                     { .x = x, .fd = sp.kernel, .channel = RT_KERNEL, .existed = sp.kernel >= 0 } },
        .stdin_input = { .stream = s,
                         .fd = sp.in,
                         .kind = req->flags & RT_EXEC_TTY ? PROGRAM_INPUT_TERMINAL : PROGRAM_INPUT_PIPE },
        .kernel_input = { .stream = s, .fd = sp.kernel_in, .kind = PROGRAM_INPUT_SOCKET },
        .first_pid = first_pid,
    };
    rt->execs = x;
    s->obj = x;
    s->ops = &runtime_exec_stream_ops;
    return runtime_exec_watch_fds(x, err);
}

int runtime_exec_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    auto_free void *strings = NULL;
    struct rt_exec req;

    if (rt_exec_decode(f, &req, &strings, err) < 0)
        return -1;
    return runtime_exec_start(rt, s, &req, err);
}

uint32_t runtime_exec_count(const struct runtime *rt)
{
    uint32_t n = 0;

    for (const struct runtime_exec *x = rt->execs; x; x = x->next)
        n += !x->s->is_finished;
    return n;
}

uint32_t runtime_exec_count_alive(const struct runtime *rt)
{
    uint32_t n = 0;

    for (const struct runtime_exec *x = rt->execs; x; x = x->next)
        n += !x->reaped && !x->start_failed;
    return n;
}

/* --- reaping --- */

static uint64_t runtime_exec_timeval_us(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec;
}

static void runtime_exec_reap_main(struct runtime_exec *x)
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
    e->user_us = runtime_exec_timeval_us(ru.ru_utime);
    e->sys_us = runtime_exec_timeval_us(ru.ru_stime);
    e->max_rss = (uint64_t)ru.ru_maxrss * KIB;
    e->read_bytes = e->write_bytes = RT_UNKNOWN;
    if (counted && procs_io(&x->rt->procs, &after)) {
        e->read_bytes = after.rchar - before.rchar - before.cost;
        e->write_bytes = after.wchar - before.wchar;
    }
    x->reaped = true;
    x->ended_at = ev_now(x->rt->ev);
    runtime_exec_measure_output(x);
    runtime_exec_check_end(x);
}

bool runtime_exec_reap(struct runtime *rt)
{
    /* A joined interpreter may have ended already, with its pid in an answer that is not read
     * yet. */
    for (struct runtime_exec *x = rt->execs, *next; x; x = next) {
        next = x->next;
        if (x->is_interpreter && x->start_result_fd >= 0)
            runtime_exec_on_start_result(x, 0);
    }
    for (int i = 0; i < REAP_SLICE; i++) {
        siginfo_t si = { 0 };
        struct runtime_exec *x = rt->execs;

        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
            return false;
        while (x && (x->pid != si.si_pid || x->reaped))
            x = x->next;
        if (x)
            runtime_exec_reap_main(x);
        else
            waitpid(si.si_pid, NULL, WNOHANG);
    }
    return true;
}
