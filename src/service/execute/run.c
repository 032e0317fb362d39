/* One run: WAITING -> CREATING -> STAGING -> STARTING -> RUNNING -> GATHERING -> ENDED.
 *
 * The result is delivered as soon as it is complete; the sandbox and the run are removed
 * afterwards. So between the end of the program and the delivery, nothing is stored and the jailer
 * is not asked.
 *
 * Invariants:
 * 1. on_end is called once, never inside executor_run, and never after run_cancel.
 * 2. A run holds a slot from CREATING until its sandbox is gone or waits for its teardown
 *    (teardown.c).
 * 3. Until the sandbox is ready, a run has had no effect and nothing is reported. So a pool member
 *    that turns out to be dead is replaced once, without notice. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <inttypes.h>

static bool run_replace_dead_sandbox(struct run *r, const struct err *err);

/* --- the end --- */

void run_free(struct run *r)
{
    struct ev *ev = r->executor->settings.ev;

    linked_remove(r);
    run_output_free(r);
    ev_defer_clear(ev, &r->stop_defer);
    ev_defer_clear(ev, &r->end_defer);
    fair_queue_release(&r->slot);
    gather_free(r);
    code_report_free(r->report);
    files_free(r->files_job);
    exec_handle_free(r->exec);
    language_kernel_reset(&r->kernel);
    ephemeral_sandbox_end(&r->sandbox);
    sandbox_handle_free(r->sandbox.handle);
    spec_done(&r->spec);
    free(r->destinations);
    free(r);
}

void executor_free(struct executor *e)
{
    if (!e)
        return;
    teardown_done(e);
    for (struct run *r = e->runs, *next; r; r = next) {
        next = r->next;
        run_free(r);
    }
    fair_queue_done(&e->queue);
    result_cache_free(e->cache);
    free(e);
}

static void run_begin_teardown(void *arg)
{
    struct run *r = arg;

    files_free(take_ptr(&r->files_job));
    gather_free(r);
    run_output_free(r);
    teardown_add(r);
}

static void run_set_ended(struct run *r)
{
    execution_set_state(r->id, &r->state, EXECUTION_ENDED);
    language_kernel_close(&r->kernel);
}

/* No callback follows; the sandbox may be removed. */
static void run_finish(struct run *r)
{
    run_set_ended(r);
    ev_defer(r->executor->settings.ev, &r->end_defer, run_begin_teardown, r);
}

static void run_account(struct run *r)
{
    struct executor *e = r->executor;
    uint64_t took = r->ended_ns > r->dequeued_ns ? r->ended_ns - r->dequeued_ns : 0;
    struct ephemeral_run_usage use = { .receipt = r->has_receipt ? &r->receipt : NULL,
                                       .wall_ms = r->started_ns ? (r->ended_ns - r->started_ns) / NS_PER_MS : 0,
                                       .output_bytes = output_stream_kept(&r->stream),
                                       .failed = r->has_error };

    if (!r->dequeued_ns || r->sandbox.execution_counted || r->sandbox.state == EPHEMERAL_OVER)
        return;
    ephemeral_sandbox_count_execution(&r->sandbox, &use);
    histogram_add(&e->stats.runs, took);
    e->mean_run_ns = e->mean_run_ns ? (e->mean_run_ns * 15 + took) / 16 : took;
}

static void run_deliver_result(void *arg)
{
    struct run *r = arg;
    const struct run_ops *ops = r->ops;
    bool result = r->from_cache || r->has_receipt || r->is_answered_by_check;

    r->ops = NULL;
    r->ended_ns = ev_now(r->executor->settings.ev);
    if (r->has_error && !result)
        r->executor->stats.failed++;
    ephemeral_sandbox_release_quota(&r->sandbox); /* a client that has the result may start the next run */
    if (ops)
        ops->on_end(r->arg, result ? NULL : &r->error,
                    result ? &(struct run_result){ .id = r->id,
                                                   .json = &r->result_json,
                                                   .report = r->report,
                                                   .is_refused = r->is_answered_by_check && r->has_error,
                                                   .from_cache = r->from_cache,
                                                   .pool_result = r->sandbox.source.loan.result,
                                                   .recycled = r->sandbox.source.loan.uses > 0,
                                                   .queued_ns = r->dequeued_ns ? r->dequeued_ns - r->submitted_ns : 0 }
                           : NULL);
    if (r->has_cache_key && !r->from_cache && run_result_is_cacheable(r))
        result_cache_put(r->executor->cache, r->cache_key, &r->result_json, r->ended_ns / NS_PER_MS);
    run_account(r);
    run_finish(r);
}

static void run_set_failed(struct run *r, const struct err *err)
{
    r->has_error = true;
    r->has_receipt = false;
    if (err != &r->error)
        r->error = *err;
    str_strip_control_chars(r->error.msg);
    run_set_ended(r);
}

