/* The end of an execution: one update of its row. Waiting clients are answered when the end is
 * safe: in the journal (end_journal.c), or otherwise committed. After the commit the runtime may
 * forget the execution (exec_handle_free confirms its end), and the manager frees it. */
#include "service/execution_internal.h"
#include "service/result.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "sandbox/limit_hits.h"

static void execution_commit_end(void *arg);

static void execution_on_end_committed(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution *ex = arg;
    struct sandbox *sb = ex->sandbox;
    bool uninserted = ex->end_journaled && ex->row != EXECUTION_ROW_COMMITTED;
    bool gone = err && ((err->id == ERR_MISSING && !uninserted) || err->id == ERR_EXISTS);

    ex->end_request = NULL;
    if (err && !gone) {
        log_error("cannot store the end of %s, will retry: %s", ex->id, err->msg);
        ev_timer_set(sb->services->ev, &ex->retry_timer, ev_now(sb->services->ev) + RETRY_NS, execution_commit_end, ex);
        return;
    }
    if (ex->end_journaled)
        end_journal_committed(sb->services->executions->end_journal);
    if (row)
        execution_notify_end(ex, row);
    if (ex->has_receipt && ex->exec && !ex->resume_stream && !sb->first_execution_id[0]) {
        memcpy(sb->first_execution_id, ex->id, sizeof(sb->first_execution_id));
        sb->first_exec = take_ptr(&ex->exec);
        sb->first_exec_ended_by = ex->ended_by;
        if (sb->is_destroyed)
            sandbox_commit_first_receipt(sb);
    }
    execution_free(ex);
}

static void execution_fill_ended_row(const struct execution *ex, struct store_execution *row)
{
    const struct output_stream *s = &ex->output.stream;

    *row = (struct store_execution){ .state = ex->end_state,
                                     .background = ex->background,
                                     .tty = ex->spec.tty,
                                     .created_ms = ex->created_ms,
                                     .started_ms = ex->started_ms,
                                     .ended_ms = ex->ended_ms,
                                     .has_exit_code = ex->has_receipt && ex->exit_code >= 0,
                                     .exit_code = ex->exit_code,
                                     .signal = ex->signal };
    memcpy(row->id, ex->id, sizeof(row->id));
    memcpy(row->sandbox, ex->sandbox->id, sizeof(row->sandbox));
    memcpy(row->owner, ex->sandbox->owner, sizeof(row->owner));
    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        row->dropped[i] = s->dropped[i] + s->lost[i];
        row->out_bytes[i] = s->kept[i] + row->dropped[i];
    }
    row->ended_by = ex->has_ended_by ? (char *)ended_by_name(ex->ended_by) : NULL;
    row->hint = ex->hint;
    row->context_reset = ex->has_receipt && ex->context_reset;
    row->receipt_json = ex->receipt_json;
    row->error_json = ex->error_json;
    memcpy(row->context, ex->context_id, sizeof(row->context));
    row->created_by = ex->created_by[0] ? (char *)ex->created_by : NULL;
    row->usage_cpu_us = ex->end_cpu_us;
    result_set_row_outcome(row);
}

static void execution_commit_end(void *arg)
{
    struct execution *ex = arg;
    struct store_execution row;

    if (ex->row == EXECUTION_ROW_NONE)
        execution_insert_row(ex);
    execution_fill_ended_row(ex, &row);
    ex->end_request = store_execution_update(ex->sandbox->services->store, ex->sandbox->owner, &row, EXECUTION_SET_ALL,
                                             &(struct store_condition){ .states = STORE_EXECUTION_LIVE },
                                             execution_on_end_committed, ex);
}

static void execution_append_end_event(struct execution *ex)
{
    auto_buf body = { 0 };

    enum outcome outcome = result_outcome(ex->has_ended_by ? ended_by_name(ex->ended_by) : NULL, ex->exit_code,
                                          ex->error_json != NULL);
    buf_addf(&body, "\"outcome\":\"%s\"", outcome_name(outcome));
    if (ex->has_ended_by)
        buf_addf(&body, ",\"endedBy\":\"%s\"", ended_by_name(ex->ended_by));
    sandbox_append_event(ex->sandbox, "execution_ended", ex->id, body.data);
}

