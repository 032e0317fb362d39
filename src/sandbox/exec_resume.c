/* Executions that outlive the server process that started them.
 *
 * The runtime keeps every byte until it is credited and every last frame until the stream is
 * closed, so a new server process loses nothing: it sends HELLO, and the runtime lists its
 * streams (RESUME) and repeats the rest. This file only has to be ready before the first of
 * these frames arrives, to drop bytes that are stored already, and to let the clocks go on from
 * where they were.
 *
 * The runtime answers in order. So a STATS request after the last sandbox_handle_exec_resume is
 * a fence: when it is answered, every RESUME has arrived. An execution that still waits then
 * does not exist any more. A program that was not resumed was started by a server that died
 * before it could record the program, and is killed. So is every other request: a watch would go
 * on for ever, and an upload would wait for the rest of its data.
 *
 * The clocks go on from where they were. The total usage stays unknown: the information whether
 * other executions ran at the same time is lost with the previous server. */
#include "sandbox/engine_internal.h"

#define RESUME_NS (10 * NS_PER_S)

int sandbox_handle_exec_resume(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_resume *resume,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err)
{
    uint64_t now = ev_now(b->ev), elapsed = resume->elapsed_ms * NS_PER_MS;

    if (b->state != SANDBOX_HANDLE_READY || !b->adopted || !b->is_connected)
        return err_set(err, ERR_EXISTS, "sandbox %s has no executions to resume", b->id);
    if (spec->id && !id_valid(spec->id, "ex"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of an execution", spec->id);
    struct exec_handle *x = exec_handle_create(b, spec, ops, arg);
    x->state = EXEC_STARTING;
    x->is_resumed = x->awaits_resume = true;
    x->stream_id = resume->stream_id;
    x->output_delivered = resume->stored_bytes[0] + resume->stored_bytes[1];
    x->started_ns = now > elapsed ? now - elapsed : 1;
    x->cpu_base = resume->cpu_base_ns ? resume->cpu_base_ns : CPU_UNKNOWN;
    x->receipt.stdout_bytes = resume->stored_bytes[0];
    x->receipt.stderr_bytes = resume->stored_bytes[1];
    x->receipt.started_real_ns = resume->started_real_ns;
    exec_handle_set_timer(x, now + RESUME_NS);
    *ret = x;
    return 0;
}

struct exec_handle *exec_resume_find(const struct sandbox_handle *b, uint32_t stream)
{
    struct exec_handle *x = b->execs;

    while (x && !(x->awaits_resume && x->stream_id == stream))
        x = x->next;
    return x;
}

/* Bytes that were consumed and not stored were beyond the cap, or the disk was full. Nothing may
 * follow the gap: its offset would be wrong. The channel of the lost bytes is not known. */
static void exec_resume_drop_output(struct exec_handle *x, uint64_t lost)
{
    x->receipt.dropped_bytes = x->dropped_bytes[0] = lost;
    x->output_max = max_u64(x->output_max, 1);
    x->output_delivered = x->output_max;
}

void exec_resume_attach(struct exec_handle *x, struct sandbox_stream *s, const struct rt_resume *m)
{
    struct sandbox_handle *b = x->sandbox;

    x->awaits_resume = false;
    x->stream = s;
    s->confirm_end = x->confirm_end;
    s->send_credit = 0; /* the free part of the window comes as CREDIT after the repeated bytes */
    x->stdin_received = m->in;
    if (x->is_language_kernel)
        x->resume_skip_bytes = 0;
    else if (x->output_delivered >= m->out)
        x->resume_skip_bytes = x->output_delivered - m->out;
    else
        exec_resume_drop_output(x, m->out - x->output_delivered);
    uint64_t base = x->cpu_base == CPU_UNKNOWN ? sandbox_cpu_base(b) : x->cpu_base;
    exec_clocks_start(&x->clocks, x->wall_ms, x->cpu_ms, sandbox_handle_cpu_rate(b), x->started_ns, base);
    if (b->paused)
        exec_clocks_pause(&x->clocks, ev_now(x->ev));
    exec_handle_set_timer(x, exec_clocks_next(&x->clocks));
}

void exec_resume_timeout(struct exec_handle *x)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the sandbox did not list its executions within %llu s", RESUME_NS / NS_PER_S);
    sandbox_handle_kill(x->sandbox, &err);
}

uint64_t exec_handle_stdin_received(const struct exec_handle *x)
{
    return x->stdin_received;
}

/* --- the fence --- */

static struct exec_handle *exec_resume_find_awaited(const struct sandbox_handle *b)
{
    struct exec_handle *x = b->execs;

    while (x && !x->awaits_resume)
        x = x->next;
    return x;
}

static void exec_resume_cancel_orphans(struct sandbox_handle *b)
{
    struct sandbox_stream *next;

    for (struct sandbox_stream *s = b->streams; s; s = next) {
        next = s->next;
        if (s->is_orphan && !s->cancelled)
            sandbox_stream_cancel(s);
    }
}

static bool exec_resume_on_fence(void *arg, const struct frame *f)
{
    struct sandbox_handle *b = arg;
    struct err err;

    if (f->type != FRAME_DONE && f->type != FRAME_ERROR)
        return false;
    err_set(&err, ERR_LOST, "the sandbox does not know this execution any more");
    exec_resume_cancel_orphans(b);
    for (struct exec_handle *x; (x = exec_resume_find_awaited(b));) {
        x->awaits_resume = false;
        exec_handle_fail(x, &err);
    }
    return true;
}

static void exec_resume_on_fence_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

void sandbox_handle_resume_finish(struct sandbox_handle *b)
{
    static const struct sandbox_stream_ops ops = { .on_frame = exec_resume_on_fence,
                                                   .on_gone = exec_resume_on_fence_gone };

    if (b->state == SANDBOX_HANDLE_READY && b->adopted && b->is_connected)
        sandbox_stream_open(b, FRAME_STATS, NULL, 0, &ops, b);
}
