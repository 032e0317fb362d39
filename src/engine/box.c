/* One sandbox as a state machine over two connections: questions to the jailer, and the control stream to PID 1.
 *
 *     CREATING -> HELLO -> CLAIMING -> READY -> ENDING -> ENDED
 *            any of them -> DESTROYING -> GONE
 *
 * The way to READY is claim.c, the ways out of it are box_end.c; here are its birth, its clocks, what the caller asks
 * of it and its last release.
 *
 * Invariants:
 * 1. on_ready and every `done` are called at most once.
 * 2. Every state but READY and ENDED has a deadline, except that a spare waits for its owner; READY has the sandbox's
 *    own clocks.
 * 3. What the runtime says is checked; the first wrong frame ends the sandbox with PROTOCOL. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#define SETUP_NS (20 * NS_PER_S)

static void on_timer(void *arg);

void box_set_timer(struct box *b, uint64_t at)
{
    if (at == CLOCKS_NEVER)
        ev_timer_clear(b->ev, &b->timer);
    else
        ev_timer_set(b->ev, &b->timer, at, on_timer, b);
}

void box_unwire(struct box *b)
{
    if (b->wired)
        chan_done(&b->chan);
    b->wired = false;
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
    box_unwire(b);
    if (err.id == ERR_LOST && b->status >= 0 && WIFSIGNALED(b->status))
        err_set(&err, ERR_LOST, "PID 1 of the sandbox was ended by signal %d", WTERMSIG(b->status));
    else if (err.id == ERR_LOST)
        err_set(&err, ERR_LOST, "PID 1 of the sandbox closed its control stream");
    box_end(b, &err);
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
    b->chan.sole = !b->kept;
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
    box_unwire(b);
    box_end(b, &err);
}

/* --- ready --- */

void box_ready(struct box *b)
{
    b->state = BOX_READY;
    life_start(&b->life, b->limits.v[LIMIT_LIFETIME], b->limits.v[LIMIT_IDLE], ev_now(b->ev));
    if (b->running > 0)
        life_busy(&b->life);
    if (b->paused)
        life_pause(&b->life, ev_now(b->ev));
    for (struct exec *x = b->execs; x; x = x->next)
        settle_walls(x);
    box_set_timer(b, life_next(&b->life));
    if (b->ops && b->ops->on_ready)
        b->ops->on_ready(b->arg);
}

void box_exec_added(struct box *b)
{
    b->running++;
    if (b->state != BOX_READY)
        return; /* box_ready() */
    life_busy(&b->life);
    box_set_timer(b, life_next(&b->life));
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
        box_set_timer(b, life_next(&b->life));
}

