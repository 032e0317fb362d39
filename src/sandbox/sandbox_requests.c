/* The requests of the caller about one sandbox, and what it can ask at any time. */
#include "sandbox/engine_internal.h"
#include "sandbox/drivers.h"

#include "core/base/str.h"

static void sandbox_requests_answer(const struct driver_request *r, const struct err *err)
{
    if (r->then.done)
        r->then.done(r->then_arg, err);
}

static void sandbox_requests_set_callback(struct driver_request *r, sandbox_handle_done_fn *done, void *arg)
{
    r->then.done = done;
    r->then_arg = arg;
}

static void sandbox_requests_set_paused(struct sandbox_handle *b, bool paused)
{
    if (paused == b->paused)
        return;
    b->paused = paused;
    for (struct exec_handle *x = b->execs; x; x = x->next)
        exec_handle_pause(x, paused);
    if (b->state != SANDBOX_HANDLE_READY)
        return;
    (paused ? sandbox_clocks_pause : sandbox_clocks_resume)(&b->clocks, ev_now(b->ev));
    sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
}

static void sandbox_requests_on_frozen(struct driver_request *r, const struct err *err)
{
    if (!err)
        sandbox_requests_set_paused(r->owner, true);
    sandbox_requests_answer(r, err);
}

void sandbox_handle_freeze(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    if (b->engine)
        sandbox_requests_set_callback(b->link->ops->freeze(b->link, b->id, sandbox_requests_on_frozen, b), done, arg);
}

static void sandbox_requests_on_thawed(struct driver_request *r, const struct err *err)
{
    if (!err)
        sandbox_requests_set_paused(r->owner, false);
    sandbox_requests_answer(r, err);
}

void sandbox_handle_thaw(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    if (b->engine)
        sandbox_requests_set_callback(b->link->ops->thaw(b->link, b->id, sandbox_requests_on_thawed, b), done, arg);
}

static void sandbox_requests_on_kept(struct driver_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    b->is_kept = b->is_kept || !err;
    b->chan.is_sole_holder = !b->is_kept;
    sandbox_requests_answer(r, err);
}

/* From here on the driver may hold the control stream too, for a later server process that
 * adopts the sandbox. */
void sandbox_handle_keep(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    if (!b->engine)
        return;
    b->chan.is_sole_holder = false;
    sandbox_requests_set_callback(
        b->link->ops->keep(b->link, b->id, b->is_connected ? b->chan.io.fd : -1, sandbox_requests_on_kept, b), done,
        arg);
}

static void sandbox_requests_on_lifetime_set(struct driver_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (!err && b->state == SANDBOX_HANDLE_READY && !b->clock_expired) {
        b->limits.v[LIMIT_LIFETIME] = r->lifetime_ms;
        b->clocks.lifetime_at = ev_now(b->ev) + r->lifetime_ms * NS_PER_MS;
        sandbox_handle_set_timer(b, sandbox_clocks_next(&b->clocks));
    }
    sandbox_requests_answer(r, err);
}

void sandbox_handle_set_lifetime(struct sandbox_handle *b, uint64_t lifetime_ms, sandbox_handle_done_fn *done,
                                 void *arg)
{
    if (!b->engine)
        return;
    struct driver_request *r = b->link->ops->set_limits(b->link, b->id, lifetime_ms, NULL,
                                                        sandbox_requests_on_lifetime_set, b);
    r->lifetime_ms = lifetime_ms;
    sandbox_requests_set_callback(r, done, arg);
}

enum ended_by sandbox_handle_ended_by(const struct sandbox_handle *b)
{
    return b->clock_expired ? b->expired_clock : b->died_of_memory ? ENDED_MEMORY : ENDED_LOST;
}

static void sandbox_requests_on_usage(struct driver_request *r, const struct sandbox_handle_usage *u,
                                      const struct err *err)
{
    r->then.usage(r->then_arg, u, err);
}

void sandbox_handle_usage(struct sandbox_handle *b, sandbox_handle_usage_fn *fn, void *arg)
{
    if (!b->engine)
        return;
    struct driver_request *r = b->link->ops->stats(b->link, b->id, sandbox_requests_on_usage, b);
    r->then.usage = fn;
    r->then_arg = arg;
}

int sandbox_handle_find_language(const struct sandbox_handle *b, const char *template, const struct language *l,
                                 char *path, size_t cap, struct err *err)
{
    return drivers_ops(b->kind.driver)->find_language(template ? template : "", l, path, cap, err);
}

uint64_t sandbox_handle_memory_peak(const struct sandbox_handle *b)
{
    return b->stats_known ? b->stats.memory_peak : SANDBOX_USAGE_UNKNOWN;
}

static void sandbox_handle_ignore_done(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void sandbox_requests_on_destroyed_again(struct driver_request *r, const struct sandbox_handle_usage *u UNUSED,
                                                const struct err *err)
{
    sandbox_requests_answer(r, err);
}

void sandbox_handle_destroy(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    if (!b->engine)
        return;
    if (b->destroy_wanted || b->state == SANDBOX_HANDLE_GONE) {
        /* The driver no longer knows the sandbox, and says so. */
        sandbox_requests_set_callback(b->link->ops->destroy(b->link, b->id, sandbox_requests_on_destroyed_again, b),
                                      done, arg);
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
    return !b->engine || b->link->lost;
}

/* Frames are read in order, and a runtime that refuses the claim also refuses the frames after
 * it. */
bool sandbox_handle_accepts_exec(const struct sandbox_handle *b)
{
    bool behind = b->state == SANDBOX_HANDLE_CLAIMING && b->claim_sent && b->runtime_checks_walls &&
                  !(b->egress && b->egress->is_awaited);

    return (b->state == SANDBOX_HANDLE_READY || behind) && !b->clock_expired && b->is_connected;
}

bool sandbox_handle_can_freeze(const struct sandbox_handle *b)
{
    return b->caps->freeze && !str_eq(b->created.cgroup, "none");
}

const char *sandbox_handle_id(const struct sandbox_handle *b)
{
    return b->id;
}
