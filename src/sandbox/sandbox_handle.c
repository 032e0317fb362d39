/* One sandbox as a state machine over two connections: requests to the jailer, and the control
 * stream to PID 1.
 *
 *     CREATING -> HELLO -> CLAIMING -> READY -> ENDING -> ENDED
 *            any of them -> DESTROYING -> GONE
 *
 * sandbox_claim.c has the states before READY, sandbox_handle_end.c those after it. This file
 * has creation, clocks, the requests of the caller, and release.
 *
 * Invariants:
 * 1. on_ready and every `done` are called at most once.
 * 2. Every state except READY and ENDED has a deadline, but a prepared sandbox may wait for its
 *    claim without limit; READY has the sandbox's own clocks.
 * 3. Every frame of the runtime is checked; the first invalid frame ends the sandbox with
 *    PROTOCOL. */
#include "sandbox/engine_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#define SANDBOX_SETUP_NS (20 * NS_PER_S)

static void sandbox_handle_on_timer(void *arg);

void sandbox_handle_set_timer(struct sandbox_handle *b, uint64_t at)
{
    if (at == CLOCKS_NEVER)
        ev_timer_clear(b->ev, &b->timer);
    else
        ev_timer_set(b->ev, &b->timer, at, sandbox_handle_on_timer, b);
}

void sandbox_handle_disconnect(struct sandbox_handle *b)
{
    if (b->is_connected)
        chan_done(&b->chan);
    b->is_connected = false;
}

bool sandbox_handle_is_unfinished(const struct sandbox_handle *b)
{
    return b->state != SANDBOX_HANDLE_ENDED && b->state != SANDBOX_HANDLE_GONE;
}

struct cpu_rate sandbox_handle_cpu_rate(const struct sandbox_handle *b)
{
    struct cpu_rate r = { .cores = b->engine ? b->engine->cores : 1 };

    if (b->limits.v[LIMIT_CPUSET])
        r.cores = (uint32_t)__builtin_popcountll(b->limits.v[LIMIT_CPUSET]);
    if (b->jailer_report.enforced[LIMIT_CPU] == JAIL_ENFORCED)
        r.quota_milli = b->limits.v[LIMIT_CPU];
    return r;
}

/* --- the control stream --- */

static void sandbox_handle_on_frame(void *arg, const struct frame *f, int *fds UNUSED, size_t nfds UNUSED)
{
    struct sandbox_handle *b = arg;

    engine_callback_begin();
    if (b->adopted && b->state == SANDBOX_HANDLE_HELLO)
        sandbox_claim_on_adopted_frame(b, f);
    else if (f->type == FRAME_RESUME)
        sandbox_stream_on_resume(b, f);
    else if (f->stream == 0)
        sandbox_claim_on_frame(b, f);
    else
        sandbox_stream_on_frame(b, f);
    engine_callback_end();
}

static void sandbox_handle_on_runtime_end(void *arg, const struct err *why)
{
    struct sandbox_handle *b = arg;
    struct err err = *why;

    engine_callback_begin();
    sandbox_handle_disconnect(b);
    if (err.id == ERR_LOST && b->init_status >= 0 && WIFSIGNALED(b->init_status))
        err_set(&err, ERR_LOST, "PID 1 of the sandbox was ended by signal %d", WTERMSIG(b->init_status));
    else if (err.id == ERR_LOST)
        err_set(&err, ERR_LOST, "PID 1 of the sandbox closed its control stream");
    sandbox_handle_end(b, &err);
    engine_callback_end();
}

static void sandbox_handle_on_drain(void *arg)
{
    engine_callback_begin();
    sandbox_streams_on_drained(arg);
    engine_callback_end();
}

static const struct chan_ops sandbox_handle_chan_ops = { .on_frame = sandbox_handle_on_frame,
                                                         .on_end = sandbox_handle_on_runtime_end,
                                                         .on_drain = sandbox_handle_on_drain };

