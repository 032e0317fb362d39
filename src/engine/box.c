/* One sandbox as a state machine over two connections: questions to the jailer, and the control stream to PID 1.
 *
 *     CREATING -> HELLO -> CLAIMING -> READY -> ENDING -> ENDED
 *            any of them -> DESTROYING -> GONE
 *
 * Whoever starts an end (a clock, a protocol error, a dead PID 1, the caller) only says so; the end itself is one path:
 * the jailer kills and answers, the control stream is read to its end so that nothing the sandbox said is lost, then
 * executions are told, then the caller.
 *
 * Invariants:
 * 1. Each of on_ready, on_failed, on_ended and every `done` is called at most once, on_failed and on_ended never for a
 *    box that the caller asked to destroy.
 * 2. A box that failed leaves nothing: on_failed comes after the jailer's DONE.
 * 3. Every state but READY and ENDED has a deadline; READY has the sandbox's own clocks.
 * 4. What the runtime says is checked; the first wrong frame ends the sandbox with PROTOCOL. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SETUP_NS (20 * NS_PER_S)
#define JAILER_NS (30 * NS_PER_S) /* a kill or a removal that takes longer is a jailer that does not answer */
#define DRAIN_NS (1 * NS_PER_S)   /* all processes are dead: the rest of the stream is in the socket already */

static void step(struct box *b);
static void on_timer(void *arg);

static void set_timer(struct box *b, uint64_t at)
{
    if (at == CLOCKS_NEVER)
        ev_timer_clear(b->ev, &b->timer);
    else
        ev_timer_set(b->ev, &b->timer, at, on_timer, b);
}

static void unwire(struct box *b)
{
    if (b->wired)
        chan_done(&b->chan);
    b->wired = false;
}

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

bool box_unfinished(const struct box *b)
{
    return b->state != BOX_ENDED && b->state != BOX_GONE;
}

struct cpu_rate box_cpu_rate(const struct box *b)
{
    struct cpu_rate r = { .cores = b->e ? b->e->cores : 1 };

    if (b->limits.v[LIMIT_CPUSET])
        r.cores = (uint32_t)__builtin_popcountll(b->limits.v[LIMIT_CPUSET]);
    if (b->outside.enforced[LIMIT_CPU] == JAIL_ENFORCED)
        r.quota_milli = b->limits.v[LIMIT_CPU];
    return r;
}

/* --- the control stream --- */

static void on_frame(void *arg, const struct frame *f, int *fds UNUSED, size_t nfds UNUSED)
{
    struct box *b = arg;

    engine_enter();
    if (b->adopted && b->state == BOX_HELLO)
        claim_greeting(b, f);
    else if (f->type == FRAME_RESUME)
        stream_resumed(b, f);
    else if (f->stream == 0)
        claim_frame(b, f);
    else
        stream_frame(b, f);
    engine_leave();
}

static void on_end(void *arg, const struct err *why)
{
    struct box *b = arg;
    struct err err = *why;

    engine_enter();
    unwire(b);
    if (err.id == ERR_LOST && b->status >= 0 && WIFSIGNALED(b->status))
        err_set(&err, ERR_LOST, "PID 1 of the sandbox was ended by signal %d", WTERMSIG(b->status));
    else if (err.id == ERR_LOST)
        err_set(&err, ERR_LOST, "PID 1 of the sandbox closed its control stream");
    if (b->state < BOX_READY)
        box_fail(b, &err);
    else if (b->state == BOX_READY)
        box_kill(b, &err);
    else
        step(b);
    engine_leave();
}

static void on_drain(void *arg)
{
    engine_enter();
    streams_drained(arg);
    engine_leave();
}

static const struct chan_ops chan_ops = { .on_frame = on_frame, .on_end = on_end, .on_drain = on_drain };

int box_wire(struct box *b, int control_fd, struct err *err)
{
    if (chan_init(&b->chan, b->ev, control_fd, false, &chan_ops, b, err) < 0)
        return err_wrap(err, "control stream");
    b->wired = true;
    return 0;
}

void box_violate(struct box *b, const char *fmt, ...)
{
    char what[160];
    struct err err;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    err_set(&err, ERR_PROTOCOL, "the sandbox sent %s", what);
    unwire(b);
    if (b->state < BOX_READY)
        box_fail(b, &err);
    else if (b->state == BOX_READY)
        box_kill(b, &err);
    else
        step(b);
}

/* --- ready --- */

void box_ready(struct box *b)
{
    b->state = BOX_READY;
    life_start(&b->life, b->limits.v[LIMIT_LIFETIME], b->limits.v[LIMIT_IDLE], ev_now(b->ev));
    if (b->paused)
        life_pause(&b->life, ev_now(b->ev));
    set_timer(b, life_next(&b->life));
    if (b->ops && b->ops->on_ready)
        b->ops->on_ready(b->arg);
}

void box_exec_added(struct box *b)
{
    b->running++;
    life_busy(&b->life);
    set_timer(b, life_next(&b->life));
}

