/* The end of an execution: one update with everything in it. Who waits for it is told when it is safe: noted (ends.c),
 * or else committed. When it is committed, the sandbox may forget the execution (exec_free confirms its last word), and
 * so do we. */
#include "sandbox/inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "engine/met.h"

static void store_end(void *arg);

static void on_end_stored(void *arg, const struct err *err, const struct store_execution *row)
{
    struct ex *ex = arg;
    struct sb *sb = ex->sb;
    bool gone = err && (err->id == ERR_MISSING || err->id == ERR_EXISTS);

    ex->ending = NULL;
    if (err && (!gone || (ex->noted && !ex->inserted))) {
        log_error("the end of %s is not written down yet: %s", ex->id, err->msg);
        ev_timer_set(sb->m->ev, &ex->retry, ev_now(sb->m->ev) + RETRY_NS, store_end, ex);
        return;
    }
    if (ex->noted)
        ends_stored(sb->m);
    if (row)
        ex_tell_end(ex, row);
    if (ex->has_receipt && ex->exec && !ex->stream && !sb->first_id[0]) {
        memcpy(sb->first_id, ex->id, sizeof(sb->first_id));
        sb->first = take_ptr(&ex->exec);
    }
    ex_free(ex);
}

static void ended_row(const struct ex *ex, struct store_execution *row)
{
    *row = (struct store_execution){ .state = ex->end_state,
                                     .background = ex->background,
                                     .created_ms = ex->created_ms,
                                     .started_ms = ex->started_ms,
                                     .ended_ms = ex->ended_ms,
                                     .has_exit_code = ex->has_receipt && ex->exit_code >= 0,
                                     .exit_code = ex->exit_code,
                                     .signal = ex->signal };
    memcpy(row->id, ex->id, sizeof(row->id));
    memcpy(row->sandbox, ex->sb->id, sizeof(row->sandbox));
    memcpy(row->owner, ex->sb->owner, sizeof(row->owner));
    for (int i = 0; i < 3; i++) {
        row->out_bytes[i] = ex->len[i] + ex->dropped[i];
        row->dropped[i] = ex->dropped[i];
    }
    row->ended_by = ex->has_ended_by ? (char *)ended_by_name(ex->ended_by) : NULL;
    row->receipt_json = ex->receipt_json;
    row->error_json = ex->error_json;
    row->request_json = ex_told_request(ex);
    row->created_by = ex->created_by[0] ? (char *)ex->created_by : NULL;
    row->usage_cpu_us = ex->end_cpu_us;
}

static void store_end(void *arg)
{
    struct ex *ex = arg;
    struct store_execution row;

    if (!ex->submitted)
        ex_insert(ex);
    ended_row(ex, &row);
    ex->ending = store_execution_update(ex->sb->m->store, ex->sb->owner, &row, EX_SET_ALL,
                                        &(struct store_when){ .states = STORE_EX_LIVE }, on_end_stored, ex);
}

static void end_event(struct ex *ex)
{
    auto_buf body = { 0 };

    buf_addf(&body, "\"state\":\"%s\"", ex->end_state == STORE_EX_ENDED ? "ended" : "failed");
    if (ex->has_ended_by)
        buf_addf(&body, ",\"endedBy\":\"%s\"", ended_by_name(ex->ended_by));
    sb_event(ex->sb, "execution_ended", ex->id, body.data);
}

static void write_down(struct ex *ex)
{
    store_end(ex);
    end_event(ex);
}

void ex_not_told(struct ex *ex)
{
    if (!ex->told_at)
        return;
    *ex->told_at = ex->next_told;
    if (ex->next_told)
        ex->next_told->told_at = ex->told_at;
    else
        ex->sb->m->told_last = ex->told_at;
    ex->told_at = NULL;
}

void manager_settle(struct manager *m)
{
    struct ex *ex;

    while ((ex = m->told)) {
        ex_not_told(ex);
        write_down(ex);
    }
}

static void on_settle(void *arg)
{
    manager_settle(arg);
}