int sandbox_handle_connect(struct sandbox_handle *b, int control_fd, struct err *err)
{
    if (chan_init(&b->chan, b->ev, control_fd, false, &sandbox_handle_chan_ops, b, err) < 0)
        return err_wrap(err, "control stream");
    b->is_connected = true;
    b->chan.is_sole_holder = !b->is_kept;
    return 0;
}

void sandbox_handle_protocol_error(struct sandbox_handle *b, const char *fmt, ...)
{
    char what[160];
    struct err err;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    err_set(&err, ERR_PROTOCOL, "the sandbox sent %s", what);
    sandbox_handle_disconnect(b);
    sandbox_handle_end(b, &err);
}

/* --- ready --- */

void sandbox_handle_set_ready(struct sandbox_handle *b)
{
    b->state = SANDBOX_HANDLE_READY;
    sandbox_clocks_start(&b->clocks, b->limits.v[LIMIT_LIFETIME], b->limits.v[LIMIT_IDLE], ev_now(b->ev));
    if (b->running_execs > 0)
        sandbox_clocks_set_busy(&b->clocks);
    if (b->paused)
        sandbox_clocks_pause(&b->clocks, ev_now(b->ev));
    for (struct exec_handle *x = b->execs; x; x = x->next)
        exec_receipt_set_walls(x);
    sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
    if (b->ops && b->ops->on_ready)
        b->ops->on_ready(b->arg);
}

void sandbox_handle_exec_added(struct sandbox_handle *b)
{
    b->running_execs++;
    if (b->state != SANDBOX_HANDLE_READY)
        return; /* sandbox_handle_set_ready() */
    sandbox_clocks_set_busy(&b->clocks);
    sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
}

void sandbox_handle_exec_launched(struct sandbox_handle *b, struct exec_handle *launched)
{
    b->launched_execs++;
    for (struct exec_handle *x = b->execs; x; x = x->next)
        if (x != launched && (x->state == EXEC_STARTING || x->state == EXEC_RUNNING))
            x->ran_concurrently = launched->ran_concurrently = true;
}

void sandbox_handle_exec_ended(struct sandbox_handle *b)
{
    b->running_execs--;
    if (b->running_execs > 0 || b->state != SANDBOX_HANDLE_READY)
        return;
    sandbox_clocks_set_idle(&b->clocks, ev_now(b->ev));
    if (b->clock_expired)
        sandbox_handle_kill(b, &b->why);
    else
        sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
}

static void sandbox_handle_on_clock_expired(struct sandbox_handle *b, enum ended_by cause)
{
    char text[32];

    b->clock_expired = true;
    b->expired_clock = cause;
    if (cause == ENDED_LIFETIME)
        err_set(&b->why, ERR_TIMEOUT, "the lifetime of the sandbox, %s, has expired",
                str_ms(b->limits.v[LIMIT_LIFETIME], text));
    else
        err_set(&b->why, ERR_TIMEOUT, "nothing ran in the sandbox for %s", str_ms(b->limits.v[LIMIT_IDLE], text));
    if (b->running_execs == 0)
        sandbox_handle_kill(b, &b->why);
    else
        for (struct exec_handle *x = b->execs; x && b->state == SANDBOX_HANDLE_READY; x = x->next)
            exec_handle_end(x, cause);
}

static void sandbox_handle_setup_timeout(struct sandbox_handle *b)
{
    static const char *const waits_for[] = { [SANDBOX_HANDLE_CREATING] = "the jailer to create it",
                                             [SANDBOX_HANDLE_HELLO] = "HELLO from its runtime",
                                             [SANDBOX_HANDLE_CLAIMING] = "its runtime to answer the claim" };
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the sandbox was not ready after %llu s; it was waiting for %s",
            SANDBOX_SETUP_NS / NS_PER_S, waits_for[b->state]);
    sandbox_handle_fail(b, &err);
}

