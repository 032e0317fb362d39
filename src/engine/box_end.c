/* How a sandbox ends. Whoever starts an end (a clock, a protocol error, a dead PID 1, the caller) only says so; the end
 * itself is one path: the jailer kills and answers, the monitor tells what it refused, the control stream is read to
 * its end so that nothing the sandbox said is lost, then executions are told, then the caller.
 *
 *     READY -> ENDING -> ENDED        by box_kill: no process is left, files and counters still are
 *       any -> DESTROYING -> GONE     by box_destroy_now: nothing is left
 *
 * Invariants:
 * 1. on_failed, on_ended and `done` are called at most once, on_failed and on_ended never for a box that the caller
 * asked to destroy.
 * 2. A box that failed leaves nothing: on_failed comes after the jailer's DONE.
 * 3. ENDING and DESTROYING have a deadline for each party they wait for; when it passes, the end goes on without it. */
#include "engine/inside.h"

#include <signal.h>
#include <sys/syscall.h>

#define JAILER_NS (30 * NS_PER_S) /* a kill or a removal that takes longer is a jailer that does not answer */
#define DRAIN_NS (1 * NS_PER_S)   /* all processes are dead: the rest of the stream is in the socket already */

/* Needed only when the jailer cannot: its death kills the sandbox too, this is the second rope. */
static void kill_by_pidfd(struct box *b)
{
    if (b->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
}

static struct exec *unfinished_exec(const struct box *b)
{
    struct exec *x = b->execs;

    while (x && x->state == EXEC_OVER)
        x = x->next;
    return x;
}

/* A callback may free any execution, or the box, so the search begins again after each. */
static void tell_execs(struct box *b)
{
    for (struct exec *x; (x = unfinished_exec(b));)
        exec_gone(x, &b->why, b->memory);
}

static void box_ended(struct box *b)
{
    b->state = BOX_ENDED;
    box_set_timer(b, CLOCKS_NEVER);
    streams_gone(b, &b->why);
    tell_execs(b);
    if (b->state != BOX_ENDED)
        return; /* the caller took it from here */
    fd_close(&b->pidfd);
    if (b->ops && b->ops->on_ended)
        b->ops->on_ended(b->arg, &b->why);
    if (b->e)
        engine_settle(b->e);
}

static void box_gone(struct box *b)
{
    const struct box_ops *ops;

    b->state = BOX_GONE;
    box_set_timer(b, CLOCKS_NEVER);
    box_unwire(b);
    claim_drop(b);
    streams_gone(b, &b->why);
    tell_execs(b);
    for (struct exec *x = b->execs; x; x = x->next)
        exec_complete(x, b->stats_known ? &b->stats : NULL, b->launched == 1);
    fd_close(&b->pidfd);
    b->member = MEMBER_NONE;
    fd_close(&b->cpu_fd);
    fd_close(&b->oom_fd);
    ops = b->ops;
    if (ops && b->done)
        b->done(b->done_arg, b->destroy_failed ? &b->destroy_err : NULL);
    else if (ops && b->failed && ops->on_failed)
        ops->on_failed(b->arg, &b->why);
    if (b->e)
        engine_settle(b->e);
}

/* Goes on when both sides have said all they will: the jailer, and the sandbox on its control stream. */
static void step(struct box *b)
{
    if (!b->settled)
        return;
    if (b->state == BOX_ENDING) {
        if (b->wired)
            box_set_timer(b, ev_now(b->ev) + DRAIN_NS);
        else
            box_ended(b);
    } else if (b->state == BOX_DESTROYING) {
        if (b->wired && b->running > 0)
            box_set_timer(b, ev_now(b->ev) + DRAIN_NS);
        else
            box_gone(b);
    }
}

static void on_last_denials(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;

    if (b->settled || !b->asks_monitor)
        return;
    denials_take(b, a, err);
    b->settled = true;
    step(b);
}

/* Nothing runs any more, so the monitor's next answer is its last; executions that were cut off still need it. */
static void all_dead(struct box *b)
{
    if (b->running == 0 || b->e->unwatched) {
        b->denied_why = b->e->unwatched;
        b->settled = true;
        step(b);
        return;
    }
    b->asks_monitor = true;
    box_set_timer(b, ev_now(b->ev) + MONITOR_NS);
    engine_ask_denials(b->e, b->id, on_last_denials, b);
}

static void on_end_stats(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;
    struct jail_stats st;

    if (b->state != BOX_ENDING || b->settled)
        return;
    if (!err && jail_stats_decode(a->f, &st, NULL) == 0 && st.oom_kills != JAIL_UNKNOWN)
        b->memory = b->memory || st.oom_kills > b->oom_seen;
    all_dead(b);
}

static void on_killed(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    struct box *b = ask->owner;

    if (b->state != BOX_ENDING || b->settled)
        return;
    if (err)
        kill_by_pidfd(b);
    engine_ask_id(b->e, FRAME_J_STATS, b->id, on_end_stats, b);
}

void box_kill(struct box *b, const struct err *why)
{
    if (b->state != BOX_READY)
        return;
    b->why = *why;
    b->state = BOX_ENDING;
    b->settled = b->asks_monitor = false;
    box_set_timer(b, ev_now(b->ev) + JAILER_NS);
    engine_ask_id(b->e, FRAME_J_KILL, b->id, on_killed, b);
}

void box_fail(struct box *b, const struct err *err)
{
    if (b->state >= BOX_READY)
        return;
    b->why = *err;
    b->failed = true;
    box_unwire(b);
    if (b->state == BOX_CREATING || b->adopted)
        box_gone(b); /* nothing is there, or it is not ours to remove */
    else
        box_destroy_now(b);
}

static void on_destroyed(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;

    if (b->settled)
        return;
    if (err || jail_stats_decode(a->f, &b->stats, &b->destroy_err) < 0) {
        b->destroy_failed = true;
        if (err) {
            b->destroy_err = *err;
            kill_by_pidfd(b);
        }
    } else {
        b->stats_known = true;
    }
    all_dead(b);
}

void box_destroy_now(struct box *b)
{
    b->state = BOX_DESTROYING;
    b->settled = b->asks_monitor = false;
    claim_drop(b);
    for (struct exec *x = b->execs; x; x = x->next)
        if (!x->exited && !b->failed)
            exec_decide(x, ENDED_KILLED);
    box_set_timer(b, ev_now(b->ev) + JAILER_NS);
    engine_ask_id(b->e, FRAME_J_DESTROY, b->id, on_destroyed, b);
}

static void no_answer(struct box *b)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the jailer did not answer within %llu s", JAILER_NS / NS_PER_S);
    kill_by_pidfd(b);
    if (b->state == BOX_DESTROYING) {
        b->destroy_failed = true;
        b->destroy_err = err;
    }
    b->settled = true;
}

void box_end_late(struct box *b)
{
    if (b->settled) {
        box_unwire(b);
    } else if (b->asks_monitor) {
        denials_take(b, NULL, NULL);
        b->settled = true;
    } else {
        no_answer(b);
    }
    step(b);
}

void box_end(struct box *b, const struct err *why)
{
    if (b->state < BOX_READY)
        box_fail(b, why);
    else if (b->state == BOX_READY)
        box_kill(b, why);
    else
        step(b);
}

void box_jailer_lost(struct box *b, const struct err *why)
{
    if (b->state == BOX_HELLO || b->state == BOX_CLAIMING) {
        kill_by_pidfd(b);
        box_fail(b, why);
    } else if (b->state == BOX_READY) {
        box_kill(b, why);
    }
}
