/* A line is in the round exactly while somebody stands in it, so taking the next is taking the head of the round and
 * the head of its line, whatever the number of tenants.
 *
 * A place that is kept for ever would shut out everybody else, and whether it is given back may depend on a sandbox
 * that its owner controls. So it is lent for a time: after it, the next one begins as well.
 *
 * Places are filled from the end of the loop's turn and not from turn_end: what is begun may fail at once and give its
 * place back, and a thousand of these must not stand on the stack on top of each other. */
#include "sandbox/turns.h"

#include "base/clock.h"

#include <assert.h>

static void pump(void *arg);

void turns_init(struct turns *t, struct ev *ev, unsigned max, uint64_t wait_ns, uint64_t keep_ns)
{
    *t = (struct turns){ .ev = ev, .max = max, .wait_ns = wait_ns, .keep_ns = keep_ns };
}

void turns_done(struct turns *t)
{
    if (t->ev)
        ev_defer_clear(t->ev, &t->pump);
}

bool turns_free(const struct turns *t)
{
    return t->under_way < t->max && !t->first;
}

bool turns_crowded(const struct turns *t)
{
    return t->first || t->under_way * 2 > t->max;
}

static void on_kept_too_long(void *arg)
{
    turn_end(arg);
}

static void begin(struct turn *turn)
{
    struct turns *t = turn->turns;

    t->under_way++;
    ev_timer_set(t->ev, &turn->timer, ev_now(t->ev) + t->keep_ns, on_kept_too_long, turn);
    turn->fn(turn->arg, NULL);
}

/* Out of the round, which has n lines: as many as there are tenants that wait. */
static void leave_round(struct turns *t, struct turn_line *line)
{
    struct turn_line *before = NULL;

    for (struct turn_line *l = t->first; l != line; l = l->next)
        before = l;
    *(before ? &before->next : &t->first) = line->next;
    if (t->last == line)
        t->last = before;
    line->next = NULL;
}

static void join_round(struct turns *t, struct turn_line *line)
{
    line->next = NULL;
    *(t->last ? &t->last->next : &t->first) = line;
    t->last = line;
}

static void leave_line(struct turn *turn)
{
    struct turn_line *line = turn->line;
    struct turn *before = NULL;

    for (struct turn *at = line->first; at != turn; at = at->next)
        before = at;
    *(before ? &before->next : &line->first) = turn->next;
    if (line->last == turn)
        line->last = before;
    turn->next = NULL;
    turn->waits = false;
    if (!line->first)
        leave_round(turn->turns, line);
}

static void on_waited_too_long(void *arg)
{
    struct turn *turn = arg;
    struct turns *t = turn->turns;
    struct err err;

    leave_line(turn);
    turn->turns = NULL;
    err_set(&err, ERR_BUSY, "the server is busy: it did not get to this within %llu s",
            (unsigned long long)(t->wait_ns / NS_PER_S));
    turn->fn(turn->arg, &err);
}

void turns_ask(struct turns *t, struct turn_line *line, struct turn *turn, void (*fn)(void *arg, const struct err *err),
               void *arg)
{
    bool at_once = turns_free(t);

    *turn = (struct turn){ .turns = t, .line = line, .fn = fn, .arg = arg, .waits = !at_once };
    if (at_once) {
        begin(turn);
        return;
    }
    if (!line->first)
        join_round(t, line);
    *(line->last ? &line->last->next : &line->first) = turn;
    line->last = turn;
    ev_timer_set(t->ev, &turn->timer, ev_now(t->ev) + t->wait_ns, on_waited_too_long, turn);
}

static void pump(void *arg)
{
    struct turns *t = arg;

    while (t->first && t->under_way < t->max) {
        struct turn_line *line = t->first;
        struct turn *turn = line->first;

        assert(turn);     /* or the line were not in the round */
        leave_line(turn); /* the head of both */
        if (line->first) {
            leave_round(t, line);
            join_round(t, line);
        }
        begin(turn);
    }
}

void turn_end(struct turn *turn)
{
    struct turns *t = turn->turns;

    if (!t)
        return;
    ev_timer_clear(t->ev, &turn->timer);
    if (turn->waits) {
        leave_line(turn);
    } else {
        t->under_way--;
        if (t->first && !t->pump.on)
            ev_defer(t->ev, &t->pump, pump, t);
    }
    turn->turns = NULL;
}
