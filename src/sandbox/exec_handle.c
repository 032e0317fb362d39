/* One program in a sandbox: PREPARING -> STARTING -> RUNNING -> COLLECTING -> ENDED.
 *
 * The cause of the end is decided once, by the first of: the EXIT frame, a clock, the memory
 * limit, the caller, or the loss of the sandbox. The decision does not wait until the program is
 * dead; its death then takes up to two steps. First the runtime gets the request to kill the
 * whole process tree, because the runtime still holds output of the program and delivers it with
 * EXIT. If the runtime does not answer within GRACE_NS (a fork bomb leaves it no CPU time), the
 * driver ends the sandbox.
 *
 * COLLECTING, the receipt and everything after EXIT are in exec_receipt.c; the requests of the
 * caller are in exec_requests.c.
 *
 * Invariants:
 * 1. Every byte that arrived was delivered, or counted as dropped, before on_exit.
 * 2. Bytes beyond the cap are consumed like the others, so a program never blocks on output that
 *    is dropped.
 * 3. An execution that was freed while it ran stays in the sandbox's list, without callbacks,
 *    until it is dead. */
#include "sandbox/engine_internal.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <signal.h>

#define GRACE_NS (200 * NS_PER_MS)                   /* for the runtime to kill a process tree and report */
#define EXEC_KILL_GRACE_SHARED_NS (1000 * NS_PER_MS) /* the same, when other executions would die with the sandbox */
/* The same, when the files and the id of a kept sandbox would be lost. */
#define EXEC_KILL_GRACE_KEPT_NS (10 * NS_PER_S)
#define STEP_NS (10 * NS_PER_S) /* for SNAPSHOT */

static void exec_handle_on_timer(void *arg);

void exec_handle_set_timer(struct exec_handle *x, uint64_t at)
{
    if (at == CLOCKS_NEVER)
        ev_timer_clear(x->ev, &x->timer);
    else
        ev_timer_set(x->ev, &x->timer, at, exec_handle_on_timer, x);
}

void exec_handle_drop_stream(struct exec_handle *x)
{
    if (x->stream)
        sandbox_stream_abandon(x->stream);
    x->stream = NULL;
}

static void exec_handle_unlink(struct exec_handle *x)
{
    list_remove(&x->sandbox->execs, x);
    x->sandbox = NULL;
}

/* The execution gets no callback any more about an interpreter that is on its way. */
static void exec_handle_cancel_join(struct exec_handle *x)
{
    struct driver_request *join = x->sandbox ? x->sandbox->join_request : NULL;

    if (join && join->then_arg == x)
        join->then.done = NULL;
    free(take_ptr(&x->interpreter_request));
}

void exec_handle_release(struct exec_handle *x)
{
    exec_handle_cancel_join(x);
    if (x->sandbox && x->close_pending)
        sandbox_stream_close(x->sandbox, x->stream_id);
    if (x->sandbox && x->uses_interpreter && x->sandbox->interpreter == SANDBOX_INTERPRETER_RESERVED)
        x->sandbox->interpreter = SANDBOX_INTERPRETER_WAITING;
    if (x->sandbox)
        exec_handle_unlink(x);
    receipt_done(&x->receipt);
    free(take_ptr(&x->request));
    driver_free_deferred(x->ev, &x->defer, x);
}

/* --- frames of the program's stream --- */

/* For a program that ended before it was resumed, the runtime repeats its output and its end,
 * but not STARTED. */
static void exec_handle_resume_started(struct exec_handle *x)
{
    if (!x->is_resumed || x->state != EXEC_STARTING)
        return;
    x->state = EXEC_RUNNING;
    if (x->ops && x->ops->on_started)
        x->ops->on_started(x->arg);
}

static void exec_handle_credit(struct exec_handle *x, struct sandbox_stream *s, uint32_t len)
{
    if (!x->stream)
        return; /* freed by the callback */
    if (x->credit_held)
        x->uncredited_bytes += len;
    else
        sandbox_stream_consumed(s, len);
}

static bool exec_handle_on_kernel_data(struct exec_handle *x, const struct frame *f)
{
    struct sandbox_stream *s = x->stream;

    if (!x->is_language_kernel || x->state != EXEC_RUNNING)
        return false;
    if (f->len > 0 && x->ops && x->ops->on_language_kernel_data)
        x->ops->on_language_kernel_data(x->arg, f->data, f->len);
    exec_handle_credit(x, s, f->len);
    return true;
}