static void sandbox_handle_on_timer(void *arg)
{
    struct sandbox_handle *b = arg;
    enum ended_by cause;

    engine_callback_begin();
    if (b->state < SANDBOX_HANDLE_READY) {
        sandbox_handle_setup_timeout(b);
    } else if (b->state == SANDBOX_HANDLE_READY) {
        if (sandbox_clocks_check(&b->clocks, ev_now(b->ev), &cause))
            sandbox_handle_on_clock_expired(b, cause);
        else
            sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
    } else {
        sandbox_handle_end_timeout(b);
    }
    engine_callback_end();
}

/* --- events of the jailer --- */

void sandbox_handle_on_jailer_event(struct sandbox_handle *b, const struct jail_event *m)
{
    if (m->kind == JAIL_EVENT_ENDED)
        b->init_status = m->status; /* the control stream ends later, after its last frames */
    if (m->kind != JAIL_EVENT_OOM)
        return;
    if (b->state == SANDBOX_HANDLE_ENDING)
        b->died_of_memory = true; /* memory ran out; the death was seen before this event */
    else
        for (struct exec_handle *x = b->execs; x && b->state == SANDBOX_HANDLE_READY; x = x->next)
            exec_handle_end(x, ENDED_MEMORY);
}

/* --- requests of the caller --- */

static void sandbox_handle_on_op_reply(struct jailer_request *ask, const struct jailer_reply *a UNUSED,
                                       const struct err *err)
{
    struct sandbox_handle *b = ask->owner;
    uint64_t now = ev_now(b->ev);
    bool paused = ask->type == FRAME_J_FREEZE;

    if (ask->type == FRAME_J_KEEP) {
        b->is_kept = b->is_kept || !err;
        b->chan.is_sole_holder = !b->is_kept;
    }
    if (!err && ask->type == FRAME_J_SET_LIMITS && b->state == SANDBOX_HANDLE_READY && !b->clock_expired) {
        b->limits.v[LIMIT_LIFETIME] = ask->lifetime_ms;
        b->clocks.lifetime_at = now + ask->lifetime_ms * NS_PER_MS;
        sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
    }
    if (!err && (paused || ask->type == FRAME_J_THAW) && paused != b->paused) {
        b->paused = paused;
        for (struct exec_handle *x = b->execs; x; x = x->next)
            exec_handle_pause(x, paused);
        if (b->state == SANDBOX_HANDLE_READY) {
            (paused ? sandbox_clocks_pause : sandbox_clocks_resume)(&b->clocks, now);
            sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
        }
    }
    if (ask->done)
        ask->done(ask->done_arg, err);
}

static void sandbox_handle_request_op(struct sandbox_handle *b, uint8_t type, sandbox_handle_done_fn *done, void *arg)
{
    if (!b->engine)
        return;
    struct jailer_request *a = engine_request_for_sandbox(b->engine, type, b->id, sandbox_handle_on_op_reply, b);
    a->done = done;
    a->done_arg = arg;
}

void sandbox_handle_freeze(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    sandbox_handle_request_op(b, FRAME_J_FREEZE, done, arg);
}

void sandbox_handle_thaw(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    sandbox_handle_request_op(b, FRAME_J_THAW, done, arg);
}

/* From here on the jailer may hold the control stream too, for a later server process that
 * adopts the sandbox. */