void box_exec_launched(struct box *b, struct exec *launched)
{
    b->launched++;
    for (struct exec *x = b->execs; x; x = x->next)
        if (x != launched && (x->state == EXEC_STARTING || x->state == EXEC_RUNNING))
            x->shared = launched->shared = true;
}

void box_exec_over(struct box *b)
{
    b->running--;
    if (b->running > 0 || b->state != BOX_READY)
        return;
    life_idle(&b->life, ev_now(b->ev));
    if (b->over)
        box_kill(b, &b->why);
    else
        set_timer(b, life_next(&b->life));
}

static void clock_ran_out(struct box *b, enum ended_by cause)
{
    char text[32];

    b->over = true;
    if (cause == ENDED_LIFETIME)
        err_set(&b->why, ERR_TIMEOUT, "the lifetime of the sandbox, %s, is over",
                str_ms(b->limits.v[LIMIT_LIFETIME], text));
    else
        err_set(&b->why, ERR_TIMEOUT, "nothing ran in the sandbox for %s", str_ms(b->limits.v[LIMIT_IDLE], text));
    if (b->running == 0)
        box_kill(b, &b->why);
    else
        for (struct exec *x = b->execs; x && b->state == BOX_READY; x = x->next)
            exec_end(x, cause);
}

/* --- ends --- */

static void box_ended(struct box *b)
{
    b->state = BOX_ENDED;
    set_timer(b, CLOCKS_NEVER);
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
    set_timer(b, CLOCKS_NEVER);
    unwire(b);
    claim_drop(b);
    streams_gone(b, &b->why);
    tell_execs(b);
    for (struct exec *x = b->execs; x; x = x->next)
        exec_complete(x, b->stats_known ? &b->stats : NULL, b->launched == 1);
    fd_close(&b->pidfd);
    fd_close(&b->cpu_fd);
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
            set_timer(b, ev_now(b->ev) + DRAIN_NS);
        else
            box_ended(b);
    } else if (b->state == BOX_DESTROYING) {
        if (b->wired && b->running > 0)
            set_timer(b, ev_now(b->ev) + DRAIN_NS);
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
    set_timer(b, ev_now(b->ev) + MONITOR_NS);
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
    set_timer(b, ev_now(b->ev) + JAILER_NS);
    engine_ask_id(b->e, FRAME_J_KILL, b->id, on_killed, b);
}

void box_fail(struct box *b, const struct err *err)
{
    if (b->state >= BOX_READY)
        return;
    b->why = *err;
    b->failed = true;
    unwire(b);
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
        if (!x->exited)
            exec_decide(x, ENDED_KILLED);
    set_timer(b, ev_now(b->ev) + JAILER_NS);
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

static void not_ready_in_time(struct box *b)
{
    static const char *const waits_for[] = { [BOX_CREATING] = "the jailer to make it",
                                             [BOX_HELLO] = "its first word",
                                             [BOX_CLAIMING] = "it to take its claim" };
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the sandbox was not ready after %llu s; it still waited for %s", SETUP_NS / NS_PER_S,
            waits_for[b->state]);
    box_fail(b, &err);
}

static void on_timer(void *arg)
{
    struct box *b = arg;
    enum ended_by cause;

    engine_enter();
    if (b->state < BOX_READY) {
        not_ready_in_time(b);
    } else if (b->state == BOX_READY) {
        if (life_check(&b->life, ev_now(b->ev), &cause))
            clock_ran_out(b, cause);
        else
            set_timer(b, life_next(&b->life));
    } else if (b->settled) {
        unwire(b);
        step(b);
    } else if (b->asks_monitor) {
        denials_take(b, NULL, NULL);
        b->settled = true;
        step(b);
    } else {
        no_answer(b);
        step(b);
    }
    engine_leave();
}

/* --- news from the jailer --- */

