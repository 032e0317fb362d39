/* fair_queue.h - a bounded number of things under way at one time, chosen in turn from the tenants that wait.
 *
 * Who comes when there is room begins at once. Otherwise each tenant has a line of its own, and every place that
 * becomes free goes to the next tenant in the round: one with a thousand things in its line is waited for by nobody
 * longer than one with a single thing. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct fair_queue_slot { /* one thing; zeroed is none. It must not move while it waits or is under way */
    struct fair_queue *queue;
    struct fair_queue_line *line;
    struct fair_queue_slot *next; /* in its line */
    bool is_waiting;
    void (*on_acquired)(void *arg, const struct err *err);
    void *arg;
    struct ev_timer timer; /* until it has waited, or has kept its place, for too long */
};

struct fair_queue_line { /* one tenant's; zeroed is empty */
    struct fair_queue_slot *first, *last;
    struct fair_queue_line *next; /* in the round */
};

struct fair_queue {
    struct ev *ev;
    unsigned max, held;
    uint64_t max_wait_ns; /* who waited for so long is told ERR_BUSY */
    uint64_t max_hold_ns; /* a place that was kept for so long is given to the next; the thing itself goes on */
    struct fair_queue_line *first, *last; /* the round: lines in which somebody waits */
    struct ev_defer pump_defer;
};

void fair_queue_init(struct fair_queue *t, struct ev *ev, unsigned max, uint64_t wait_ns, uint64_t keep_ns);
void fair_queue_done(struct fair_queue *t); /* when nobody waits any more */

bool fair_queue_has_room(const struct fair_queue *t); /* fair_queue_acquire would call fn at once */
bool fair_queue_is_busy(const struct fair_queue *t);  /* somebody waits, or more than half of the places are taken */
/* Calls fn(arg, NULL) when it is this one's turn, possibly before it returns; or fn(arg, err), and then it has none. */
void fair_queue_acquire(struct fair_queue *t, struct fair_queue_line *line, struct fair_queue_slot *turn,
                        void (*fn)(void *arg, const struct err *err), void *arg);
/* It is over, or need not happen: out of the line, or from its place. Of one that is neither, nothing. */
void fair_queue_release(struct fair_queue_slot *turn);