static bool exec_handle_on_output(struct exec_handle *x, const struct frame *f)
{
    struct sandbox_stream *s = x->stream;
    int channel = f->flags & RT_CHANNEL;
    size_t known = (size_t)min_u64(x->resume_skip_bytes, f->len);
    size_t give = f->len - known;

    exec_handle_resume_started(x);
    if (channel == RT_KERNEL)
        return exec_handle_on_kernel_data(x, f);
    if (x->state != EXEC_RUNNING || (channel != RT_STDOUT && (channel != RT_STDERR || x->tty)))
        return false;
    x->resume_skip_bytes -= known;
    *(channel == RT_STDOUT ? &x->receipt.stdout_bytes : &x->receipt.stderr_bytes) += give;
    if (x->output_max > 0)
        give = (size_t)min_u64(give, x->output_max - min_u64(x->output_delivered, x->output_max));
    x->output_delivered += give;
    x->receipt.dropped_bytes += f->len - known - give;
    x->dropped_bytes[channel == RT_STDERR] += f->len - known - give;
    if (give > 0 && x->ops && x->ops->on_output)
        x->ops->on_output(x->arg, channel, f->data + known, give);
    exec_handle_credit(x, s, f->len);
    return true;
}

static bool exec_handle_on_exit_frame(struct exec_handle *x, const struct frame *f)
{
    struct rt_exit m;

    exec_handle_resume_started(x);
    x->stream = NULL;
    x->close_pending = x->confirm_end;
    if (x->state != EXEC_RUNNING || rt_exit_decode(f, &m, NULL) < 0)
        return false;
    bool exited = m.code >= 0 && m.code <= 255 && m.signal == 0;
    bool signaled = m.code == -1 && m.signal > 0 && m.signal <= SIGRTMAX;
    if (!exited && !signaled)
        return false;
    exec_receipt_on_exit(x, &m);
    return true;
}

static bool exec_handle_on_started(struct exec_handle *x, const struct frame *f)
{
    if (x->state != EXEC_STARTING || f->len != 4)
        return false;
    x->state = EXEC_RUNNING;
    x->receipt.started_real_ns = clock_real_ns(); /* only now: before, it was only requested */
    if (x->ops && x->ops->on_started)
        x->ops->on_started(x->arg);
    return true;
}

static bool exec_handle_on_error(struct exec_handle *x, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    x->stream = NULL;
    x->close_pending = x->confirm_end;
    if (x->state != EXEC_STARTING || rt_error_decode(f, &m, NULL) < 0)
        return false;
    rt_error_to_err(&m, &err);
    exec_handle_fail(x, &err);
    return true;
}

static bool exec_handle_on_frame(void *arg, const struct frame *f)
{
    struct exec_handle *x = arg;

    switch (f->type) {
    case FRAME_STARTED:
        return exec_handle_on_started(x, f);
    case FRAME_DATA:
        return exec_handle_on_output(x, f);
    case FRAME_EXIT:
        return exec_handle_on_exit_frame(x, f);
    case FRAME_ERROR:
        return exec_handle_on_error(x, f);
    default:
        x->stream = NULL;
        return false;
    }
}

static void exec_handle_on_writable(void *arg)
{
    struct exec_handle *x = arg;

    if (!x->write_wanted)
        return;
    x->write_wanted = false;
    if (x->ops && x->ops->on_writable)
        x->ops->on_writable(x->arg);
}

const struct sandbox_stream_ops exec_handle_stream_ops = { .on_frame = exec_handle_on_frame,
                                                           .on_writable = exec_handle_on_writable,
                                                           .on_gone = exec_handle_on_stream_gone };

/* --- starting --- */

static void exec_handle_launch(struct exec_handle *x)
{
    struct sandbox_handle *b = x->sandbox;

    x->state = EXEC_STARTING;
    x->started_ns = ev_now(x->ev);
    x->cpu_base = sandbox_cpu_base(b);
    denials_mark_baseline(x);
    sandbox_handle_exec_launched(b, x);
    exec_clocks_start(&x->clocks, x->wall_ms, x->cpu_ms, sandbox_handle_cpu_rate(b), x->started_ns, x->cpu_base);
    if (b->paused)
        exec_clocks_pause(&x->clocks, x->started_ns);
    exec_handle_set_timer(x, exec_clocks_next(&x->clocks));
    if (x->uses_interpreter)
        b->interpreter = SANDBOX_INTERPRETER_NONE;
    x->uses_interpreter = false;
    x->stream = sandbox_stream_open_as(b, x->stream_id, FRAME_EXEC, x->request, x->request_len, &exec_handle_stream_ops,
                                       x);
    x->stream->confirm_end = x->confirm_end;
    free(take_ptr(&x->request));
    if (x->resize_wanted)
        exec_handle_send_resize(x);
    if (x->signal_wanted)
        exec_handle_send_signal(x, x->signal_wanted, RT_SCOPE_GROUP);
    if (x->stdin_end_wanted)
        exec_handle_send_stdin_end(x);
    exec_handle_on_writable(x);
}

