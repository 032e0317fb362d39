/* A line is in the rotation exactly while it is not empty, so the next request is the head of the
 * first line, whatever the number of tenants.
 *
 * A slot that is held forever would block all other requests, and whether it is released may depend
 * on a sandbox that its owner controls. So a slot is a lease: after max_hold_ns the next request
 * starts as well.
 *
 * Slots are assigned at the end of the loop's turn and not in fair_queue_release: a started request
 * may fail immediately and release its slot, and a thousand of these must not recurse. */
#include "core/ev/fair_queue.h"

#include "core/base/clock.h"

#include <assert.h>

static void fair_queue_pump(void *arg);

void fair_queue_init(struct fair_queue *t, struct ev *ev, unsigned max, uint64_t wait_ns, uint64_t keep_ns)
{
    *t = (struct fair_queue){ .ev = ev, .max = max, .max_wait_ns = wait_ns, .max_hold_ns = keep_ns };
}

void fair_queue_done(struct fair_queue *t)
{
    if (t->ev)
        ev_defer_clear(t->ev, &t->pump_defer);
}

bool fair_queue_has_room(const struct fair_queue *t)
{
    return t->held < t->max && !t->first;
}

bool fair_queue_is_busy(const struct fair_queue *t)
{
    return t->first || t->held * 2 > t->max;
}

static void fair_queue_on_hold_expired(void *arg)
{
    fair_queue_release(arg);
}

static void fair_queue_grant(struct fair_queue_slot *turn)
{
    struct fair_queue *t = turn->queue;

    t->held++;
    ev_timer_set(t->ev, &turn->timer, ev_now(t->ev) + t->max_hold_ns, fair_queue_on_hold_expired, turn);
    turn->on_acquired(turn->arg, NULL);
}

/* Removes a line from the rotation; linear in the number of waiting tenants. */
static void fair_queue_unlink_line(struct fair_queue *t, struct fair_queue_line *line)
{
    struct fair_queue_line *before = NULL;

    for (struct fair_queue_line *l = t->first; l != line; l = l->next)
        before = l;
    *(before ? &before->next : &t->first) = line->next;
    if (t->last == line)
        t->last = before;
    line->next = NULL;
}

static void fair_queue_append_line(struct fair_queue *t, struct fair_queue_line *line)
{
    line->next = NULL;
    *(t->last ? &t->last->next : &t->first) = line;
    t->last = line;
}

static void fair_queue_leave_line(struct fair_queue_slot *turn)
{
    struct fair_queue_line *line = turn->line;
    struct fair_queue_slot *before = NULL;

    for (struct fair_queue_slot *at = line->first; at != turn; at = at->next)
        before = at;
    *(before ? &before->next : &line->first) = turn->next;
    if (line->last == turn)
        line->last = before;
    turn->next = NULL;
    turn->is_waiting = false;
    if (!line->first)
        fair_queue_unlink_line(turn->queue, line);
}

static void fair_queue_on_wait_expired(void *arg)
{
    struct fair_queue_slot *turn = arg;
    struct fair_queue *t = turn->queue;
    struct err err;

    fair_queue_leave_line(turn);
    turn->queue = NULL;
    err_set(&err, ERR_BUSY, "the server is busy: the request waited for %llu s; try again later",
            (unsigned long long)(t->max_wait_ns / NS_PER_S));
    turn->on_acquired(turn->arg, &err);
}

void fair_queue_acquire(struct fair_queue *t, struct fair_queue_line *line, struct fair_queue_slot *turn,
                        void (*fn)(void *arg, const struct err *err), void *arg)
{
    bool at_once = fair_queue_has_room(t);

    *turn = (struct fair_queue_slot){ .queue = t, .line = line, .on_acquired = fn, .arg = arg, .is_waiting = !at_once };
    if (at_once) {
        fair_queue_grant(turn);
        return;
    }
    if (!line->first)
        fair_queue_append_line(t, line);
    *(line->last ? &line->last->next : &line->first) = turn;
    line->last = turn;
    ev_timer_set(t->ev, &turn->timer, ev_now(t->ev) + t->max_wait_ns, fair_queue_on_wait_expired, turn);
}

static void fair_queue_pump(void *arg)
{
    struct fair_queue *t = arg;

    while (t->first && t->held < t->max) {
        struct fair_queue_line *line = t->first;
        struct fair_queue_slot *turn = line->first;

        assert(turn);                /* otherwise the line would not be in the rotation */
        fair_queue_leave_line(turn); /* the head of the first line */
        if (line->first) {
            fair_queue_unlink_line(t, line);
            fair_queue_append_line(t, line);
        }
        fair_queue_grant(turn);
    }
}

void fair_queue_release(struct fair_queue_slot *turn)
{
    struct fair_queue *t = turn->queue;

    if (!t)
        return;
    ev_timer_clear(t->ev, &turn->timer);
    if (turn->is_waiting) {
        fair_queue_leave_line(turn);
    } else {
        t->held--;
        if (t->first && !t->pump_defer.on)
            ev_defer(t->ev, &t->pump_defer, fair_queue_pump, t);
    }
    turn->queue = NULL;
}
