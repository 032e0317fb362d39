/* One program in a box: MARKING -> STARTING -> RUNNING -> SETTLING -> OVER.
 *
 * Why it ended is decided once, by whoever comes first: the EXIT frame, a clock, the memory limit, the caller, or the
 * loss of the sandbox. The decision does not wait for the death; the death is then brought about in two steps. First
 * the runtime is told to kill the whole tree, because it still holds output that the program wrote and delivers it with
 * EXIT. A runtime that does not answer within GRACE_NS (a fork bomb leaves it no time) loses its say: the jailer ends
 * the sandbox.
 *
 * SETTLING, the receipt and everything after EXIT are in settle.c.
 *
 * Invariants:
 * 1. Every byte that arrived was delivered, or counted as dropped, before on_exit.
 * 2. Bytes past the cap are consumed like the others, so a program never blocks on output that nobody wants.
 * 3. An execution that was freed while it ran stays in the box's list, without callbacks, until it is dead. */
#include "engine/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <signal.h>

#define GRACE_NS (200 * NS_PER_MS)         /* for the runtime to kill a tree and report */
#define GRACE_SHARED_NS (1000 * NS_PER_MS) /* the same, when others would die with the sandbox */
#define GRACE_KEPT_NS (10 * NS_PER_S)      /* the same, when its files and its name would be lost to somebody */
#define STEP_NS (10 * NS_PER_S)            /* for MARK */

static void on_timer(void *arg);

void exec_set_timer(struct exec *x, uint64_t at)
{
    if (at == CLOCKS_NEVER)
        ev_timer_clear(x->ev, &x->timer);
    else
        ev_timer_set(x->ev, &x->timer, at, on_timer, x);
}

void exec_drop_stream(struct exec *x)
{
    if (x->stream)
        stream_abandon(x->stream);
    x->stream = NULL;
}

static void unlink_exec(struct exec *x)
{
    struct exec **p = &x->box->execs;

    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    x->box = NULL;
}

/* Of an interpreter that is on its way, nothing is told to it any more. */
static void bring_no_more(struct exec *x)
{
    struct ask *join = x->box ? x->box->join : NULL;

    if (join && join->done_arg == x)
        join->done = NULL;
    free(take_ptr(&x->joined_request));
}

void exec_release(struct exec *x)
{
    bring_no_more(x);
    if (x->box && x->unclosed)
        stream_close(x->box, x->stream_id);
    if (x->box && x->joined && x->box->member == MEMBER_PROMISED)
        x->box->member = MEMBER_WAITS;
    if (x->box)
        unlink_exec(x);
    receipt_done(&x->receipt);
    free(take_ptr(&x->request));
    engine_release(x->ev, &x->defer, x);
}

/* --- frames of the program's stream --- */

/* Of a program that has ended before it was taken up, the runtime repeats what it wrote and its end, but not that it
 * started. */
static void started_before(struct exec *x)
{
    if (!x->resumed || x->state != EXEC_STARTING)
        return;
    x->state = EXEC_RUNNING;
    if (x->ops && x->ops->on_started)
        x->ops->on_started(x->arg);
}

static void credit(struct exec *x, struct stream *s, uint32_t len)
{
    if (!x->stream)
        return; /* freed by the callback */
    if (x->hold)
        x->held += len;
    else
        stream_consumed(s, len);
}

static bool on_kernel(struct exec *x, const struct frame *f)
{
    struct stream *s = x->stream;

    if (!x->kernel || x->state != EXEC_RUNNING)
        return false;
    if (f->len > 0 && x->ops && x->ops->on_kernel)
        x->ops->on_kernel(x->arg, f->data, f->len);
    credit(x, s, f->len);
    return true;
}

