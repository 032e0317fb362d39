/* One run: WAITING -> MAKING -> STAGING -> STARTING -> RUNNING -> GATHERING -> OVER.
 *
 * The answer is given as soon as everything that it tells is here; the sandbox goes behind it, and the run with it. So
 * between the program's end and the answer nothing is written, nothing is waited for, and nothing is asked of the
 * jailer.
 *
 * Invariants:
 * 1. on_end is called once, never inside executor_run, and never after run_cancel.
 * 2. A run has a place (turn) from MAKING until its sandbox is gone, or stands in line to go (graves.c).
 * 3. What is kept of all runs is at most set.output_bytes, whatever the programs write: past it, output is dropped, and
 *    that is told. Half of it is divided among the places, so what others write costs nobody the first of their own.
 * 4. Until its sandbox is ready nothing of a run has happened, and nothing is told of it. So a member of a pool that
 *    turns out to be dead is replaced, once, and nobody learns of it. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>

/* --- what is held of it --- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What every place can count on. */
static uint64_t own_share(const struct executor *e)
{
    return e->set.output_bytes / 2 / e->set.running_max;
}

static size_t room(const struct run *r)
{
    const struct executor *e = r->e;
    uint64_t mine = less(r->req.output_max, r->kept);
    uint64_t all = less(own_share(e), r->kept) + less(e->set.output_bytes / 2, e->held_extra);

    return (size_t)(r->req.streamed ? mine : min_u64(mine, all));
}

static void hold(struct run *r, uint64_t kept)
{
    struct executor *e = r->e;

    if (!r->req.streamed) {
        e->held_extra -= less(r->kept, own_share(e));
        e->held_extra += less(kept, own_share(e));
        e->stats.held_bytes += kept - r->kept;
    }
    r->kept = kept;
}

static bool begin_again(struct run *r, const struct err *err);

/* --- its end --- */

static void drop_output(struct run *r)
{
    hold(r, 0);
    buf_done(&r->line);
    buf_done(&r->out[0]);
    buf_done(&r->out[1]);
    buf_done(&r->events);
    buf_done(&r->exception);
    buf_done(&r->body);
}

void run_free(struct run *r)
{
    struct ev *ev = r->e->set.ev;

    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    drop_output(r);
    ev_timer_clear(ev, &r->clock);
    ev_defer_clear(ev, &r->stopping);
    ev_defer_clear(ev, &r->end);
    turn_end(&r->turn);
    gather_free(r);
    files_free(r->job);
    exec_free(r->exec);
    guest_ready(&r->guest, &r->spec, false);
    guest_end(&r->guest);
    box_free(r->guest.box);
    kevent_reset(&r->in);
    spec_done(&r->spec);
    free(r);
}

void executor_free(struct executor *e)
{
    if (!e)
        return;
    graves_done(e);
    for (struct run *r = e->runs, *next; r; r = next) {
        next = r->next;
        run_free(r);
    }
    turns_done(&e->turns);
    cache_free(e->cache);
    free(e);
}

static void bury(void *arg)
{
    struct run *r = arg;

    files_free(take_ptr(&r->job));
    gather_free(r);
    drop_output(r);
    graves_add(r);
}

/* Nothing more is told of it, and its sandbox may go. */
static void over(struct run *r)
{
    r->state = RUN_OVER;
    ev_timer_clear(r->e->set.ev, &r->clock);
    ev_defer(r->e->set.ev, &r->end, bury, r);
}

static unsigned bucket(uint64_t ns)
{
    uint64_t ms = ns / NS_PER_MS;
    unsigned i = 0;

    while (i < RUN_BUCKETS - 1 && ms >= UINT64_C(1) << i)
        i++;
    return i;
}

static void count(struct run *r)
{
    struct executor *e = r->e;
    uint64_t took = r->ended_ns > r->begun_ns ? r->ended_ns - r->begun_ns : 0;
    struct guest_use use = { .receipt = r->has_receipt ? &r->receipt : NULL,
                             .wall_ms = r->started_ns ? (r->ended_ns - r->started_ns) / NS_PER_MS : 0,
                             .output_bytes = r->kept,
                             .failed = r->has_why };

    if (!r->begun_ns || r->guest.ran || !r->guest.at)
        return;
    guest_ran(&r->guest, &use);
    e->stats.run_ns += took;
    e->stats.runs[bucket(took)]++;
    e->mean_ns = e->mean_ns ? (e->mean_ns * 15 + took) / 16 : took;
}

static void deliver(void *arg)
{
    struct run *r = arg;
    const struct run_ops *ops = r->ops;
    bool result = r->cached || r->has_receipt;

    r->ops = NULL;
    r->ended_ns = ev_now(r->e->set.ev);
    if (r->has_why && !result)
        r->e->stats.failed++;
    guest_over(&r->guest); /* whoever hears of its end may have the next one */
    if (ops)
        ops->on_end(r->arg, result ? NULL : &r->why,
                    result ? &(struct run_result){ .id = r->id,
                                                   .body = &r->body,
                                                   .cached = r->cached,
                                                   .found = r->guest.loan.found,
                                                   .recycled = r->guest.loan.uses > 0,
                                                   .queued_ns = r->begun_ns ? r->begun_ns - r->asked_ns : 0 }
                           : NULL);
    if (r->keyed && !r->cached && answer_is_good(r))
        cache_put(r->e->cache, r->key, &r->body, r->ended_ns / NS_PER_MS);
    count(r);
    over(r);
}

