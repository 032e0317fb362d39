/* From a box that somebody had to one that nobody has: RESET, whose answer is the word of PID 1 and no more. So the
 * monitor is asked behind it what was refused, and the jailer how many processes and how much memory are in there: what
 * is refused or left is then known for good, since nothing but PID 1 should be.
 *
 * Everything of the claim is dropped here at once. What the runtime still says of it is swallowed until the answer
 * comes; behind that nothing can come, since the runtime has forgotten all other streams before it answered. */
#include "engine/inside.h"

#define RESET_NS (10 * NS_PER_S)

static bool more_than_none(uint64_t n)
{
    return n != JAIL_UNKNOWN && n > 0;
}

/* Limits may also be met behind the last look at them, by what went on until it was killed. */
static void on_counted(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;
    struct jail_stats st;
    bool known = !err && jail_stats_decode(a->f, &st, NULL) == 0;

    if (b->state != BOX_CLAIMING)
        return;
    b->found.limit |= known && (more_than_none(st.oom_kills) || more_than_none(st.pids_refused));
    b->found.pids = known ? st.pids : BOX_UNKNOWN;
    b->found.memory = known ? st.memory : BOX_UNKNOWN;
    box_set_timer(b, CLOCKS_NEVER);
    if (b->ops && b->ops->on_ready)
        b->ops->on_ready(b->arg);
}

static void count(struct box *b, bool sure)
{
    b->found.refused = !sure || b->denied.n > 0 || b->denied.more > 0;
    engine_ask_id(b->e, FRAME_J_STATS, b->id, on_counted, b);
}

static void on_denials(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;

    if (b->state != BOX_CLAIMING)
        return;
    denials_take(b, a, err);
    count(b, b->denied_why == NULL);
}

/* That the monitor has said nothing is not enough: what was killed may have waited for its answer. */
static void look_from_outside(struct box *b)
{
    if (b->e->unwatched)
        count(b, false);
    else
        engine_ask_denials(b->e, b->id, on_denials, b);
}

static bool on_frame(void *arg, const struct frame *f)
{
    struct box *b = arg;
    struct rt_reset found;
    struct rt_error m;
    struct err err = { 0 };

    if (f->type == FRAME_ERROR && rt_error_decode(f, &m, &err) == 0) {
        engine_error(&m, &err);
        err_wrap(&err, "resetting the sandbox");
        box_fail(b, &err);
        return true;
    }
    if (f->type != FRAME_DONE || rt_reset_decode(f, &found, &err) < 0)
        return false;
    b->found = (struct box_found){ .processes = found.processes,
                                   .objects = found.objects,
                                   .files = found.files,
                                   .sockets = found.sockets,
                                   .altered = found.altered,
                                   .limit = found.full };
    b->resetting = false;
    claim_expect(b);
    look_from_outside(b);
    return true;
}

static void on_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

static const struct stream_ops reset_ops = { .on_frame = on_frame, .on_gone = on_gone };

bool box_can_reset(const struct box *b)
{
    return b->e && !b->e->lost && b->state == BOX_READY && b->wired && !b->over && !b->paused && !b->kept && !b->join &&
           !b->destroy_wanted;
}

static void forget_claim(struct box *b)
{
    streams_gone(b, NULL);
    while (b->execs) {
        engine_forget(b->e, b->execs);
        exec_detach(b->execs);
    }
    b->running = 0;
    b->member = MEMBER_NONE;
    b->claim_sent = b->demanding = false;
}

void box_reset(struct box *b, const struct box_ops *ops, void *arg)
{
    struct err err;
    bool can = box_can_reset(b);

    forget_claim(b);
    b->ops = ops;
    b->arg = arg;
    b->state = BOX_CLAIMING;
    b->spare = b->resetting = b->used = true;
    box_set_timer(b, ev_now(b->ev) + RESET_NS);
    if (can) {
        stream_open(b, FRAME_RESET, NULL, 0, &reset_ops, b);
        return;
    }
    err_set(&err, ERR_LOST, "sandbox %s cannot be reset", b->id);
    box_fail(b, &err);
}

const struct box_found *box_found(const struct box *b)
{
    return &b->found;
}

bool box_refused(const struct box *b)
{
    return !b->e || b->e->unwatched || b->refused || b->denied.n > 0 || b->denied.more > 0;
}