static void execution_commit_end_and_event(struct execution *ex)
{
    execution_commit_end(ex);
    execution_append_end_event(ex);
}

void execution_unqueue_commit(struct execution *ex)
{
    if (!ex->pending_commit_link)
        return;
    *ex->pending_commit_link = ex->next_pending_commit;
    if (ex->next_pending_commit)
        ex->next_pending_commit->pending_commit_link = ex->pending_commit_link;
    else
        ex->sandbox->services->executions->pending_commits_last = ex->pending_commit_link;
    ex->pending_commit_link = NULL;
}

void executions_flush_acknowledged(struct executions *x)
{
    struct execution *ex;

    while ((ex = x->pending_commits)) {
        execution_unqueue_commit(ex);
        execution_commit_end_and_event(ex);
    }
}

void manager_flush_acknowledged_ends(struct manager *m)
{
    executions_flush_acknowledged(manager_sandbox_services(m)->executions);
}

static void executions_on_flush_deferred(void *arg)
{
    executions_flush_acknowledged(arg);
}

/* Queues the commit after the answer, so that the answer does not wait for copying the row. A later
 * request of a client flushes the queue first. */
static void execution_queue_commit(struct execution *ex)
{
    struct executions *x = ex->sandbox->services->executions;

    ex->next_pending_commit = NULL;
    ex->pending_commit_link = x->pending_commits_last;
    *x->pending_commits_last = ex;
    x->pending_commits_last = &ex->next_pending_commit;
}

/* Acknowledges the end before the commit, if a client waits and the end is in the journal. */
static bool execution_ack_before_commit(struct execution *ex)
{
    struct executions *x = ex->sandbox->services->executions;
    struct store_execution row;
    store_execution_fn *done = ex->done;

    if ((!done && !ex->watches) || (done && !ex->report_only_end))
        return false;
    execution_fill_ended_row(ex, &row);
    if (!end_journal_append(x->end_journal, &row))
        return false;
    ex->end_journaled = true;
    ex->done = NULL;
    execution_queue_commit(ex);
    if (done)
        done(ex->done_arg, NULL, &row);
    execution_notify_end(ex, &row);
    /* Only now: after the deferred answers of the callbacks above. */
    ev_defer(x->ev, &x->flush_defer, executions_on_flush_deferred, x);
    return true;
}

/* Whether the budget of its tenant ended the execution or its sandbox. */
static bool execution_was_over_budget(const struct execution *ex)
{
    const struct sandbox *sb = ex->sandbox;

    return ex->over_budget || (sb->state == SANDBOX_STATE_ENDING && sb->ended_by == ENDED_BUDGET);
}

static void execution_set_receipt(struct execution *ex, const struct receipt *r)
{
    struct buf out = { 0 };
    struct jsonw w;

    struct receipt receipt = *r;

    char hint[HINT_MAX];

    if (receipt.ended_by == ENDED_KILLED && execution_was_over_budget(ex))
        receipt.ended_by = ENDED_BUDGET;
    if (failure_hint_write(&ex->failure, ex->context_id[0] ? HINT_CONTEXT : HINT_PROCESS, &receipt,
                           ex->sandbox->services->executions->modules, ev_now(ex->sandbox->services->ev), hint))
        receipt.hint = ex->hint = str_dup(hint);
    ex->context_reset = receipt.context_reset;
    failure_done(&ex->failure);
    r = &receipt;
    jsonw_init(&w, &out, 0);
    receipt_json(r, &w);
    ex->receipt_json = out.data;
    ex->has_receipt = true;
    ex->exit_code = r->exit_code;
    ex->signal = r->signal;
    ex->ended_by = r->ended_by;
    ex->has_ended_by = true;
    for (int i = 0; i < 2 && ex->exec; i++)
        ex->output.stream.dropped[i] = exec_handle_dropped_bytes(ex->exec, i + 1);
}

static void executions_count_network(struct executions *x, const char *owner, const struct receipt *r)
{
    struct manager_stats *s = x->stats;

    s->egress_connections += r->egress.connections;
    s->egress_refused += r->egress.refused;
    s->egress_failed += r->egress.failed;
    s->egress_received_bytes += r->egress.received_bytes;
    s->egress_sent_bytes += r->egress.sent_bytes;
    if (r->egress.refused > 0 && x->on_refused_destinations)
        x->on_refused_destinations(x->on_denials_arg, owner, r);
}

