/* One sandbox as a state machine over two connections: requests to its driver, and the control
 * stream to PID 1.
 *
 *     CREATING -> HELLO -> CLAIMING -> READY -> ENDING -> ENDED
 *            any of them -> DESTROYING -> GONE
 *
 * sandbox_claim.c has the states before READY, sandbox_handle_end.c those after it, and
 * sandbox_requests.c the requests of the caller. This file has creation, clocks and release.
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
#include "sandbox/drivers.h"

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
    if (b->created.limits.enforcement[LIMIT_CPU] == ENFORCEMENT_FULL)
        r.quota_milli = b->limits.v[LIMIT_CPU];
    return r;
}

/* --- the control stream --- */

static void sandbox_handle_on_frame(void *arg, const struct frame *f, int *fds UNUSED, size_t nfds UNUSED)
{
    struct sandbox_handle *b = arg;

    driver_callback_begin();
    if (b->adopted && b->state == SANDBOX_HANDLE_HELLO)
        sandbox_claim_on_adopted_frame(b, f);
    else if (f->type == FRAME_RESUME)
        sandbox_stream_on_resume(b, f);
    else if (f->stream == 0)
        sandbox_claim_on_frame(b, f);
    else
        sandbox_stream_on_frame(b, f);
    driver_callback_end();
}

static void sandbox_handle_on_runtime_end(void *arg, const struct err *why)
{
    struct sandbox_handle *b = arg;
    struct err err = *why;

    driver_callback_begin();
    sandbox_handle_disconnect(b);
    if (err.id == ERR_LOST && b->init_status >= 0 && WIFSIGNALED(b->init_status))
        err_set(&err, ERR_LOST, "PID 1 of the sandbox was ended by signal %d", WTERMSIG(b->init_status));
    else if (err.id == ERR_LOST)
        err_set(&err, ERR_LOST, "PID 1 of the sandbox closed its control stream");
    sandbox_handle_end(b, &err);
    driver_callback_end();
}

static void sandbox_handle_on_drain(void *arg)
{
    driver_callback_begin();
    sandbox_streams_on_drained(arg);
    driver_callback_end();
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
    static const char *const waits_for[] = { [SANDBOX_HANDLE_CREATING] = "the driver to create it",
                                             [SANDBOX_HANDLE_HELLO] = "HELLO from its runtime",
                                             [SANDBOX_HANDLE_CLAIMING] = "its runtime to answer the claim" };
    struct err err;

    err_set(&err, ERR_TIMEOUT, "the sandbox was not ready after %llu s; it was waiting for %s",
            SANDBOX_SETUP_NS / NS_PER_S,
            b->egress && b->egress->was_claimed ? "the egress proxy to accept its rules" : waits_for[b->state]);
    sandbox_handle_fail(b, &err);
}

static void sandbox_handle_on_timer(void *arg)
{
    struct sandbox_handle *b = arg;
    enum ended_by cause;

    driver_callback_begin();
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
    driver_callback_end();
}

/* --- events of the driver --- */

void sandbox_handle_on_oom(struct sandbox_handle *b)
{
    if (b->state == SANDBOX_HANDLE_ENDING)
        b->died_of_memory = true; /* the death was seen before this event */
    else
        for (struct exec_handle *x = b->execs; x && b->state == SANDBOX_HANDLE_READY; x = x->next)
            exec_handle_end(x, ENDED_MEMORY);
}

/* --- lifecycle --- */

static int sandbox_handle_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    if ((unsigned)spec->driver >= DRIVER_COUNT || (unsigned)spec->profile >= PROFILE_COUNT)
        return err_set(err, ERR_BUG, "driver %d or profile %d does not exist", (int)spec->driver, (int)spec->profile);
    const struct driver_link *l = e->links[spec->driver];
    if (l->lost) {
        *err = l->why;
        return -1;
    }
    if (!(drivers_caps(spec->driver)->levels >> spec->level & 1))
        return err_set(err, ERR_LEVEL_UNAVAILABLE, "level %s: no driver for it on this host; use standard",
                       level_name(spec->level));
    if (drivers_check_network(spec->driver, spec->network.mode, err) < 0 || limits_check(&spec->limits, err) < 0)
        return -1;
    if (spec->id && !id_valid(spec->id, "sb"))
        return err_set(err, ERR_INVALID, "'%.40s' is not the id of a sandbox", spec->id);
    return 0;
}

