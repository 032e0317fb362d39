/* How a sandbox ends. The cause of an end (a clock, a protocol error, a dead PID 1, the caller)
 * only starts it; the end itself is one path: the driver kills and answers, the monitor reports
 * denials, the control stream is read to its end so that no frame of the sandbox is lost, then
 * executions are notified, then the caller.
 *
 *     READY -> ENDING -> ENDED     by sandbox_handle_kill: files and counters are left
 *       any -> DESTROYING -> GONE  by sandbox_handle_start_destroy: nothing is left
 *
 * Invariants:
 * 1. on_failed, on_ended and `done` are called at most once; on_failed and on_ended never for a
 *    sandbox that the caller asked to destroy.
 * 2. A sandbox that failed leaves nothing: on_failed comes after the driver's answer.
 * 3. ENDING and DESTROYING have a deadline for each party that they wait for; when it passes,
 *    the end continues without that party. */
#include "sandbox/engine_internal.h"

#include <signal.h>
#include <sys/syscall.h>

/* A driver that needs longer for a kill or a removal counts as not answering. */
#define DRIVER_ANSWER_NS (30 * NS_PER_S)
/* All processes are dead: the rest of the stream is in the socket already. */
#define SANDBOX_DRAIN_NS (1 * NS_PER_S)

/* Used only when the driver cannot kill. The death of the jailer kills the sandbox too; this is
 * the second safeguard. */
