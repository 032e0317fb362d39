/* Executions that outlive the host that started them.
 *
 * The runtime keeps every byte until it is credited and every last word until it is closed, so a host that comes after
 * another misses nothing: it says HELLO, and the runtime names its streams (RESUME) and repeats the rest. All there is
 * to do here is to be ready before the first of these frames arrives, to drop what was stored already, and to let the
 * clock go on from where it was.
 *
 * The runtime answers in order. So a STATS request behind the last box_exec_resume is a fence: when it is answered,
 * every RESUME has come. An execution that still waits then does not exist any more; a program that nobody waited for
 * was started by a host that died before it could tell anybody, and is killed. So is every other request: a watch would
 * go on for ever, and an upload wait for the rest.

 *
 * Its clocks go on from where they were. What it used in all stays unknown: whether others ran beside it went with the
 * earlier host. */
#include "engine/inside.h"

#define RESUME_NS (10 * NS_PER_S)

int box_exec_resume(struct box *b, const struct exec_spec *spec, const struct exec_resume *resume,
                    const struct exec_ops *ops, void *arg, struct exec **ret, struct err *err)
{
    uint64_t now = ev_now(b->ev), elapsed = resume->elapsed_ms * NS_PER_MS;

    if (b->state != BOX_READY || !b->adopted || !b->wired)
        return err_set(err, ERR_EXISTS, "sandbox %s has no executions to take up", b->id);
    if (spec->id && !id_valid(spec->id, "ex"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of an execution", spec->id);
    struct exec *x = exec_make(b, spec, ops, arg);
    x->state = EXEC_STARTING;
    x->resumed = x->awaited = true;
    x->stream_id = resume->stream;
    x->handed = resume->stored[0] + resume->stored[1];
    x->started_ns = now > elapsed ? now - elapsed : 1;
    x->cpu_base = resume->cpu_base_ns ? resume->cpu_base_ns : CPU_UNKNOWN;
    x->receipt.stdout_bytes = resume->stored[0];
    x->receipt.stderr_bytes = resume->stored[1];
    x->receipt.started_real_ns = resume->started_real_ns;
    exec_set_timer(x, now + RESUME_NS);
    *ret = x;
    return 0;
}

struct exec *resume_find(const struct box *b, uint32_t stream)
{
    struct exec *x = b->execs;

    while (x && !(x->awaited && x->stream_id == stream))
        x = x->next;
    return x;
}

/* Bytes that were consumed and not stored were past the cap, or the disk had no room for them. Nothing may follow the
 * hole: its offset would be a lie. Of which channel they were is not known. */
static void drop_rest(struct exec *x, uint64_t lost)
{
    x->receipt.dropped_bytes = x->dropped[0] = lost;
    x->output_max = max_u64(x->output_max, 1);
    x->handed = x->output_max;
}

void resume_attach(struct exec *x, struct stream *s, const struct rt_resume *m)
{
    struct box *b = x->box;

    x->awaited = false;
    x->stream = s;
    s->confirm = x->confirm;
    s->credit = 0; /* what is free comes as a CREDIT behind the repeated bytes */
    x->received = m->in;
    if (x->kernel)
        x->skip = 0;
    else if (x->handed >= m->out)
        x->skip = x->handed - m->out;
    else
        drop_rest(x, m->out - x->handed);
    uint64_t base = x->cpu_base == CPU_UNKNOWN ? cpu_read(b->cpu_fd, b->outside.cpu_unit) : x->cpu_base;
    clocks_start(&x->clocks, x->wall_ms, x->cpu_ms, box_cpu_rate(b), x->started_ns, base);
    if (b->paused)
        clocks_pause(&x->clocks, ev_now(x->ev));
    exec_set_timer(x, clocks_next(&x->clocks));
}

void resume_late(struct exec *x)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the sandbox did not name its executions within %llu s", RESUME_NS / NS_PER_S);
    box_kill(x->box, &err);
}

uint64_t exec_received(const struct exec *x)
{
    return x->received;
}

/* --- the fence --- */

static struct exec *still_awaited(const struct box *b)
{
    struct exec *x = b->execs;

    while (x && !x->awaited)
        x = x->next;
    return x;
}

static void kill_orphans(struct box *b)
{
    struct stream *next;

    for (struct stream *s = b->streams; s; s = next) {
        next = s->next;
        if (s->orphan && !s->cancelled)
            stream_cancel(s);
    }
}

static bool on_fence(void *arg, const struct frame *f)
{
    struct box *b = arg;
    struct err err;

    if (f->type != FRAME_DONE && f->type != FRAME_ERROR)
        return false;
    err_set(&err, ERR_LOST, "the sandbox knows no such execution any more");
    kill_orphans(b);
    for (struct exec *x; (x = still_awaited(b));) {
        x->awaited = false;
        exec_fail(x, &err);
    }
    return true;
}

static void on_fence_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

void box_resume_end(struct box *b)
{
    static const struct stream_ops ops = { .on_frame = on_fence, .on_gone = on_fence_gone };

    if (b->state == BOX_READY && b->adopted && b->wired)
        stream_open(b, FRAME_STATS, NULL, 0, &ops, b);
}