void executions_count_receipt(struct executions *x, const char *owner, const struct receipt *r)
{
    struct manager_stats *s = x->stats;
    struct limit_hit met[LIMIT_COUNT];
    size_t n = limit_hits_list(r, met);

    s->with_receipt++;
    s->wall_ns += r->wall_ns.why ? 0 : r->wall_ns.v;
    s->cpu_ns += r->cpu_ns.why ? 0 : r->cpu_ns.v;
    for (size_t i = 0; i < n; i++)
        s->limit_hits[met[i].limit]++;
    executions_count_network(x, owner, r);
}

void executions_count_denials(struct executions *x, const char *owner, const struct receipt *r)
{
    if (r->denials_why)
        return;
    for (size_t i = 0; i < r->ndenials; i++)
        x->stats->denied_syscalls += r->denials[i].count;
    x->stats->denied_syscalls += r->denials_more;
    if (x->on_denials)
        x->on_denials(x->on_denials_arg, owner, r);
}

void execution_end(struct execution *ex, enum store_execution_state state, const struct receipt *r,
                   const struct err *why)
{
    struct executions *x = ex->sandbox->services->executions;

    if (ex->state == EXECUTION_ENDED)
        return;
    fair_queue_release(&ex->start_slot);
    if (!ex->exec && !ex->context_id[0] && ex->row == EXECUTION_ROW_NONE) { /* only its caller knows it */
        if (ex->done)
            ex->done(ex->done_arg, why, NULL);
        execution_free(ex);
        return;
    }
    execution_set_state(ex->id, &ex->state, EXECUTION_ENDED);
    ex->sandbox->nuncommitted++;
    ex->end_state = state;
    ex->ended_ms = clock_real_ms();
    ex->end_cpu_us = sandbox_read_cpu_us(ex->sandbox);
    budget_execution_end(ex->sandbox->services->budgets, ex->sandbox->quota);
    output_close(ex);
    if (r) {
        execution_set_receipt(ex, r);
        executions_count_receipt(x, ex->sandbox->owner, r);
        executions_count_denials(x, ex->sandbox->owner, r);
    }
    if (why)
        ex->error_json = result_error_json(why);
    if (why && why->id == ERR_LOST && !r) {
        ex->ended_by = ENDED_LOST;
        ex->has_ended_by = true;
    }
    if (state == STORE_EXECUTION_FAILED)
        x->stats->executions_failed++;
    if (ex->has_ended_by)
        x->stats->executions_ended[ex->ended_by]++;
    execution_input_end(ex);
    if (!execution_ack_before_commit(ex))
        execution_commit_end_and_event(ex);
}

/* --- the executions of a sandbox --- */

void sandbox_end_executions(struct sandbox *sb)
{
    for (struct execution *ex = sb->executions, *next; ex; ex = next) {
        next = ex->next;
        if (ex->state == EXECUTION_ENDED)
            continue;
        ex->ended_by = sb->ended_by;
        ex->has_ended_by = true;
        execution_end(ex, STORE_EXECUTION_FAILED, NULL, &sb->end_error);
    }
}

void sandbox_fail_execution_callers(struct sandbox *sb, const struct err *why)
{
    for (struct execution *ex = sb->executions; ex; ex = ex->next) {
        store_execution_fn *done = ex->done;

        ex->done = NULL;
        if (done)
            done(ex->done_arg, why, NULL);
    }
}

void sandbox_kill_executions_over_budget(struct sandbox *sb)
{
    for (struct execution *ex = sb->executions; ex; ex = ex->next)
        if ((ex->exec || ex->running_context) && ex->state != EXECUTION_ENDED && !ex->over_budget) {
            ex->over_budget = true;
            execution_kill(ex);
        }
}

const char *sandbox_cpu_user(const struct sandbox *sb)
{
    return sb->executions && !sb->executions->next ? sb->executions->created_by : "";
}

void sandbox_free_executions(struct sandbox *sb)
{
    while (sb->executions)
        execution_free(sb->executions);
}