static void tell(struct run *r)
{
    r->state = RUN_OVER;
    ev_timer_clear(r->e->set.ev, &r->clock);
    if (r->young)
        ev_defer(r->e->set.ev, &r->end, deliver, r);
    else
        deliver(r);
}

void run_fail(struct run *r, const struct err *err)
{
    if (r->state == RUN_OVER || begin_again(r, err))
        return;
    r->has_why = true;
    r->has_receipt = false;
    if (err != &r->why)
        r->why = *err;
    str_tame(r->why.msg);
    tell(r);
}

void run_told(struct run *r)
{
    if (r->state == RUN_OVER)
        return;
    answer_body(r);
    tell(r);
}

void run_ended(struct run *r)
{
    ev_timer_clear(r->e->set.ev, &r->clock);
    if (r->req.outputs && r->req.outputs[0] && !r->has_why) {
        r->state = RUN_GATHERING;
        gather_begin(r);
    } else {
        run_told(r);
    }
}

static void dequeued(struct run *r)
{
    if (r->queued)
        guest_wait(&r->guest, -1);
    r->queued = false;
}

/* Whoever is stopped may be let go of as well before the turn is over. */
static void leave_queue(struct run *r)
{
    dequeued(r);
    if (r->state == RUN_WAITING)
        turn_end(&r->turn);
}

void run_cancel(struct run *r)
{
    r->ops = NULL;
    r->e->stats.cancelled++;
    if (r->state == RUN_OVER)
        return;
    leave_queue(r);
    r->ended_ns = ev_now(r->e->set.ev);
    count(r);
    over(r);
}

void run_hold(struct run *r, bool hold)
{
    if (r->exec)
        exec_hold(r->exec, hold);
}

/* --- what it writes --- */

static void keep(struct run *r, uint64_t n)
{
    hold(r, r->kept + n);
}

void run_output(struct run *r, int channel, const void *data, size_t len)
{
    size_t n = min_size(len, room(r));

    r->produced[channel - 1] += len;
    r->dropped[channel - 1] += len - n;
    if (n == 0)
        return;
    keep(r, n);
    if (!r->req.streamed)
        buf_add(&r->out[channel - 1], data, n);
    else if (r->ops && r->ops->on_output)
        r->ops->on_output(r->arg, channel, data, n);
}

static const char *type_of(const struct kevent *e)
{
    return e->kind == KEVENT_DISPLAY ? "display" : e->kind == KEVENT_RESULT ? "result" : "exception";
}

void run_event(struct run *r, const struct kevent *e)
{
    auto_buf line = { 0 };

    kevent_json(e, &line);
    if (line.len > room(r)) {
        r->events_dropped++;
        return;
    }
    keep(r, line.len);
    if (r->req.streamed) {
        if (r->ops && r->ops->on_event)
            r->ops->on_event(r->arg, type_of(e), &line);
        return;
    }
    struct buf *to = e->kind == KEVENT_ERROR ? &r->exception : &r->events;
    if (to == &r->exception)
        buf_clear(to);
    else if (to->len)
        buf_adds(to, ",");
    buf_add(to, line.data, line.len);
}

static void tell_started(struct run *r)
{
    if (r->req.streamed && !r->told && r->ops && r->ops->on_started)
        r->ops->on_started(r->arg, r->id, box_id(r->guest.box));
    r->told = true;
}

void run_started(struct run *r)
{
    if (r->state != RUN_STARTING)
        return;
    r->state = RUN_RUNNING;
    r->started_ns = ev_now(r->e->set.ev);
    r->started_real_ns = clock_real_ns();
    if (!r->guest.claiming)
        tell_started(r);
}

/* --- its sandbox --- */

static void on_ready(void *arg)
{
    struct run *r = arg;

    bool claimed = r->guest.claiming;

    guest_ready(&r->guest, &r->spec, true);
    if (claimed && r->state == RUN_RUNNING)
        tell_started(r);
    if (r->state != RUN_MAKING)
        return;
    r->state = RUN_STAGING;
    start_stage(r);
}

static void on_failed(void *arg, const struct err *err)
{
    struct run *r = arg;

    run_fail(r, err);
    guest_ready(&r->guest, &r->spec, false);
}

/* Its program was told of it before: what is left are files that come no more. */
static void on_ended(void *arg, const struct err *why)
{
    struct run *r = arg;

    if (r->state == RUN_OVER)
        graves_gone(r);
    else if (r->has_receipt)
        run_told(r);
    else
        run_fail(r, why);
}