/* Behind the answer, which need not wait for the copying of the row. Whoever asks sooner than that settles first. */
static void write_down_later(struct ex *ex)
{
    struct manager *m = ex->sb->m;

    ex->next_told = NULL;
    ex->told_at = m->told_last;
    *m->told_last = ex;
    m->told_last = &ex->next_told;
}

/* Before the commit, if somebody waits and it can be made safe. */
static bool tell_early(struct ex *ex)
{
    struct manager *m = ex->sb->m;
    struct store_execution row;
    store_execution_fn *done = ex->done;

    if ((!done && !ex->watches) || (done && !ex->at_end))
        return false;
    ended_row(ex, &row);
    if (!ends_note(m, &row))
        return false;
    ex->noted = true;
    ex->done = NULL;
    write_down_later(ex);
    if (done)
        done(ex->done_arg, NULL, &row);
    ex_tell_end(ex, &row);
    ev_defer(m->ev, &m->settle, on_settle, m); /* only now: behind what they put off, which is to answer */
    return true;
}

static void take_receipt(struct ex *ex, const struct receipt *r)
{
    struct buf out = { 0 };
    struct jsonw w;

    struct receipt told = *r;

    if (ex->over_budget && told.ended_by == ENDED_KILLED)
        told.ended_by = ENDED_BUDGET;
    r = &told;
    jsonw_init(&w, &out, 0);
    receipt_json(r, &w);
    ex->receipt_json = out.data;
    ex->has_receipt = true;
    ex->exit_code = r->exit_code;
    ex->signal = r->signal;
    ex->ended_by = r->ended_by;
    ex->has_ended_by = true;
    for (int i = 0; i < 2 && ex->exec; i++)
        ex->dropped[i] = exec_dropped(ex->exec, i + 1);
}

void stats_count(struct manager_stats *s, const struct receipt *r)
{
    struct met met[LIMIT_COUNT];
    size_t n = met_list(r, met);

    s->measured++;
    s->wall_ns += r->wall_ns.why ? 0 : r->wall_ns.v;
    s->cpu_ns += r->cpu_ns.why ? 0 : r->cpu_ns.v;
    for (size_t i = 0; i < n; i++)
        s->limits_met[met[i].limit]++;
}

void refusals_count(struct manager *m, const char *owner, const struct receipt *r)
{
    if (r->denials_why)
        return;
    for (size_t i = 0; i < r->ndenials; i++)
        m->stats.refused_calls += r->denials[i].count;
    m->stats.refused_calls += r->denials_more;
    if (m->set.on_refused)
        m->set.on_refused(m->set.arg, owner, r);
}

void ex_end(struct ex *ex, enum store_execution_state state, const struct receipt *r, const struct err *why)
{
    struct manager *m = ex->sb->m;

    if (ex->ended)
        return;
    turn_end(&ex->turn);
    if (!ex->exec && !ex->submitted) { /* nobody knows of it but the one who asked */
        if (ex->done)
            ex->done(ex->done_arg, why, NULL);
        ex_free(ex);
        return;
    }
    ex->ended = true;
    ex->end_state = state;
    ex->ended_ms = now_ms();
    ex->end_cpu_us = meter_read(ex->sb);
    budget_execution(ex->sb);
    output_close(ex);
    if (r) {
        take_receipt(ex, r);
        stats_count(&m->stats, r);
        refusals_count(m, ex->sb->owner, r);
    }
    if (why)
        ex->error_json = why_json(why);
    if (why && why->id == ERR_LOST && !r) {
        ex->ended_by = ENDED_LOST;
        ex->has_ended_by = true;
    }
    for (int i = 0; i < 3; i++)
        ex->dropped[i] += ex->lost[i];
    if (state == STORE_EX_FAILED)
        m->stats.executions_failed++;
    if (ex->has_ended_by)
        m->stats.executions_ended[ex->ended_by]++;
    input_over(ex);
    if (!tell_early(ex))
        write_down(ex);
}