static bool on_output(struct exec *x, const struct frame *f)
{
    struct stream *s = x->stream;
    int channel = f->flags & RT_CHANNEL;
    size_t known = (size_t)min_u64(x->skip, f->len);
    size_t give = f->len - known;

    started_before(x);
    if (channel == RT_KERNEL)
        return on_kernel(x, f);
    if (x->state != EXEC_RUNNING || (channel != RT_STDOUT && (channel != RT_STDERR || x->tty)))
        return false;
    x->skip -= known;
    *(channel == RT_STDOUT ? &x->receipt.stdout_bytes : &x->receipt.stderr_bytes) += give;
    if (x->output_max > 0)
        give = (size_t)min_u64(give, x->output_max - min_u64(x->handed, x->output_max));
    x->handed += give;
    x->receipt.dropped_bytes += f->len - known - give;
    x->dropped[channel == RT_STDERR] += f->len - known - give;
    if (give > 0 && x->ops && x->ops->on_output)
        x->ops->on_output(x->arg, channel, f->data + known, give);
    credit(x, s, f->len);
    return true;
}

static bool on_exit_frame(struct exec *x, const struct frame *f)
{
    struct rt_exit m;

    started_before(x);
    x->stream = NULL;
    x->unclosed = x->confirm;
    if (x->state != EXEC_RUNNING || rt_exit_decode(f, &m, NULL) < 0)
        return false;
    bool exited = m.code >= 0 && m.code <= 255 && m.signal == 0;
    bool signaled = m.code == -1 && m.signal > 0 && m.signal <= SIGRTMAX;
    if (!exited && !signaled)
        return false;
    settle_exit(x, &m);
    return true;
}

static bool on_started(struct exec *x, const struct frame *f)
{
    if (x->state != EXEC_STARTING || f->len != 4)
        return false;
    x->state = EXEC_RUNNING;
    x->receipt.started_real_ns = clock_real_ns(); /* only now; before, it was asked for */
    if (x->ops && x->ops->on_started)
        x->ops->on_started(x->arg);
    return true;
}

static bool on_error(struct exec *x, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    x->stream = NULL;
    x->unclosed = x->confirm;
    if (x->state != EXEC_STARTING || rt_error_decode(f, &m, NULL) < 0)
        return false;
    engine_error(&m, &err);
    exec_fail(x, &err);
    return true;
}

static bool on_frame(void *arg, const struct frame *f)
{
    struct exec *x = arg;

    switch (f->type) {
    case FRAME_STARTED:
        return on_started(x, f);
    case FRAME_DATA:
        return on_output(x, f);
    case FRAME_EXIT:
        return on_exit_frame(x, f);
    case FRAME_ERROR:
        return on_error(x, f);
    default:
        x->stream = NULL;
        return false;
    }
}

static void on_writable(void *arg)
{
    struct exec *x = arg;

    if (!x->write_wanted)
        return;
    x->write_wanted = false;
    if (x->ops && x->ops->on_writable)
        x->ops->on_writable(x->arg);
}

const struct stream_ops exec_stream_ops = { .on_frame = on_frame,
                                            .on_writable = on_writable,
                                            .on_gone = exec_stream_gone };

/* --- starting --- */

static void send_signal(struct exec *x, int signo, enum rt_scope scope)
{
    struct rt_signal m = { .signo = (uint32_t)signo, .scope = (uint8_t)scope };
    PAYLOAD(payload);
    int len = rt_signal_encode(&m, payload, NULL);

    if (len > 0 && x->stream)
        stream_send(x->stream, FRAME_SIGNAL, 0, payload, (uint32_t)len);
}

static void send_resize(struct exec *x)
{
    struct rt_resize m = { .rows = x->rows, .cols = x->cols };
    PAYLOAD(payload);
    int len = rt_resize_encode(&m, payload, NULL);

    if (len > 0 && x->stream)
        stream_send(x->stream, FRAME_RESIZE, 0, payload, (uint32_t)len);
}

static void send_end(struct exec *x)
{
    if (x->stream && !x->stdin_ended)
        stream_send(x->stream, FRAME_DATA, RT_STDIN | RT_END, NULL, 0);
    x->stdin_ended = true;
}