static bool exec_handle_on_snapshot_frame(void *arg, const struct frame *f)
{
    struct exec_handle *x = arg;

    if (f->type == FRAME_DATA || f->type == FRAME_STARTED)
        return false; /* the stream stays until the sandbox has ended */
    x->stream = NULL;
    if (f->type != FRAME_DONE && f->type != FRAME_ERROR)
        return false;
    if (f->type == FRAME_ERROR)
        x->receipt.changes_why = "the sandbox could not record its files before the start";
    if (!x->end_decided)
        exec_handle_launch(x);
    return true;
}

static const struct sandbox_stream_ops exec_handle_snapshot_ops = { .on_frame = exec_handle_on_snapshot_frame,
                                                                    .on_gone = exec_handle_on_stream_gone };

static int exec_handle_encode_request(const struct exec_spec *spec, bool joined, uint8_t **ret, struct err *err)
{
    struct rt_exec m = { .rows = spec->rows, .cols = spec->cols, .argv = spec->argv, .env = spec->env };
    PAYLOAD(payload);

    m.cwd = spec->cwd ? spec->cwd : "";
    m.flags = (spec->tty ? RT_EXEC_TTY : 0) | (spec->stdin_open ? RT_EXEC_STDIN : 0) |
              (spec->is_language_kernel ? RT_EXEC_KERNEL : 0) | (joined ? RT_EXEC_JOINED : 0) |
              (spec->fork_of ? RT_EXEC_FORKED : 0);
    if (spec->fork_of)
        m.forked_stream = exec_handle_stream_id(spec->fork_of);
    int len = rt_exec_encode(&m, payload, err);
    if (len < 0)
        return err_wrap(err, "arguments and environment of the program");
    *ret = mem_copy(payload, (size_t)len);
    return len;
}

/* --- an interpreter that still has to join --- */

static void exec_handle_on_interpreter(void *arg, const struct err *err)
{
    struct exec_handle *x = arg;

    if (x->state != EXEC_PREPARING || x->end_decided)
        return;
    if (!err) {
        free(x->request);
        x->request = take_ptr(&x->interpreter_request);
        x->request_len = x->interpreter_request_len;
        x->uses_interpreter = true;
    }
    exec_handle_launch(x);
}

/* Another execution may wait for the interpreter that is on its way, and there is only one at a
 * time. */
static bool exec_handle_can_join(const struct sandbox_handle *b, const struct exec_spec *spec)
{
    return spec->prefer_interpreter && !spec->changes && b->kind.language[0] &&
           b->interpreter == SANDBOX_INTERPRETER_NONE && !(b->join_request && b->join_request->then.done);
}

static void exec_handle_join_interpreter(struct exec_handle *x, uint8_t *request, int len)
{
    x->interpreter_request = request;
    x->interpreter_request_len = (uint32_t)len;
    exec_handle_set_timer(x, ev_now(x->ev) + STEP_NS);
    sandbox_handle_join_interpreter(x->sandbox, exec_handle_on_interpreter, x);
}

struct exec_handle *exec_handle_create(struct sandbox_handle *b, const struct exec_spec *spec,
                                       const struct exec_handle_ops *ops, void *arg)
{
    struct exec_handle *x = mem_new(struct exec_handle);

    x->sandbox = b;
    x->ev = b->ev;
    x->ops = ops;
    x->arg = arg;
    x->tty = spec->tty;
    x->stdin_open = spec->stdin_open;
    x->changes = spec->changes;
    x->is_language_kernel = spec->is_language_kernel;
    x->unmetered = spec->unmetered;
    x->confirm_end = spec->confirm_end;
    x->output_max = spec->output_max;
    x->wall_ms = spec->wall_ms;
    x->cpu_ms = spec->cpu_ms;
    exec_receipt_begin(x, b, spec);
    x->next = b->execs;
    b->execs = x;
    sandbox_handle_exec_added(b);
    return x;
}

int sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_handle_ops *ops,
                        void *arg, struct exec_handle **ret, struct err *err)
{
    if (!sandbox_handle_accepts_exec(b))
        return err_set(err, ERR_BUSY, "sandbox %s takes no execution now; it may just have ended", b->id);
    if (!spec->argv || !spec->argv[0])
        return err_set(err, ERR_INVALID, "an execution needs a program");
    if (spec->id && !id_valid(spec->id, "ex"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of an execution", spec->id);

    if (spec->use_waiting_interpreter && !sandbox_handle_has_interpreter(b))
        return err_set(err, ERR_MISSING, "no interpreter waits in sandbox %s", b->id);
    bool joined = spec->use_waiting_interpreter || (spec->prefer_interpreter && sandbox_handle_has_interpreter(b)),
         brought = !joined && exec_handle_can_join(b, spec);
    auto_free uint8_t *request = NULL, *later = NULL;
    int len = exec_handle_encode_request(spec, joined, &request, err),
        later_len = brought ? exec_handle_encode_request(spec, true, &later, err) : 0;
    if (len < 0 || later_len < 0)
        return -1;
    struct exec_handle *x = exec_handle_create(b, spec, ops, arg);
    x->request = take_ptr(&request);
    x->request_len = (uint32_t)len;
    x->stream_id = sandbox_stream_reserve(b);
    if (joined)
        b->interpreter = SANDBOX_INTERPRETER_RESERVED;
    x->uses_interpreter = joined;
    if (brought) {
        x->cpu_base = sandbox_cpu_base(b); /* until the launch */
        exec_handle_join_interpreter(x, take_ptr(&later), later_len);
    } else if (x->changes) {
        x->cpu_base = sandbox_cpu_base(b); /* until the launch */
        exec_handle_set_timer(x, ev_now(x->ev) + STEP_NS);
        x->stream = exec_handle_open_path_request(x, FRAME_SNAPSHOT, &exec_handle_snapshot_ops);
    } else {
        exec_handle_launch(x);
    }
    *ret = x;
    return 0;
}

/* --- ending --- */

void exec_handle_end(struct exec_handle *x, enum ended_by cause)
{
    if (x->end_decided || x->state >= EXEC_COLLECTING || !x->sandbox)
        return;
    exec_handle_decide_end(x, cause);
    if (x->state == EXEC_PREPARING) {
        exec_handle_set_timer(x, 0);
        return;
    }
    exec_handle_send_signal(x, SIGKILL, RT_SCOPE_TREE);
    exec_handle_set_timer(x, ev_now(x->ev) + (x->sandbox->is_kept             ? EXEC_KILL_GRACE_KEPT_NS
                                              : x->sandbox->running_execs > 1 ? EXEC_KILL_GRACE_SHARED_NS
                                                                              : GRACE_NS));
}

static void exec_handle_on_grace_expired(struct exec_handle *x)
{
    struct sandbox_handle *b = x->sandbox;
    struct err err;

    if (b->clock_expired)
        err = b->why;
    else
        err_set(&err, ERR_LIMIT, "the sandbox was ended because an execution in it (%s) could not be killed",
                ended_by_name(x->receipt.ended_by));
    sandbox_handle_kill(b, &err);
}

static void exec_handle_on_prepare_timer(struct exec_handle *x)
{
    exec_handle_drop_stream(x);
    exec_handle_cancel_join(x);
    if (x->changes)
        x->receipt.changes_why = x->end_decided ? "the program was never started"
                                                : "recording the files before the start took too long";
    if (x->end_decided)
        exec_handle_finish(x);
    else
        exec_handle_launch(x);
}

static void exec_handle_on_clock(struct exec_handle *x)
{
    enum ended_by cause;
    struct cpu_sample cpu = sandbox_cpu_read(x->sandbox);

    if (exec_clocks_check(&x->clocks, ev_now(x->ev), cpu, &cause))
        exec_handle_end(x, cause);
    else
        exec_handle_set_timer(x, exec_clocks_next(&x->clocks));
}

static void exec_handle_on_timer(void *arg)
{
    struct exec_handle *x = arg;

    driver_callback_begin();
    if (x->state == EXEC_PREPARING) {
        exec_handle_on_prepare_timer(x);
    } else if (x->awaits_resume) {
        exec_resume_timeout(x);
    } else if (x->state == EXEC_COLLECTING) {
        exec_receipt_timeout(x);
    } else if (x->end_decided) {
        exec_handle_on_grace_expired(x);
    } else {
        exec_handle_on_clock(x);
    }
    driver_callback_end();
}

void exec_handle_pause(struct exec_handle *x, bool paused)
{
    /* The clocks of an execution that awaits its RESUME start when RESUME arrives; until then
     * the timer only limits that wait. */
    if ((x->state != EXEC_STARTING && x->state != EXEC_RUNNING) || x->end_decided || x->awaits_resume)
        return;
    (paused ? exec_clocks_pause : exec_clocks_resume)(&x->clocks, ev_now(x->ev));
    exec_handle_set_timer(x, exec_clocks_next(&x->clocks));
}

/* --- release --- */

void exec_handle_detach(struct exec_handle *x)
{
    denials_drop_collection(x);
    ev_timer_clear(x->ev, &x->timer);
    x->stream = NULL;
    x->state = EXEC_ENDED;
    exec_handle_unlink(x);
    if (!x->ops)
        exec_handle_release(x);
}

void exec_handle_free(struct exec_handle *x)
{
    if (!x)
        return;
    x->ops = NULL;
    exec_handle_hold_credit(x, false);
    if (x->sandbox && x->state != EXEC_ENDED) {
        exec_handle_end(x, ENDED_KILLED);
        return;
    }
    exec_handle_release(x);
}