/* The part of the spec that the driver does not know. */
static void sandbox_handle_set_owner(struct sandbox_handle *b, const struct sandbox_spec *spec,
                                     const struct sandbox_handle_ops *ops, void *arg)
{
    b->ops = ops;
    b->arg = arg;
    b->level = spec->level;
    network_policy_done(&b->network);
    network_policy_copy(&b->network, &spec->network);
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
    b->link = e->links[spec->driver];
    b->caps = drivers_caps(spec->driver);
    b->ev = e->ev;
    sandbox_handle_set_owner(b, spec, ops, arg);
    b->is_unclaimed = spare;
    b->kind = sandbox_kind_of_spec(spec);
    owned_spec_set(&b->made, spec);
    b->made.spec.nmounts = spec->nmounts; /* with mounts it never fits another claim */
    b->limits = spec->limits;
    b->driver_limits = spec->limits;
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
        sandbox_network_release(b);
        network_policy_done(&b->network);
        owned_spec_done(&b->made);
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
    if (sandbox_handle_check_spec(e, spec, err) < 0 || sandbox_network_check(e, spec, err) < 0)
        return -1;
    return sandbox_handle_create(e, NULL, false, spec, ops, arg, ret, err);
}

int sandbox_handle_prepare(struct engine *e, const struct sandbox_spec *like, const struct sandbox_handle_ops *ops,
                           void *arg, struct sandbox_handle **ret, struct err *err)
{
    struct sandbox_spec bare = sandbox_spec_unclaimed(like);

    if ((unsigned)like->driver < DRIVER_COUNT && !drivers_caps(like->driver)->prepare)
        return err_set(err, ERR_DRIVER_UNSUPPORTED, "driver %s: it cannot make sandboxes in advance",
                       driver_name(like->driver));
    return sandbox_handle_check_spec(e, &bare, err) < 0
               ? -1
               : sandbox_handle_create(e, NULL, true, &bare, ops, arg, ret, err);
}

int sandbox_handle_claim(struct sandbox_handle *b, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct err *err)
{
    struct sandbox_spec made = b->made.spec;

    made.limits = b->driver_limits;
    if (!b->is_unclaimed || !b->engine || b->state >= SANDBOX_HANDLE_READY || b->resetting)
        return err_set(err, ERR_LOST, "sandbox %s does not wait for a claim any more", b->id);
    if (!sandbox_spec_fits_claim(&made, spec) || (spec->id && !str_eq(spec->id, b->id)))
        return err_set(err, ERR_BUG, "sandbox %s was prepared for another spec", b->id);
    if (sandbox_handle_check_spec(b->engine, spec, err) < 0 || sandbox_network_check(b->engine, spec, err) < 0 ||
        sandbox_claim_prepare(b, spec, err) < 0)
        return -1;
    if (sandbox_network_prepare(b, spec, err) < 0) {
        sandbox_claim_drop(b);
        return -1;
    }
    b->is_unclaimed = false;
    b->limits = spec->limits;
    if (b->join_request)
        b->join_request->then.done = NULL;
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
    sandbox_network_release(b);
    network_policy_done(&b->network);
    owned_spec_done(&b->made);
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
    b->link = NULL;
    b->ops = NULL;
    b->state = SANDBOX_HANDLE_GONE;
    sandbox_handle_release_resources(b);
}

void sandbox_handle_free(struct sandbox_handle *b)
{
    if (!b)
        return;
    if (b->engine) {
        b->link->ops->forget(b->link, b);
        egress_link_forget(&b->engine->egress, b);
        if (b->state >= SANDBOX_HANDLE_HELLO && b->state <= SANDBOX_HANDLE_ENDED && !b->is_kept) {
            b->link->ops->destroy(b->link, b->id, NULL, NULL);
            sandbox_network_unbind(b);
        }
        engine_remove_handle(b->engine, b);
        engine_maybe_report_lost(b->engine);
    }
    b->engine = NULL;
    b->link = NULL;
    b->ops = NULL;
    b->state = SANDBOX_HANDLE_GONE;
    sandbox_handle_release_resources(b);
    driver_free_deferred(b->ev, &b->defer, b);
}