static void sandbox_handle_kill_by_pidfd(struct sandbox_handle *b)
{
    if (b->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
}

static struct exec_handle *sandbox_handle_unfinished_exec(const struct sandbox_handle *b)
{
    struct exec_handle *x = b->execs;

    while (x && x->state == EXEC_ENDED)
        x = x->next;
    return x;
}

/* A callback may free any execution, or the sandbox_handle, so the search restarts after each. */
static void sandbox_handle_end_execs(struct sandbox_handle *b)
{
    for (struct exec_handle *x; (x = sandbox_handle_unfinished_exec(b));)
        exec_handle_sandbox_gone(x, &b->why, b->died_of_memory);
}

static void sandbox_handle_enter_ended(struct sandbox_handle *b)
{
    b->state = SANDBOX_HANDLE_ENDED;
    sandbox_handle_set_timer(b, CLOCKS_NEVER);
    sandbox_streams_close_all(b, &b->why);
    sandbox_handle_end_execs(b);
    if (b->state != SANDBOX_HANDLE_ENDED)
        return; /* the caller started to destroy it */
    fd_close(&b->pidfd);
    if (b->ops && b->ops->on_ended)
        b->ops->on_ended(b->arg, &b->why);
    if (b->engine)
        engine_maybe_report_lost(b->engine);
}

static void sandbox_handle_enter_gone(struct sandbox_handle *b)
{
    const struct sandbox_handle_ops *ops;

    b->state = SANDBOX_HANDLE_GONE;
    sandbox_handle_set_timer(b, CLOCKS_NEVER);
    sandbox_handle_disconnect(b);
    sandbox_claim_drop(b);
    sandbox_streams_close_all(b, &b->why);
    sandbox_handle_end_execs(b);
    for (struct exec_handle *x = b->execs; x; x = x->next)
        exec_handle_set_final_usage(x, b->stats_known ? &b->stats : NULL, b->launched_execs == 1);
    fd_close(&b->pidfd);
    b->interpreter = SANDBOX_INTERPRETER_NONE;
    fd_close(&b->cpu_fd);
    fd_close(&b->oom_fd);
    ops = b->ops;
    if (ops && b->done)
        b->done(b->done_arg, b->destroy_failed ? &b->destroy_err : NULL);
    else if (ops && b->failed && ops->on_failed)
        ops->on_failed(b->arg, &b->why);
    if (b->engine)
        engine_maybe_report_lost(b->engine);
}

/* Continues when neither the driver nor the egress proxy nor the control stream will send more. */
void sandbox_handle_continue_end(struct sandbox_handle *b)
{
    if (!b->driver_answered || sandbox_network_is_ending(b))
        return;
    if (b->state == SANDBOX_HANDLE_ENDING) {
        if (b->is_connected)
            sandbox_handle_set_timer(b, ev_now(b->ev) + SANDBOX_DRAIN_NS);
        else
            sandbox_handle_enter_ended(b);
    } else if (b->state == SANDBOX_HANDLE_DESTROYING) {
        if (b->is_connected && b->running_execs > 0)
            sandbox_handle_set_timer(b, ev_now(b->ev) + SANDBOX_DRAIN_NS);
        else
            sandbox_handle_enter_gone(b);
    }
}

static void sandbox_handle_on_last_denials(struct driver_request *r, const struct driver_denials *d,
                                           const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (b->driver_answered || !b->waits_for_monitor)
        return;
    denials_store_answer(b, d, err);
    b->driver_answered = true;
    sandbox_handle_continue_end(b);
}

/* Nothing runs any more, so the monitor's next answer is final; interrupted executions still need
 * it. */
static void sandbox_handle_on_all_dead(struct sandbox_handle *b)
{
    if (b->state == SANDBOX_HANDLE_ENDING && b->running_execs > 0)
        sandbox_network_end(b, false);
    if (b->running_execs == 0 || b->link->denials_absent_why) {
        b->denials_absent_why = b->link->denials_absent_why;
        b->driver_answered = true;
        sandbox_handle_continue_end(b);
        return;
    }
    b->waits_for_monitor = true;
    sandbox_handle_set_timer(b, ev_now(b->ev) + MONITOR_ANSWER_NS);
    b->link->ops->denials(b->link, b->id, sandbox_handle_on_last_denials, b);
}

static void sandbox_handle_on_end_stats(struct driver_request *r, const struct sandbox_handle_usage *st,
                                        const struct err *err UNUSED)
{
    struct sandbox_handle *b = r->owner;

    if (b->state != SANDBOX_HANDLE_ENDING || b->driver_answered)
        return;
    if (st && st->oom_kills != SANDBOX_USAGE_UNKNOWN)
        b->died_of_memory = b->died_of_memory || st->oom_kills > b->oom_kills_attributed;
    sandbox_handle_on_all_dead(b);
}

static void sandbox_handle_on_killed(struct driver_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (b->state != SANDBOX_HANDLE_ENDING || b->driver_answered)
        return;
    if (err)
        sandbox_handle_kill_by_pidfd(b);
    b->link->ops->stats(b->link, b->id, sandbox_handle_on_end_stats, b);
}

void sandbox_handle_kill(struct sandbox_handle *b, const struct err *why)
{
    if (b->state != SANDBOX_HANDLE_READY)
        return;
    b->why = *why;
    b->state = SANDBOX_HANDLE_ENDING;
    b->driver_answered = b->waits_for_monitor = false;
    sandbox_handle_set_timer(b, ev_now(b->ev) + DRIVER_ANSWER_NS);
    b->link->ops->kill(b->link, b->id, sandbox_handle_on_killed, b);
}

void sandbox_handle_fail(struct sandbox_handle *b, const struct err *err)
{
    if (b->state >= SANDBOX_HANDLE_READY)
        return;
    b->why = *err;
    b->failed = true;
    sandbox_handle_disconnect(b);
    if (b->state == SANDBOX_HANDLE_CREATING || b->adopted)
        sandbox_handle_enter_gone(b); /* nothing exists, or it is not ours to remove */
    else
        sandbox_handle_start_destroy(b);
}

static void sandbox_handle_on_destroyed(struct driver_request *r, const struct sandbox_handle_usage *st,
                                        const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (b->driver_answered)
        return;
    if (err) {
        b->destroy_failed = true;
        b->destroy_err = *err;
        sandbox_handle_kill_by_pidfd(b);
    } else {
        b->stats = *st;
        b->stats_known = true;
    }
    sandbox_handle_on_all_dead(b);
}

void sandbox_handle_start_destroy(struct sandbox_handle *b)
{
    b->state = SANDBOX_HANDLE_DESTROYING;
    b->driver_answered = b->waits_for_monitor = false;
    sandbox_claim_drop(b);
    for (struct exec_handle *x = b->execs; x; x = x->next)
        if (!x->exit_received && !b->failed)
            exec_handle_decide_end(x, ENDED_KILLED);
    sandbox_handle_set_timer(b, ev_now(b->ev) + DRIVER_ANSWER_NS);
    b->link->ops->destroy(b->link, b->id, sandbox_handle_on_destroyed, b);
    sandbox_network_end(b, true);
}

static void sandbox_handle_driver_timeout(struct sandbox_handle *b)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the jailer did not answer within %llu s", DRIVER_ANSWER_NS / NS_PER_S);
    sandbox_handle_kill_by_pidfd(b);
    if (b->state == SANDBOX_HANDLE_DESTROYING) {
        b->destroy_failed = true;
        b->destroy_err = err;
    }
    b->driver_answered = true;
}

void sandbox_handle_end_timeout(struct sandbox_handle *b)
{
    if (b->driver_answered) {
        sandbox_handle_disconnect(b);
    } else if (b->waits_for_monitor) {
        denials_store_answer(b, NULL, NULL);
        b->driver_answered = true;
    } else {
        sandbox_handle_driver_timeout(b);
    }
    sandbox_handle_continue_end(b);
}

void sandbox_handle_end(struct sandbox_handle *b, const struct err *why)
{
    if (b->state < SANDBOX_HANDLE_READY)
        sandbox_handle_fail(b, why);
    else if (b->state == SANDBOX_HANDLE_READY)
        sandbox_handle_kill(b, why);
    else
        sandbox_handle_continue_end(b);
}

void sandbox_handle_link_lost(struct sandbox_handle *b, const struct err *why)
{
    if (b->state == SANDBOX_HANDLE_HELLO || b->state == SANDBOX_HANDLE_CLAIMING) {
        sandbox_handle_kill_by_pidfd(b);
        sandbox_handle_fail(b, why);
    } else if (b->state == SANDBOX_HANDLE_READY) {
        sandbox_handle_kill(b, why);
    }
}