/* Reports the failure later: executor_run may not have returned yet. */
void run_fail(struct run *r, const struct err *err)
{
    if (r->state == EXECUTION_ENDED || run_replace_dead_sandbox(r, err))
        return;
    run_set_failed(r, err);
    ev_defer(r->executor->settings.ev, &r->end_defer, run_deliver_result, r);
}

void run_complete_with_result(struct run *r)
{
    if (r->state == EXECUTION_ENDED)
        return;
    run_write_result_json(r);
    run_set_ended(r);
    run_deliver_result(r);
}

void run_program_ended(struct run *r)
{
    if (r->request.outputs && r->request.outputs[0] && !r->has_error) {
        execution_set_state(r->id, &r->state, EXECUTION_GATHERING);
        gather_start(r);
    } else {
        run_complete_with_result(r);
    }
}

static void run_count_waiting(struct run *r)
{
    r->counted_waiting = true;
    r->executor->nwaiting++;
    ephemeral_sandbox_count_waiting(&r->sandbox, 1);
}

static void run_uncount_waiting(struct run *r)
{
    if (!r->counted_waiting)
        return;
    r->counted_waiting = false;
    r->executor->nwaiting--;
    ephemeral_sandbox_count_waiting(&r->sandbox, -1);
}

/* A run that was stopped may also be cancelled within the same turn of the loop. */
static void run_leave_queue(struct run *r)
{
    run_uncount_waiting(r);
    if (r->state == EXECUTION_WAITING)
        fair_queue_release(&r->slot);
}

void run_cancel(struct run *r)
{
    r->ops = NULL;
    r->executor->stats.cancelled++;
    if (r->state == EXECUTION_ENDED)
        return;
    run_leave_queue(r);
    r->ended_ns = ev_now(r->executor->settings.ev);
    run_account(r);
    run_finish(r);
}

void run_pause_output(struct run *r, bool hold)
{
    if (run_get_exec(r))
        exec_handle_hold_credit(run_get_exec(r), hold);
}

/* --- the program --- */

void run_report_started(struct run *r)
{
    if (r->request.streamed && !r->start_reported && r->ops && r->ops->on_started)
        r->ops->on_started(r->arg, r->id, sandbox_handle_id(r->sandbox.handle));
    r->start_reported = true;
}

void run_program_started(struct run *r)
{
    if (r->state != EXECUTION_STARTING)
        return;
    execution_set_state(r->id, &r->state, EXECUTION_RUNNING);
    r->started_ns = ev_now(r->executor->settings.ev);
    r->started_real_ns = clock_real_ns();
    if (!sandbox_source_is_pending(&r->sandbox.source))
        run_report_started(r);
}

/* --- the sandbox --- */

static void run_on_sandbox_ready(void *arg)
{
    struct run *r = arg;

    sandbox_source_finish(&r->sandbox.source, true);
    if (r->state == EXECUTION_RUNNING)
        run_report_started(r);
    if (r->state != EXECUTION_CREATING)
        return;
    execution_set_state(r->id, &r->state, EXECUTION_STAGING);
    run_stage_files(r);
}

static void run_on_sandbox_failed(void *arg, const struct err *err)
{
    struct run *r = arg;

    run_fail(r, err);
    sandbox_source_finish(&r->sandbox.source, false);
}

/* The end of the program was reported before; only output files may still be missing. */
static void run_on_sandbox_ended(void *arg, const struct err *why)
{
    struct run *r = arg;

    if (r->state == EXECUTION_ENDED)
        teardown_remove(r);
    else if (r->has_receipt)
        run_complete_with_result(r);
    else
        run_fail(r, why);
}

static void run_on_secret_used(void *arg, const char *name, const char *host, uint32_t count)
{
    const struct run *r = arg;
    const struct sandbox_source *s = &r->sandbox.source;

    sandbox_supply_secret_used(s->supply, s->tenant ? s->tenant : "", sandbox_handle_id(r->sandbox.handle), name, host,
                               count);
}

static const struct sandbox_handle_ops run_sandbox_ops = { .on_ready = run_on_sandbox_ready,
                                                           .on_failed = run_on_sandbox_failed,
                                                           .on_ended = run_on_sandbox_ended,
                                                           .on_secret_used = run_on_secret_used };

/* Replaces a pool member that died before it was claimed. */
static bool run_replace_dead_sandbox(struct run *r, const struct err *err)
{
    struct err why = { 0 };

    if (!sandbox_source_member_died(&r->sandbox.source, err) || r->stop_requested || !r->ops)
        return false;
    run_reset_program(r);
    r->has_error = false;
    execution_set_state(r->id, &r->state, EXECUTION_CREATING);
    r->executor->stats.by_pool_result[r->sandbox.source.loan.result]--;
    r->executor->stats.by_pool_result[POOL_MISS]++;
    if (ephemeral_sandbox_replace(&r->sandbox, &why) < 0)
        run_fail(r, &why);
    return true;
}

