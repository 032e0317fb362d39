/* Sandboxes that were used and have to go, or go back to a pool that recycles. Ending one costs as much of the
 * processors as a run does, and nobody waits for it: while others wait for their answers, those that ended by
 * themselves stand in a line. So a burst is answered first and cleared away behind.
 *
 * 1. Nobody stands in the line for longer than HOLD_NS if there is anything else to do, and behind a burst they go a
 * few at a time, so that who comes next finds the jailer free. What all of them can hold of memory is therefore what
 * the processors can fill in that time.
 * 2. One that stands in the line has given its place to the next, unless the line is long already: a burst leaves at
 *    most so many sandboxes behind.
 * 3. Whatever did not end by itself goes at once. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define STANDING_MAX 256u
#define UNDER_WAY_MAX 16u
#define HOLD_NS (500 * NS_PER_MS)

static void dig(struct executor *e);

static void buried(struct run *r)
{
    struct executor *e = r->e;

    if (r->in_turn)
        e->graves.under_way--;
    run_free(r);
    dig(e);
}

static void on_buried(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (err && err->id != ERR_MISSING && err->id != ERR_LOST)
        log_warn("sandbox %s: %s", box_id(r->guest.box), err->msg);
    buried(r);
}

static void destroy(struct run *r)
{
    if (r->guest.box && !box_lost(r->guest.box))
        box_destroy(r->guest.box, on_buried, r);
    else
        buried(r);
}

/* The pool that lent it was asked whether it wants it back. */
static void on_given(void *arg)
{
    destroy(arg);
}

static bool by_itself(const struct run *r)
{
    return r->has_receipt && r->receipt.ended_by == ENDED_EXIT && !r->has_why && !r->stopped && !r->interrupted;
}

static void bury(struct run *r)
{
    bool full = r->has_receipt && !r->receipt.full_why && r->receipt.full;

    if (!r->guest.box || box_lost(r->guest.box) || r->e->finished ||
        !guest_give_back(&r->guest, &r->spec, by_itself(r), full, on_given))
        destroy(r);
}

static void bury_alone(void *arg)
{
    bury(arg);
}

/* Its box is lost, or ended by itself: whoever takes it away need not be waited for. */
void graves_gone(struct run *r)
{
    struct graves *g = &r->e->graves;
    struct run **at = &g->first;

    if (!r->standing)
        return;
    while (*at != r)
        at = &(*at)->next_grave;
    *at = r->next_grave;
    if (!*at)
        g->last = at;
    g->waiting--;
    r->standing = false;
    ev_defer(r->e->set.ev, &r->end, bury_alone, r);
}

static void on_time(void *arg)
{
    dig(arg);
}

/* Until when the first of the line stays there; 0: it need not. */
static uint64_t held_until(const struct executor *e)
{
    const struct graves *g = &e->graves;
    bool busy = turns_crowded(&e->turns) && g->waiting <= STANDING_MAX && !e->finished;

    return busy ? g->first->ended_ns + HOLD_NS : 0;
}

static void dig(struct executor *e)
{
    struct graves *g = &e->graves;
    uint64_t now = ev_now(e->set.ev);

    while (g->first && g->under_way < UNDER_WAY_MAX) {
        struct run *r = g->first;
        uint64_t until = held_until(e);

        if (until > now) {
            ev_timer_set(e->set.ev, &g->timer, until, on_time, e);
            return;
        }
        g->first = r->next_grave;
        if (!g->first)
            g->last = &g->first;
        g->waiting--;
        g->under_way++;
        r->standing = false;
        r->in_turn = true;
        bury(r);
    }
}

void graves_init(struct executor *e)
{
    e->graves.last = &e->graves.first;
}

void graves_finish(struct executor *e)
{
    dig(e);
}

void graves_done(struct executor *e)
{
    ev_timer_clear(e->set.ev, &e->graves.timer);
    graves_init(e);
    e->graves.first = NULL;
}

void graves_add(struct run *r)
{
    struct executor *e = r->e;
    struct graves *g = &e->graves;

    if (!r->guest.box || !r->has_receipt || r->stopped || r->interrupted) {
        bury(r);
        return;
    }
    r->standing = true;
    r->next_grave = NULL;
    *g->last = r;
    g->last = &r->next_grave;
    if (++g->waiting <= STANDING_MAX)
        turn_end(&r->turn);
    dig(e);
}