void sandbox_handle_keep(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    struct jail_id m;
    PAYLOAD(payload);

    if (!b->engine)
        return;
    memcpy(m.id, b->id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    b->chan.is_sole_holder = false;
    struct jailer_request *a = engine_request(b->engine, FRAME_J_KEEP, payload, len > 0 ? (uint32_t)len : 0,
                                              &b->chan.io.fd, b->is_connected, sandbox_handle_on_op_reply, b);
    a->done = done;
    a->done_arg = arg;
}

void sandbox_handle_set_lifetime(struct sandbox_handle *b, uint64_t lifetime_ms, sandbox_handle_done_fn *done,
                                 void *arg)
{
    struct jail_set_limits m = { .lifetime_ms = lifetime_ms };
    PAYLOAD(payload);

    if (!b->engine)
        return;
    memcpy(m.id, b->id, sizeof(m.id));
    int len = jail_set_limits_encode(&m, payload, NULL);
    struct jailer_request *a = engine_request(b->engine, FRAME_J_SET_LIMITS, payload, len > 0 ? (uint32_t)len : 0, NULL,
                                              0, sandbox_handle_on_op_reply, b);
    a->lifetime_ms = lifetime_ms;
    a->done = done;
    a->done_arg = arg;
}

enum ended_by sandbox_handle_ended_by(const struct sandbox_handle *b)
{
    return b->clock_expired ? b->expired_clock : b->died_of_memory ? ENDED_MEMORY : ENDED_LOST;
}

static void sandbox_handle_on_usage_reply(struct jailer_request *ask, const struct jailer_reply *a,
                                          const struct err *err)
{
    struct jail_stats st;
    struct err why = { 0 };

    if (err || jail_stats_decode(a->f, &st, &why) < 0) {
        ask->on_usage(ask->done_arg, NULL, err ? err : &why);
        return;
    }
    struct sandbox_handle_usage u = { .cpu_ns = st.cpu_ns,
                                      .throttled_ns = st.throttled_ns,
                                      .memory = st.memory,
                                      .memory_peak = st.memory_peak,
                                      .oom_kills = st.oom_kills,
                                      .pids = st.pids,
                                      .pids_peak = st.pids_peak,
                                      .pids_refused = st.pids_refused,
                                      .io_read = st.io_read,
                                      .io_write = st.io_write };
    _Static_assert(SANDBOX_USAGE_UNKNOWN == JAIL_UNKNOWN, "the same value for unknown");
    ask->on_usage(ask->done_arg, &u, NULL);
}

void sandbox_handle_usage(struct sandbox_handle *b, sandbox_handle_usage_fn *fn, void *arg)
{
    if (!b->engine)
        return;
    struct jailer_request *a = engine_request_for_sandbox(b->engine, FRAME_J_STATS, b->id,
                                                          sandbox_handle_on_usage_reply, b);
    a->on_usage = fn;
    a->done_arg = arg;
}

uint64_t sandbox_handle_cpu_ns(const struct sandbox_handle *b)
{
    _Static_assert(CPU_UNKNOWN == SANDBOX_USAGE_UNKNOWN && JAIL_UNKNOWN == SANDBOX_USAGE_UNKNOWN,
                   "the same value for unknown");

    if (b->stats_known)
        return b->stats.cpu_ns;
    return b->cpu_sampled_at == ev_now(b->ev) ? b->cpu_sample_ns
                                              : cpu_counter_read(b->cpu_fd, b->jailer_report.cpu_unit);
}

uint64_t sandbox_handle_sample_cpu(struct sandbox_handle *b)
{
    b->cpu_sample_ns = cpu_counter_read(b->cpu_fd, b->jailer_report.cpu_unit);
    b->cpu_sampled_at = ev_now(b->ev);
    return b->cpu_sample_ns;
}

uint64_t sandbox_handle_memory_peak(const struct sandbox_handle *b)
{
    return b->stats_known ? b->stats.memory_peak : SANDBOX_USAGE_UNKNOWN;
}

static void sandbox_handle_ignore_done(void *arg UNUSED, const struct err *err UNUSED)
{
}

void sandbox_handle_destroy(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    if (!b->engine)
        return;
    if (b->destroy_wanted || b->state == SANDBOX_HANDLE_GONE) {
        /* The jailer no longer knows the sandbox, and says so. */
        sandbox_handle_request_op(b, FRAME_J_DESTROY, done, arg);
        return;
    }
    b->destroy_wanted = true;
    b->done = done ? done : sandbox_handle_ignore_done;
    b->done_arg = arg;
    if (b->state != SANDBOX_HANDLE_CREATING && b->state != SANDBOX_HANDLE_DESTROYING)
        sandbox_handle_start_destroy(b);
}

bool sandbox_handle_is_lost(const struct sandbox_handle *b)
{
    return !b->engine || b->engine->lost;
}

/* Frames are read in order, and a runtime that refuses the claim also refuses the frames after
 * it. */
bool sandbox_handle_accepts_exec(const struct sandbox_handle *b)
{
    bool behind = b->state == SANDBOX_HANDLE_CLAIMING && b->claim_sent && b->runtime_checks_walls;

    return (b->state == SANDBOX_HANDLE_READY || behind) && !b->clock_expired && b->is_connected;
}

bool sandbox_handle_can_freeze(const struct sandbox_handle *b)
{
    return !str_eq(b->jailer_report.cgroup, "none");
}

const char *sandbox_handle_id(const struct sandbox_handle *b)
{
    return b->id;
}

/* --- lifecycle --- */

static int sandbox_handle_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    if (e->lost) {
        *err = e->why;
        return -1;
    }
    if (spec->level == LEVEL_HIGH)
        return err_set(err, ERR_LEVEL_UNAVAILABLE, "level %s: no driver for it on this host; use standard",
                       level_name(spec->level));
    if ((unsigned)spec->profile >= PROFILE_COUNT)
        return err_set(err, ERR_BUG, "profile %d does not exist", (int)spec->profile);
    if (limits_check(&spec->limits, err) < 0)
        return -1;
    if (spec->id && !id_valid(spec->id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", spec->id);
    return 0;
}

/* The part of the spec that the jailer does not know. */
static void sandbox_handle_set_owner(struct sandbox_handle *b, const struct sandbox_spec *spec,
                                     const struct sandbox_handle_ops *ops, void *arg)
{
    b->ops = ops;
    b->arg = arg;
    b->level = spec->level;
    b->network = spec->network;
    if (spec->policy)
        (void)str_copy(b->policy, sizeof(b->policy), spec->policy);
    b->require_all_walls = spec->require_all_walls;
    b->require_enforced = spec->require_enforced;
}

static int sandbox_handle_create(struct engine *e, const char *id, bool spare, const struct sandbox_spec *spec,
                                 const struct sandbox_handle_ops *ops, void *arg, struct sandbox_handle **ret,
                                 struct err *err)
{
    if (e->nhandles >= e->max_handles)
        return err_set(err, ERR_DESCRIPTORS,
                       "there are %" PRIu64 " sandboxes, the maximum for this limit of open files; raise the limit",
                       e->nhandles);
    struct sandbox_handle *b = mem_new(struct sandbox_handle);

    b->engine = e;
    b->ev = e->ev;
    sandbox_handle_set_owner(b, spec, ops, arg);
    b->is_unclaimed = spare;
    b->kind = sandbox_kind_of_spec(spec);
    b->limits = spec->limits;
    b->jailer_limits = spec->limits;
    b->pidfd = b->cpu_fd = b->oom_fd = -1;
    b->init_status = -1;
    b->denials_absent_why = "the monitor could not be asked in time";
    b->adopted = b->is_kept = id != NULL;
    /* An adopted sandbox may have run others: its totals never belong to one execution alone. */
    b->launched_execs = id ? 2 : 0;
    if (id)
        memcpy(b->id, id, sizeof(b->id));
    else if (spec->id)
        memcpy(b->id, spec->id, sizeof(b->id));
    else
        id_new("sb", b->id);
    if (sandbox_claim_start(b, spec, err) < 0) {
        sandbox_claim_drop(b);
        free(b);
        return -1;
    }
    engine_add_handle(e, b);
    sandbox_handle_set_timer(b, ev_now(b->ev) + SANDBOX_SETUP_NS);
    *ret = b;
    return 0;
}

int sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                       void *arg, struct sandbox_handle **ret, struct err *err)
{
    return sandbox_handle_check_spec(e, spec, err) < 0
               ? -1
               : sandbox_handle_create(e, NULL, false, spec, ops, arg, ret, err);
}

int sandbox_handle_prepare(struct engine *e, const struct sandbox_spec *like, const struct sandbox_handle_ops *ops,
                           void *arg, struct sandbox_handle **ret, struct err *err)
{
    struct sandbox_spec bare = { .driver = like->driver,
                                 .network = like->network,
                                 .level = like->level,
                                 .profile = like->profile,
                                 .grants = like->grants,
                                 .limits = like->limits,
                                 .hostname = like->hostname,
                                 .zygote = like->zygote };

    memcpy(bare.deny, like->deny, sizeof(bare.deny));
    return sandbox_handle_check_spec(e, &bare, err) < 0
               ? -1
               : sandbox_handle_create(e, NULL, true, &bare, ops, arg, ret, err);
}

int sandbox_handle_claim(struct sandbox_handle *b, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct err *err)
{
    struct sandbox_kind kind = sandbox_kind_of_spec(spec);

    if (!b->is_unclaimed || !b->engine || b->state >= SANDBOX_HANDLE_READY || b->resetting)
        return err_set(err, ERR_LOST, "sandbox %s does not wait for a claim any more", b->id);
    if (b->level != spec->level || !sandbox_kind_equal(&b->kind, &kind) ||
        !engine_jailer_limits_fit(&b->jailer_limits, &spec->limits) || spec->nmounts ||
        (spec->id && !str_eq(spec->id, b->id)))
        return err_set(err, ERR_BUG, "sandbox %s was prepared for another spec", b->id);
    if (sandbox_handle_check_spec(b->engine, spec, err) < 0 || sandbox_claim_prepare(b, spec, err) < 0)
        return -1;
    b->is_unclaimed = false;
    b->limits = spec->limits;
    if (b->join_request)
        b->join_request->done = NULL;
    sandbox_handle_set_owner(b, spec, ops, arg);
    sandbox_handle_set_timer(b, ev_now(b->ev) + SANDBOX_SETUP_NS);
    sandbox_claim_proceed(b);
    return 0;
}

/* Stream ids of the new server process start high, far from those of the previous process, whose
 * streams may still be open. */
#define ADOPTED_STREAM_ID_BASE 0x40000000u

int sandbox_handle_adopt(struct engine *e, const char *id, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct sandbox_handle **ret, struct err *err)
{
    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", id);
    if (sandbox_handle_check_spec(e, spec, err) < 0 ||
        sandbox_handle_create(e, id, false, spec, ops, arg, ret, err) < 0)
        return -1;
    (*ret)->next_stream = ADOPTED_STREAM_ID_BASE | ((uint32_t)(*ret)->epoch & 0x3ffffffeu);
    return 0;
}

static void sandbox_handle_release_resources(struct sandbox_handle *b)
{
    ev_timer_clear(b->ev, &b->timer);
    sandbox_handle_disconnect(b);
    sandbox_claim_drop(b);
    sandbox_streams_close_all(b, NULL);
    fd_close(&b->pidfd);
    fd_close(&b->cpu_fd);
    fd_close(&b->oom_fd);
    while (b->execs)
        exec_handle_detach(b->execs);
    b->running_execs = 0;
}

void sandbox_handle_detach_engine(struct sandbox_handle *b)
{
    engine_remove_handle(b->engine, b);
    b->engine = NULL;
    b->ops = NULL;
    b->state = SANDBOX_HANDLE_GONE;
    sandbox_handle_release_resources(b);
}

void sandbox_handle_free(struct sandbox_handle *b)
{
    if (!b)
        return;
    if (b->engine) {
        engine_forget_requests(b->engine, b);
        if (b->state >= SANDBOX_HANDLE_HELLO && b->state <= SANDBOX_HANDLE_ENDED && !b->is_kept)
            engine_request_for_sandbox(b->engine, FRAME_J_DESTROY, b->id, NULL, NULL);
        engine_remove_handle(b->engine, b);
        if (b->engine->lost)
            engine_maybe_report_lost(b->engine);
    }
    b->engine = NULL;
    b->ops = NULL;
    b->state = SANDBOX_HANDLE_GONE;
    sandbox_handle_release_resources(b);
    engine_free_deferred(b->ev, &b->defer, b);
}
