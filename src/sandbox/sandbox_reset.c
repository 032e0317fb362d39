/* Returns a claimed sandbox to the unclaimed state with RESET. Its answer is only the report of
 * PID 1, which is not trusted. So afterwards the monitor is asked for denials, and the driver
 * for the number of processes and the memory in use: these results are final, since only PID 1
 * should be left.
 *
 * All state of the claim is dropped here at once. Frames that the runtime still sends for it are
 * discarded until the answer to RESET comes; none can follow, since the runtime forgets all
 * other streams before it answers. */
#include "sandbox/engine_internal.h"

#define RESET_NS (10 * NS_PER_S)

static bool sandbox_reset_is_positive(uint64_t n)
{
    return n != SANDBOX_USAGE_UNKNOWN && n > 0;
}

/* Processes beyond those that every idle sandbox of the driver has, and PID 1. */
static uint64_t sandbox_reset_count_processes(const struct sandbox_handle *b, const struct sandbox_handle_usage *st)
{
    uint64_t own = b->caps->processes - 1;

    return !st || st->pids == SANDBOX_USAGE_UNKNOWN || st->pids < own ? SANDBOX_USAGE_UNKNOWN : st->pids - own;
}

/* Limits may also be reached after the last check, by processes that ran until they were killed. */
static void sandbox_reset_on_stats(struct driver_request *r, const struct sandbox_handle_usage *st,
                                   const struct err *err UNUSED)
{
    struct sandbox_handle *b = r->owner;

    if (b->state != SANDBOX_HANDLE_CLAIMING)
        return;
    b->reset_report.limit_reached |= st && (sandbox_reset_is_positive(st->oom_kills) ||
                                            sandbox_reset_is_positive(st->pids_refused));
    b->reset_report.pids = sandbox_reset_count_processes(b, st);
    b->reset_report.memory = st ? st->memory : SANDBOX_USAGE_UNKNOWN;
    sandbox_handle_set_timer(b, CLOCKS_NEVER);
    if (b->ops && b->ops->on_ready)
        b->ops->on_ready(b->arg);
}

static void sandbox_reset_request_stats(struct sandbox_handle *b, bool sure)
{
    b->reset_report.has_denials = !sure || b->denials.n > 0 || b->denials.overflow_count > 0;
    b->link->ops->stats(b->link, b->id, sandbox_reset_on_stats, b);
}

static void sandbox_reset_on_denials(struct driver_request *r, const struct driver_denials *d, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (b->state != SANDBOX_HANDLE_CLAIMING)
        return;
    denials_store_answer(b, d, err);
    sandbox_reset_request_stats(b, b->denials_absent_why == NULL);
}

/* A silent monitor is not enough: a process that was killed may have been waiting for the
 * monitor's answer. */
static void sandbox_reset_verify(struct sandbox_handle *b)
{
    if (b->link->denials_absent_why)
        sandbox_reset_request_stats(b, false);
    else
        b->link->ops->denials(b->link, b->id, sandbox_reset_on_denials, b);
}

static bool sandbox_reset_on_frame(void *arg, const struct frame *f)
{
    struct sandbox_handle *b = arg;
    struct rt_reset found;
    struct rt_error m;
    struct err err = { 0 };

    if (f->type == FRAME_ERROR && rt_error_decode(f, &m, &err) == 0) {
        rt_error_to_err(&m, &err);
        err_wrap(&err, "resetting the sandbox");
        sandbox_handle_fail(b, &err);
        return true;
    }
    if (f->type != FRAME_DONE || rt_reset_decode(f, &found, &err) < 0)
        return false;
    b->reset_report = (struct sandbox_reset_report){ .processes = found.processes,
                                                     .objects = found.objects,
                                                     .files = found.files,
                                                     .sockets = found.sockets,
                                                     .init_altered = found.altered,
                                                     .limit_reached = found.full };
    b->resetting = false;
    sandbox_claim_preload_rules(b);
    if (b->egress)
        sandbox_network_end(b, true);
    else
        sandbox_reset_verify(b);
    return true;
}

/* The rules of the last claim must not serve the next one, so a proxy that did not answer ends the
 * sandbox. */
void sandbox_reset_on_unbound(struct sandbox_handle *b, const struct err *err)
{
    struct err why;

    if (err) {
        why = *err;
        err_wrap(&why, "resetting the sandbox");
        sandbox_handle_fail(b, &why);
        return;
    }
    sandbox_network_release(b);
    sandbox_reset_verify(b);
}

static void sandbox_reset_on_stream_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

static const struct sandbox_stream_ops sandbox_reset_stream_ops = { .on_frame = sandbox_reset_on_frame,
                                                                    .on_gone = sandbox_reset_on_stream_gone };

bool sandbox_handle_can_reset(const struct sandbox_handle *b)
{
    return b->caps->reset && b->engine && !b->link->lost && b->state == SANDBOX_HANDLE_READY && b->is_connected &&
           !b->clock_expired && !b->paused && !b->is_kept && !b->join_request && !b->destroy_wanted;
}

static void sandbox_reset_forget_claim(struct sandbox_handle *b)
{
    sandbox_streams_close_all(b, NULL);
    if (b->engine)
        egress_link_forget(&b->engine->egress, b);
    while (b->execs) {
        b->link->ops->forget(b->link, b->execs);
        exec_network_drop_collection(b->execs);
        exec_handle_detach(b->execs);
    }
    b->running_execs = 0;
    b->interpreter = SANDBOX_INTERPRETER_NONE;
    b->claim_sent = b->runtime_checks_walls = false;
}

void sandbox_handle_reset(struct sandbox_handle *b, const struct sandbox_handle_ops *ops, void *arg)
{
    struct err err;
    bool can = sandbox_handle_can_reset(b);

    sandbox_reset_forget_claim(b);
    b->ops = ops;
    b->arg = arg;
    b->state = SANDBOX_HANDLE_CLAIMING;
    b->is_unclaimed = b->resetting = b->was_reset = true;
    sandbox_handle_set_timer(b, ev_now(b->ev) + RESET_NS);
    if (can) {
        sandbox_stream_open(b, FRAME_RESET, NULL, 0, &sandbox_reset_stream_ops, b);
        return;
    }
    err_set(&err, ERR_LOST, "sandbox %s cannot be reset", b->id);
    sandbox_handle_fail(b, &err);
}

const struct sandbox_reset_report *sandbox_handle_reset_report(const struct sandbox_handle *b)
{
    return &b->reset_report;
}

bool sandbox_handle_has_denials(const struct sandbox_handle *b)
{
    return !b->engine || b->link->denials_absent_why || b->has_new_denials || b->denials.n > 0 ||
           b->denials.overflow_count > 0;
}