static const struct box_ops box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };

/* Its sandbox was dead before it was anybody's. */
static bool begin_again(struct run *r, const struct err *err)
{
    struct err why = { 0 };

    if (err->id != ERR_LOST || !r->guest.pooled || !r->guest.claiming || r->stopped || !r->ops)
        return false;
    ev_timer_clear(r->e->set.ev, &r->clock);
    start_reset(r);
    r->has_why = false;
    r->state = RUN_MAKING;
    r->e->stats.found[r->guest.loan.found]--;
    r->e->stats.found[POOL_MISS]++;
    if (guest_again(&r->guest, &r->spec, &box_ops, r, &why) < 0)
        run_fail(r, &why);
    return true;
}

static void on_stopped(void *arg)
{
    struct run *r = arg;

    if (r->state == RUN_OVER)
        return;
    if (r->has_receipt)
        run_told(r); /* without what files there are still to come */
    else if (r->exec)
        exec_kill(r->exec);
    else
        run_fail(r, &r->why);
}

/* Its tenant may not go on. */
static void stop(void *arg, enum ended_by by, const struct err *why)
{
    struct run *r = arg;

    if (r->state == RUN_OVER || r->stopped)
        return;
    r->stopped = true;
    r->stop_by = by;
    r->why = *why;
    leave_queue(r);
    ev_defer(r->e->set.ev, &r->stopping, on_stopped, r);
}

/* Its turn has come, or will not. */
static void on_turn(void *arg, const struct err *failed)
{
    struct run *r = arg;
    struct executor *e = r->e;
    struct err err = { 0 };

    dequeued(r);
    r->begun_ns = ev_now(e->set.ev);
    e->stats.wait_ns += r->begun_ns - r->asked_ns;
    e->stats.waits[bucket(r->begun_ns - r->asked_ns)]++;
    r->state = RUN_MAKING;
    if (failed || guest_begin(&r->guest, &r->spec, &box_ops, r, &err) < 0) {
        run_fail(r, failed ? failed : &err);
        return;
    }
    e->stats.found[r->guest.loan.found]++;
    if (r->req.nfiles == 0 && box_takes_exec(r->guest.box)) { /* nobody waits for what cannot be otherwise */
        r->state = RUN_STAGING;
        start_stage(r);
    }
}

/* --- its beginning --- */

static int admit(struct run *r, struct err *err)
{
    struct executor *e = r->e;
    uint64_t waiting = 0;

    if (e->finished)
        return err_set(err, ERR_BUSY, "the server is being stopped");
    if (!turns_free(&e->turns)) {
        for (const struct run *o = e->runs; o; o = o->next)
            waiting += o->state == RUN_WAITING && !o->cached;
        if (waiting >= e->set.waiting_max || guest_waiting(&r->guest) >= (e->set.waiting_max + 1) / 2) {
            e->stats.refused++;
            return err_set(err, ERR_EXECUTOR_FULL,
                           "%" PRIu64 " executions wait already, %" PRIu32 " of them of this tenant", waiting,
                           guest_waiting(&r->guest));
        }
    }
    return guest_admit(&r->guest, err);
}

/* A kept answer, which is told at the end of this turn. */
static bool find_kept(struct run *r)
{
    struct executor *e = r->e;
    const struct buf *known;

    if (!r->req.pure || !e->set.cache_bytes || !cache_key(&r->req, r->key))
        return false;
    r->keyed = true;
    known = cache_get(e->cache, r->key, ev_now(e->set.ev) / NS_PER_MS);
    *(known ? &e->stats.cache_hits : &e->stats.cache_misses) += 1;
    if (!known)
        return false;
    buf_add(&r->body, known->data, known->len);
    r->cached = true;
    return true;
}

int executor_run(struct executor *e, const struct run_request *req, const struct run_ops *ops, void *arg,
                 struct run **ret, struct err *err)
{
    struct run *r = mem_new(struct run);

    r->e = e;
    r->req = *req;
    r->ops = ops;
    r->arg = arg;
    r->young = true;
    r->asked_ns = ev_now(e->set.ev);
    r->next = e->runs;
    r->at = &e->runs;
    if (r->next)
        r->next->at = &r->next;
    e->runs = r;
    guest_init(&r->guest, e->set.manager, req->owner, req->created_by);
    r->guest.stop = stop;
    r->guest.arg = r;
    if (find_kept(r)) {
        r->spec = *req->spec;
        *req->spec = (struct spec){ 0 };
        tell(r);
    } else if (admit(r, err) < 0) {
        run_free(r);
        return -1;
    } else {
        id_new("ex", r->id);
        r->spec = *req->spec;
        *req->spec = (struct spec){ 0 };
        e->stats.started++;
        r->queued = !turns_free(&e->turns);
        if (r->queued)
            guest_wait(&r->guest, 1);
        turns_ask(&e->turns, guest_line(&r->guest), &r->turn, on_turn, r);
    }
    r->req.spec = &r->spec;
    r->young = false;
    *ret = r;
    return 0;
}