static void clock_ran_out(struct box *b, enum ended_by cause)
{
    char text[32];

    b->over = true;
    b->cause = cause;
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
            box_set_timer(b, life_next(&b->life));
    } else {
        box_end_late(b);
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

/* --- what the caller asks for --- */

static void on_op(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    struct box *b = ask->owner;
    uint64_t now = ev_now(b->ev);
    bool paused = ask->type == FRAME_J_FREEZE;

    if (ask->type == FRAME_J_KEEP) {
        b->kept = b->kept || !err;
        b->chan.sole = !b->kept;
    }
    if (!err && ask->type == FRAME_J_EXTEND && b->state == BOX_READY && !b->over) {
        b->limits.v[LIMIT_LIFETIME] = ask->lifetime_ms;
        b->life.lifetime_at = now + ask->lifetime_ms * NS_PER_MS;
        box_set_timer(b, life_next(&b->life));
    }
    if (!err && (paused || ask->type == FRAME_J_THAW) && paused != b->paused) {
        b->paused = paused;
        for (struct exec *x = b->execs; x; x = x->next)
            exec_pause(x, paused);
        if (b->state == BOX_READY) {
            (paused ? life_pause : life_resume)(&b->life, now);
            box_set_timer(b, life_next(&b->life));
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

/* From here on the jailer may hold the control stream too, for the host that comes after us. */
void box_keep(struct box *b, box_done_fn *done, void *arg)
{
    struct jail_id m;
    PAYLOAD(payload);

    if (!b->e)
        return;
    memcpy(m.id, b->id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    b->chan.sole = false;
    struct ask *a = engine_ask(b->e, FRAME_J_KEEP, payload, len > 0 ? (uint32_t)len : 0, &b->chan.io.fd, b->wired,
                               on_op, b);
    a->done = done;
    a->done_arg = arg;
}

void box_extend(struct box *b, uint64_t lifetime_ms, box_done_fn *done, void *arg)
{
    struct jail_extend m = { .lifetime_ms = lifetime_ms };
    PAYLOAD(payload);

    if (!b->e)
        return;
    memcpy(m.id, b->id, sizeof(m.id));
    int len = jail_extend_encode(&m, payload, NULL);
    struct ask *a = engine_ask(b->e, FRAME_J_EXTEND, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, on_op, b);
    a->lifetime_ms = lifetime_ms;
    a->done = done;
    a->done_arg = arg;
}

enum ended_by box_ended_by(const struct box *b)
{
    return b->over ? b->cause : b->memory ? ENDED_MEMORY : ENDED_LOST;
}

static void on_usage(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct jail_stats st;
    struct err why = { 0 };

    if (err || jail_stats_decode(a->f, &st, &why) < 0) {
        ask->usage(ask->done_arg, NULL, err ? err : &why);
        return;
    }
    struct box_usage u = { .cpu_ns = st.cpu_ns,
                           .throttled_ns = st.throttled_ns,
                           .memory = st.memory,
                           .memory_peak = st.memory_peak,
                           .oom_kills = st.oom_kills,
                           .pids = st.pids,
                           .pids_peak = st.pids_peak,
                           .pids_refused = st.pids_refused,
                           .io_read = st.io_read,
                           .io_write = st.io_write };
    _Static_assert(BOX_UNKNOWN == JAIL_UNKNOWN, "what the jailer does not know is unknown");
    ask->usage(ask->done_arg, &u, NULL);
}

void box_usage(struct box *b, box_usage_fn *fn, void *arg)
{
    if (!b->e)
        return;
    struct ask *a = engine_ask_id(b->e, FRAME_J_STATS, b->id, on_usage, b);
    a->usage = fn;
    a->done_arg = arg;
}

uint64_t box_cpu_ns(const struct box *b)
{
    _Static_assert(CPU_UNKNOWN == BOX_UNKNOWN && JAIL_UNKNOWN == BOX_UNKNOWN, "unknown is unknown");

    if (b->stats_known)
        return b->stats.cpu_ns;
    return b->cpu_looked == ev_now(b->ev) ? b->cpu_seen : cpu_read(b->cpu_fd, b->outside.cpu_unit);
}

uint64_t box_cpu_look(struct box *b)
{
    b->cpu_seen = cpu_read(b->cpu_fd, b->outside.cpu_unit);
    b->cpu_looked = ev_now(b->ev);
    return b->cpu_seen;
}

uint64_t box_memory_peak(const struct box *b)
{
    return b->stats_known ? b->stats.memory_peak : BOX_UNKNOWN;
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

bool box_lost(const struct box *b)
{
    return !b->e || b->e->lost;
}

/* Frames are read in their order, and a runtime that refuses the claim refuses what is behind it. */
bool box_takes_exec(const struct box *b)
{
    bool behind = b->state == BOX_CLAIMING && b->claim_sent && b->demanding;

    return (b->state == BOX_READY || behind) && !b->over && b->wired;
}

bool box_can_freeze(const struct box *b)
{
    return !str_eq(b->outside.cgroup, "none");
}

const char *box_id(const struct box *b)
{
    return b->id;
}

/* --- life --- */

static int check_spec(const struct engine *e, const struct box_spec *spec, struct err *err)
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
    if (spec->id && !id_valid(spec->id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", spec->id);
    return 0;
}

/* What the jailer does not know of it. */
static void box_belongs(struct box *b, const struct box_spec *spec, const struct box_ops *ops, void *arg)
{
    b->ops = ops;
    b->arg = arg;
    b->level = spec->level;
    if (spec->policy)
        (void)str_copy(b->policy, sizeof(b->policy), spec->policy);
    b->every_wall = spec->every_wall;
    b->enforce = spec->enforce;
}

static int box_make(struct engine *e, const char *id, bool spare, const struct box_spec *spec,
                    const struct box_ops *ops, void *arg, struct box **ret, struct err *err)
{
    if (e->nboxes >= e->room)
        return err_set(err, ERR_DESCRIPTORS,
                       "there are %" PRIu64 " sandboxes, and the limit of open files allows no more", e->nboxes);
    struct box *b = mem_new(struct box);

    b->e = e;
    b->ev = e->ev;
    box_belongs(b, spec, ops, arg);
    b->spare = spare;
    b->kind = engine_kind(spec);
    b->limits = spec->limits;
    b->told = spec->limits;
    b->pidfd = b->cpu_fd = b->oom_fd = -1;
    b->status = -1;
    b->denied_why = "the monitor could not be asked in time";
    b->adopted = b->kept = id != NULL;
    b->launched = id ? 2 : 0; /* of one that others had, what it counts is never one execution's alone */
    if (id)
        memcpy(b->id, id, sizeof(b->id));
    else if (spec->id)
        memcpy(b->id, spec->id, sizeof(b->id));
    else
        id_new("sb", b->id);
    if (claim_start(b, spec, err) < 0) {
        claim_drop(b);
        free(b);
        return -1;
    }
    engine_add(e, b);
    box_set_timer(b, ev_now(b->ev) + SETUP_NS);
    *ret = b;
    return 0;
}

int box_new(struct engine *e, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct box **ret,
            struct err *err)
{
    return check_spec(e, spec, err) < 0 ? -1 : box_make(e, NULL, false, spec, ops, arg, ret, err);
}

int box_prepare(struct engine *e, const struct box_spec *like, const struct box_ops *ops, void *arg, struct box **ret,
                struct err *err)
{
    struct box_spec bare = { .level = like->level,
                             .profile = like->profile,
                             .grants = like->grants,
                             .limits = like->limits,
                             .hostname = like->hostname,
                             .zygote = like->zygote };

    memcpy(bare.deny, like->deny, sizeof(bare.deny));
    return check_spec(e, &bare, err) < 0 ? -1 : box_make(e, NULL, true, &bare, ops, arg, ret, err);
}

int box_claim(struct box *b, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct err *err)
{
    struct kind kind = engine_kind(spec);

    if (!b->spare || !b->e || b->state >= BOX_READY || b->resetting)
        return err_set(err, ERR_LOST, "sandbox %s waits for nobody any more", b->id);
    if (b->level != spec->level || !engine_same_kind(&b->kind, &kind) || !engine_fit_limits(&b->told, &spec->limits) ||
        spec->nmounts || (spec->id && !str_eq(spec->id, b->id)))
        return err_set(err, ERR_BUG, "sandbox %s was prepared for another", b->id);
    if (check_spec(b->e, spec, err) < 0 || claim_prepare(b, spec, err) < 0)
        return -1;
    b->spare = false;
    b->limits = spec->limits;
    if (b->join)
        b->join->done = NULL;
    box_belongs(b, spec, ops, arg);
    box_set_timer(b, ev_now(b->ev) + SETUP_NS);
    claim_go(b);
    return 0;
}

/* The new host's stream numbers start high, far from those of the host before it, which may still be open. */
#define ADOPTED_STREAMS 0x40000000u

int box_adopt(struct engine *e, const char *id, const struct box_spec *spec, const struct box_ops *ops, void *arg,
              struct box **ret, struct err *err)
{
    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", id);
    if (check_spec(e, spec, err) < 0 || box_make(e, id, false, spec, ops, arg, ret, err) < 0)
        return -1;
    (*ret)->next_stream = ADOPTED_STREAMS | ((uint32_t)(*ret)->epoch & 0x3ffffffeu);
    return 0;
}

static void dismantle(struct box *b)
{
    ev_timer_clear(b->ev, &b->timer);
    box_unwire(b);
    claim_drop(b);
    streams_gone(b, NULL);
    fd_close(&b->pidfd);
    fd_close(&b->cpu_fd);
    fd_close(&b->oom_fd);
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