static void launch(struct exec *x)
{
    struct box *b = x->box;

    x->state = EXEC_STARTING;
    x->started_ns = ev_now(x->ev);
    x->cpu_base = cpu_read(b->cpu_fd, b->outside.cpu_unit);
    denials_base(x);
    box_exec_launched(b, x);
    clocks_start(&x->clocks, x->wall_ms, x->cpu_ms, box_cpu_rate(b), x->started_ns, x->cpu_base);
    if (b->paused)
        clocks_pause(&x->clocks, x->started_ns);
    exec_set_timer(x, clocks_next(&x->clocks));
    if (x->joined)
        b->member = MEMBER_NONE;
    x->joined = false;
    x->stream = stream_open_as(b, x->stream_id, FRAME_EXEC, x->request, x->request_len, &exec_stream_ops, x);
    x->stream->confirm = x->confirm;
    free(take_ptr(&x->request));
    if (x->resize_wanted)
        send_resize(x);
    if (x->signal_wanted)
        send_signal(x, x->signal_wanted, RT_SCOPE_GROUP);
    if (x->end_wanted)
        send_end(x);
    on_writable(x);
}

static bool on_mark_frame(void *arg, const struct frame *f)
{
    struct exec *x = arg;

    if (f->type == FRAME_DATA || f->type == FRAME_STARTED)
        return false; /* the stream stays until the box has ended */
    x->stream = NULL;
    if (f->type != FRAME_DONE && f->type != FRAME_ERROR)
        return false;
    if (f->type == FRAME_ERROR)
        x->receipt.changes_why = "the sandbox could not note its files before the start";
    if (!x->decided)
        launch(x);
    return true;
}

static const struct stream_ops mark_ops = { .on_frame = on_mark_frame, .on_gone = exec_stream_gone };

static int encode(const struct exec_spec *spec, bool joined, uint8_t **ret, struct err *err)
{
    struct rt_exec m = { .rows = spec->rows, .cols = spec->cols, .argv = spec->argv, .env = spec->env };
    PAYLOAD(payload);

    m.cwd = spec->cwd ? spec->cwd : "";
    m.flags = (spec->tty ? RT_EXEC_TTY : 0) | (spec->stdin_open ? RT_EXEC_STDIN : 0) |
              (spec->kernel ? RT_EXEC_KERNEL : 0) | (joined ? RT_EXEC_JOINED : 0) |
              (spec->fork_of ? RT_EXEC_FORKED : 0);
    if (spec->fork_of)
        m.of = exec_stream(spec->fork_of);
    int len = rt_exec_encode(&m, payload, err);
    if (len < 0)
        return err_wrap(err, "arguments and environment of the program");
    *ret = mem_copy(payload, (size_t)len);
    return len;
}

/* --- with an interpreter that has still to join --- */

static void on_member(void *arg, const struct err *err)
{
    struct exec *x = arg;

    if (x->state != EXEC_MARKING || x->decided)
        return;
    if (!err) {
        free(x->request);
        x->request = take_ptr(&x->joined_request);
        x->request_len = x->joined_len;
        x->joined = true;
    }
    launch(x);
}

/* Another may wait for the one that is on its way, and there is one at a time. */
static bool can_bring(const struct box *b, const struct exec_spec *spec)
{
    return spec->join && !spec->changes && b->kind.language[0] && b->member == MEMBER_NONE &&
           !(b->join && b->join->done);
}

static void bring(struct exec *x, uint8_t *request, int len)
{
    x->joined_request = request;
    x->joined_len = (uint32_t)len;
    exec_set_timer(x, ev_now(x->ev) + STEP_NS);
    box_join(x->box, on_member, x);
}

struct exec *exec_make(struct box *b, const struct exec_spec *spec, const struct exec_ops *ops, void *arg)
{
    struct exec *x = mem_new(struct exec);