static void run_on_stop_deferred(void *arg)
{
    struct run *r = arg;

    if (r->state == EXECUTION_ENDED)
        return;
    if (r->has_receipt) {
        run_complete_with_result(r); /* without the files that are not collected yet */
    } else if (run_get_exec(r)) {
        exec_handle_kill(run_get_exec(r));
    } else {
        run_set_failed(r, &r->error);
        run_deliver_result(r);
    }
}

/* The tenant must stop. */
static void run_on_tenant_stop(void *arg, enum ended_by by, const struct err *why)
{
    struct run *r = arg;

    if (r->state == EXECUTION_ENDED || r->stop_requested)
        return;
    r->stop_requested = true;
    r->stop_cause = by;
    r->error = *why;
    run_leave_queue(r);
    ev_defer(r->executor->settings.ev, &r->stop_defer, run_on_stop_deferred, r);
}

/* The run has acquired its slot, or failed to. */
static void run_on_slot(void *arg, const struct err *failed)
{
    struct run *r = arg;
    struct executor *e = r->executor;
    struct err err = { 0 };

    run_uncount_waiting(r);
    r->dequeued_ns = ev_now(e->settings.ev);
    histogram_add(&e->stats.waits, r->dequeued_ns - r->submitted_ns);
    execution_set_state(r->id, &r->state, EXECUTION_CREATING);
    if (failed || ephemeral_sandbox_create(&r->sandbox, &r->spec, &run_sandbox_ops, r, &err) < 0) {
        run_fail(r, failed ? failed : &err);
        return;
    }
    e->stats.by_pool_result[r->sandbox.source.loan.result]++;
    /* EXEC does not wait for CLAIMED: nothing is staged, and a failed claim fails EXEC too. */
    if (r->request.nfiles == 0 && sandbox_handle_accepts_exec(r->sandbox.handle)) {
        execution_set_state(r->id, &r->state, EXECUTION_STAGING);
        run_stage_files(r);
    }
}

/* --- start --- */

static int run_admit(struct run *r, struct err *err)
{
    struct executor *e = r->executor;

    if (e->is_stopping)
        return err_set(err, ERR_BUSY, "the server is stopping; try again when it has restarted");
    if (!fair_queue_has_room(&e->queue) &&
        (e->nwaiting >= e->settings.waiting_max ||
         ephemeral_sandbox_waiting(&r->sandbox) >= (e->settings.waiting_max + 1) / 2)) {
        e->stats.refused++;
        return err_set(err, ERR_EXECUTOR_FULL,
                       "%" PRIu32 " executions are queued already, %" PRIu32 " of them of this tenant", e->nwaiting,
                       ephemeral_sandbox_waiting(&r->sandbox));
    }
    return ephemeral_sandbox_admit(&r->sandbox, err);
}

/* Takes a result from the cache; it is delivered at the end of this turn of the loop. */
static bool run_find_cached_result(struct run *r)
{
    struct executor *e = r->executor;
    const struct buf *known;

    if (!r->request.is_cacheable || !e->settings.cache_bytes || !result_cache_make_key(&r->request, r->cache_key))
        return false;
    r->has_cache_key = true;
    known = result_cache_get(e->cache, r->cache_key, ev_now(e->settings.ev) / NS_PER_MS);
    *(known ? &e->stats.cache_hits : &e->stats.cache_misses) += 1;
    if (!known)
        return false;
    buf_add(&r->result_json, known->data, known->len);
    r->from_cache = true;
    return true;
}

int executor_run(struct executor *e, const struct run_request *req, const struct run_ops *ops, void *arg,
                 struct run **ret, struct err *err)
{
    struct run *r = mem_new(struct run);

    r->executor = e;
    r->request = *req;
    r->ops = ops;
    r->arg = arg;
    r->submitted_ns = ev_now(e->settings.ev);
    run_output_init(r);
    linked_push(&e->runs, r);
    ephemeral_sandbox_init(&r->sandbox, e->settings.ephemerals, req->owner, req->created_by);
    r->sandbox.on_stop = run_on_tenant_stop;
    r->sandbox.arg = r;
    if (run_find_cached_result(r)) {
        r->spec = *req->spec;
        *req->spec = (struct spec){ 0 };
        run_set_ended(r);
        ev_defer(e->settings.ev, &r->end_defer, run_deliver_result, r);
    } else if (run_admit(r, err) < 0) {
        run_free(r);
        return -1;
    } else {
        id_new("ex", r->id);
        r->spec = *req->spec;
        *req->spec = (struct spec){ 0 };
        e->stats.started++;
        if (!fair_queue_has_room(&e->queue))
            run_count_waiting(r);
        fair_queue_acquire(&e->queue, ephemeral_sandbox_queue_line(&r->sandbox), &r->slot, run_on_slot, r);
    }
    r->request.spec = &r->spec;
    *ret = r;
    return 0;
}