void box_event(struct box *b, const struct jail_event *m)
{
    if (m->kind == JAIL_EVENT_ENDED)
        b->status = m->status; /* the end of the control stream follows, behind its last frames */
    if (m->kind != JAIL_EVENT_OOM)
        return;
    if (b->state == BOX_ENDING)
        b->memory = true; /* it died of it, and the death was seen first */
    else
        for (struct exec *x = b->execs; x && b->state == BOX_READY; x = x->next)
            exec_end(x, ENDED_MEMORY);
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

/* --- what the caller asks for --- */

static void on_op(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    struct box *b = ask->owner;
    uint64_t now = ev_now(b->ev);
    bool paused = ask->type == FRAME_J_FREEZE;

    if (!err && ask->type == FRAME_J_KEEP)
        b->kept = true;
    if (!err && (paused || ask->type == FRAME_J_THAW) && paused != b->paused) {
        b->paused = paused;
        for (struct exec *x = b->execs; x; x = x->next)
            exec_pause(x, paused);
        if (b->state == BOX_READY) {
            (paused ? life_pause : life_resume)(&b->life, now);
            set_timer(b, life_next(&b->life));
        }
    }
    if (ask->done)
        ask->done(ask->done_arg, err);
}

static void ask_op(struct box *b, uint8_t type, box_done_fn *done, void *arg)
{
    if (!b->e)
        return;
    struct ask *a = engine_ask_id(b->e, type, b->id, on_op, b);
    a->done = done;
    a->done_arg = arg;
}

void box_freeze(struct box *b, box_done_fn *done, void *arg)
{
    ask_op(b, FRAME_J_FREEZE, done, arg);
}

void box_thaw(struct box *b, box_done_fn *done, void *arg)
{
    ask_op(b, FRAME_J_THAW, done, arg);
}

void box_keep(struct box *b, box_done_fn *done, void *arg)
{
    ask_op(b, FRAME_J_KEEP, done, arg);
}

static void nothing_to_tell(void *arg UNUSED, const struct err *err UNUSED)
{
}

void box_destroy(struct box *b, box_done_fn *done, void *arg)
{
    if (!b->e)
        return;
    if (b->destroy_wanted || b->state == BOX_GONE) {
        ask_op(b, FRAME_J_DESTROY, done, arg); /* the jailer knows no such sandbox any more, and says so */
        return;
    }
    b->destroy_wanted = true;
    b->done = done ? done : nothing_to_tell;
    b->done_arg = arg;
    if (b->state != BOX_CREATING && b->state != BOX_DESTROYING)
        box_destroy_now(b);
}

const char *box_id(const struct box *b)
{
    return b->id;
}

/* --- life --- */

static int box_make(struct engine *e, const char *id, const struct box_spec *spec, const struct box_ops *ops, void *arg,
                    struct box **ret, struct err *err)
{
    if (e->lost) {
        *err = e->why;
        return -1;
    }
    if (spec->level == LEVEL_HIGH)
        return err_set(err, ERR_LEVEL_UNAVAILABLE, "level %s has no driver here; standard has",
                       level_name(spec->level));
    if ((unsigned)spec->profile >= PROFILE_COUNT)
        return err_set(err, ERR_BUG, "profile %d does not exist", (int)spec->profile);
    if (limits_check(&spec->limits, err) < 0)
        return -1;

    struct box *b = mem_new(struct box);
    b->e = e;
    b->ev = e->ev;
    b->ops = ops;
    b->arg = arg;
    b->level = spec->level;
    b->filter = (struct filter_spec){ .profile = spec->profile, .grants = spec->grants };
    memcpy(b->filter.deny, spec->deny, sizeof(b->filter.deny));
    b->limits = spec->limits;
    if (spec->policy)
        (void)str_copy(b->policy, sizeof(b->policy), spec->policy);
    b->every_wall = spec->every_wall;
    b->enforce = spec->enforce;
    b->pidfd = b->cpu_fd = -1;
    b->status = -1;
    b->denied_why = "the monitor could not be asked in time";
    b->adopted = b->kept = id != NULL;
    if (id)
        memcpy(b->id, id, sizeof(b->id));
    else
        id_new("sb", b->id);
    if (claim_start(b, spec, err) < 0) {
        claim_drop(b);
        free(b);
        return -1;
    }
    engine_add(e, b);
    set_timer(b, ev_now(b->ev) + SETUP_NS);
    *ret = b;
    return 0;
}

int box_new(struct engine *e, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct box **ret,
            struct err *err)
{
    return box_make(e, NULL, spec, ops, arg, ret, err);
}

/* The new host's stream numbers start high, far from those of the host before it, which may still be open. */
#define ADOPTED_STREAMS 0x40000000u

int box_adopt(struct engine *e, const char *id, const struct box_spec *spec, const struct box_ops *ops, void *arg,
              struct box **ret, struct err *err)
{
    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", id);
    if (box_make(e, id, spec, ops, arg, ret, err) < 0)
        return -1;
    (*ret)->next_stream = ADOPTED_STREAMS | ((uint32_t)(*ret)->epoch & 0x3ffffffeu);
    return 0;
}

static void dismantle(struct box *b)
{
    ev_timer_clear(b->ev, &b->timer);
    unwire(b);
    claim_drop(b);
    streams_gone(b, NULL);
    fd_close(&b->pidfd);
    fd_close(&b->cpu_fd);
    while (b->execs)
        exec_detach(b->execs);
    b->running = 0;
}

void box_orphan(struct box *b)
{
    engine_remove(b->e, b);
    b->e = NULL;
    b->ops = NULL;
    b->state = BOX_GONE;
    dismantle(b);
}

void box_free(struct box *b)
{
    if (!b)
        return;
    if (b->e) {
        engine_forget(b->e, b);
        if (b->state >= BOX_HELLO && b->state <= BOX_ENDED && !b->kept)
            engine_ask_id(b->e, FRAME_J_DESTROY, b->id, NULL, NULL);
        engine_remove(b->e, b);
        if (b->e->lost)
            engine_settle(b->e);
    }
    b->e = NULL;
    b->ops = NULL;
    b->state = BOX_GONE;
    dismantle(b);
    engine_release(b->ev, &b->defer, b);
}