    x->box = b;
    x->ev = b->ev;
    x->ops = ops;
    x->arg = arg;
    x->tty = spec->tty;
    x->stdin_open = spec->stdin_open;
    x->changes = spec->changes;
    x->kernel = spec->kernel;
    x->unmetered = spec->unmetered;
    x->confirm = spec->confirm;
    x->output_max = spec->output_max;
    x->wall_ms = spec->wall_ms;
    x->cpu_ms = spec->cpu_ms;
    settle_begin(x, b, spec);
    x->next = b->execs;
    b->execs = x;
    box_exec_added(b);
    return x;
}

int box_exec(struct box *b, const struct exec_spec *spec, const struct exec_ops *ops, void *arg, struct exec **ret,
             struct err *err)
{
    if (!box_takes_exec(b))
        return err_set(err, ERR_BUSY, "sandbox %s takes no execution at this moment; it may just have ended", b->id);
    if (!spec->argv || !spec->argv[0])
        return err_set(err, ERR_INVALID, "an execution needs a program");
    if (spec->id && !id_valid(spec->id, "ex"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of an execution", spec->id);

    if (spec->joined && !box_has_member(b))
        return err_set(err, ERR_MISSING, "no interpreter waits in sandbox %s", b->id);
    bool joined = spec->joined || (spec->join && box_has_member(b)), brought = !joined && can_bring(b, spec);
    auto_free uint8_t *request = NULL, *later = NULL;
    int len = encode(spec, joined, &request, err), later_len = brought ? encode(spec, true, &later, err) : 0;
    if (len < 0 || later_len < 0)
        return -1;
    struct exec *x = exec_make(b, spec, ops, arg);
    x->request = take_ptr(&request);
    x->request_len = (uint32_t)len;
    x->stream_id = stream_reserve(b);
    if (joined)
        b->member = MEMBER_PROMISED;
    x->joined = joined;
    if (brought) {
        x->cpu_base = cpu_read(b->cpu_fd, b->outside.cpu_unit); /* until it is launched */
        bring(x, take_ptr(&later), later_len);
    } else if (x->changes) {
        x->cpu_base = cpu_read(b->cpu_fd, b->outside.cpu_unit); /* until it is launched */
        exec_set_timer(x, ev_now(x->ev) + STEP_NS);
        x->stream = exec_open_path(x, FRAME_MARK, &mark_ops);
    } else {
        launch(x);
    }
    *ret = x;
    return 0;
}

/* --- ending --- */

void exec_end(struct exec *x, enum ended_by cause)
{
    if (x->decided || x->state >= EXEC_SETTLING || !x->box)
        return;
    exec_decide(x, cause);
    if (x->state == EXEC_MARKING) {
        exec_set_timer(x, 0);
        return;
    }
    send_signal(x, SIGKILL, RT_SCOPE_TREE);
    exec_set_timer(x, ev_now(x->ev) + (x->box->kept          ? GRACE_KEPT_NS
                                       : x->box->running > 1 ? GRACE_SHARED_NS
                                                             : GRACE_NS));
}

static void grace_is_over(struct exec *x)
{
    struct box *b = x->box;
    struct err err;

    if (b->over)
        err = b->why;
    else
        err_set(&err, ERR_LIMIT, "the sandbox was ended because an execution in it (%s) would not die",
                ended_by_name(x->receipt.ended_by));
    box_kill(b, &err);
}

static void on_marking_timer(struct exec *x)
{
    exec_drop_stream(x);
    bring_no_more(x);
    if (x->changes)
        x->receipt.changes_why = x->decided ? "the program was never started"
                                            : "noting the files before the start took too long";
    if (x->decided)
        exec_finish(x);
    else
        launch(x);
}

static void on_clock(struct exec *x)
{
    enum ended_by cause;
    uint64_t cpu = cpu_read(x->box->cpu_fd, x->box->outside.cpu_unit);

    if (clocks_check(&x->clocks, ev_now(x->ev), cpu, &cause))
        exec_end(x, cause);
    else
        exec_set_timer(x, clocks_next(&x->clocks));
}

static void on_timer(void *arg)
{
    struct exec *x = arg;

    engine_enter();
    if (x->state == EXEC_MARKING) {
        on_marking_timer(x);
    } else if (x->awaited) {
        resume_late(x);
    } else if (x->state == EXEC_SETTLING) {
        settle_late(x);
    } else if (x->decided) {
        grace_is_over(x);
    } else {
        on_clock(x);
    }
    engine_leave();
}

void exec_pause(struct exec *x, bool paused)
{
    /* The clocks of one that is awaited begin when it was found again; until then its timer waits for that alone. */
    if ((x->state != EXEC_STARTING && x->state != EXEC_RUNNING) || x->decided || x->awaited)
        return;
    (paused ? clocks_pause : clocks_resume)(&x->clocks, ev_now(x->ev));
    exec_set_timer(x, clocks_next(&x->clocks));
}

/* --- what the caller asks for --- */

void exec_hold(struct exec *x, bool hold)
{
    size_t n = hold ? 0 : x->held;

    x->hold = hold;
    if (n == 0)
        return;
    x->held = 0;
    if (x->stream && x->state == EXEC_RUNNING)
        stream_consumed(x->stream, n);
}

size_t exec_write(struct exec *x, const void *data, size_t len)
{
    size_t n = 0;

    if (!x->stdin_open || x->stdin_ended || x->end_wanted || x->state >= EXEC_SETTLING)
        return 0;
    if (x->state != EXEC_MARKING && x->stream)
        n = stream_write(x->stream, RT_STDIN, data, len);
    x->write_wanted = n < len;
    return n;
}

size_t exec_kernel_write(struct exec *x, const void *data, size_t len)
{
    size_t n = 0;

    if (!x->kernel || x->state >= EXEC_SETTLING)
        return 0;
    if (x->state != EXEC_MARKING && x->stream)
        n = stream_write(x->stream, RT_KERNEL, data, len);
    x->write_wanted = x->write_wanted || n < len;
    return n;
}

void exec_write_end(struct exec *x)
{
    if (!x->stdin_open || x->state >= EXEC_SETTLING)
        return;
    if (x->state == EXEC_MARKING)
        x->end_wanted = true;
    else
        send_end(x);
}

void exec_signal(struct exec *x, int signo)
{
    if (x->state == EXEC_MARKING)
        x->signal_wanted = signo;
    else if (x->state < EXEC_SETTLING)
        send_signal(x, signo, RT_SCOPE_GROUP);
}

void exec_resize(struct exec *x, uint16_t rows, uint16_t cols)
{
    x->rows = rows;
    x->cols = cols;
    if (x->state == EXEC_MARKING)
        x->resize_wanted = true;
    else if (x->state < EXEC_SETTLING)
        send_resize(x);
}

void exec_kill(struct exec *x)
{
    exec_end(x, ENDED_KILLED);
}

uint32_t exec_stream(const struct exec *x)
{
    return x->stream_id;
}

uint64_t exec_cpu_base(const struct exec *x)
{
    return x->cpu_base == CPU_UNKNOWN ? 0 : x->cpu_base;
}

uint64_t exec_dropped(const struct exec *x, int channel)
{
    return x->dropped[channel == RT_STDERR];
}

const struct receipt *exec_receipt(const struct exec *x)
{
    return &x->receipt;
}

void exec_detach(struct exec *x)
{
    ev_timer_clear(x->ev, &x->timer);
    x->stream = NULL;
    x->state = EXEC_OVER;
    unlink_exec(x);
    if (!x->ops)
        exec_release(x);
}

void exec_free(struct exec *x)
{
    if (!x)
        return;
    x->ops = NULL;
    exec_hold(x, false);
    if (x->box && x->state != EXEC_OVER) {
        exec_end(x, ENDED_KILLED);
        return;
    }
    exec_release(x);
}
