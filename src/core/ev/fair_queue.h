/* fair_queue.h - bounded concurrency, with round-robin between tenants.
 *
 * A request gets a slot immediately if one is free. Otherwise it waits in the line of its tenant,
 * and every free slot goes to the next tenant in rotation: a tenant with 1,000 queued requests
 * delays others no more than a tenant with one. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

/* One request; all zero: none. It must not move while it waits or holds a slot. */
struct fair_queue_slot {
    struct fair_queue *queue;
    struct fair_queue_line *line;
    struct fair_queue_slot *next; /* in its line */
    bool is_waiting;
    void (*on_acquired)(void *arg, const struct err *err);
    void *arg;
    struct ev_timer timer; /* limit of the waiting time, then of the holding time */
};

struct fair_queue_line { /* the requests of one tenant; all zero: empty */
    struct fair_queue_slot *first, *last;
    struct fair_queue_line *next; /* in the rotation */
};

struct fair_queue {
    struct ev *ev;
    unsigned max, held;
    uint64_t max_wait_ns;                 /* a request that waited this long fails with ERR_BUSY */
    uint64_t max_hold_ns;                 /* a slot held this long is given to the next request; the holder continues */
    struct fair_queue_line *first, *last; /* the rotation: lines that are not empty */
    struct ev_defer pump_defer;
};

void fair_queue_init(struct fair_queue *t, struct ev *ev, unsigned max, uint64_t wait_ns, uint64_t keep_ns);
void fair_queue_done(struct fair_queue *t); /* only when no request waits */

bool fair_queue_has_room(const struct fair_queue *t); /* fair_queue_acquire would call fn immediately */
bool fair_queue_is_busy(const struct fair_queue *t);  /* a request waits, or more than half of the slots are held */
/* Calls fn(arg, NULL) when the slot is acquired, possibly before it returns, or fn(arg, err) if it
 * is not. */
void fair_queue_acquire(struct fair_queue *t, struct fair_queue_line *line, struct fair_queue_slot *turn,
                        void (*fn)(void *arg, const struct err *err), void *arg);
/* Gives up the slot or the place in the line. No effect if the request has neither. */
void fair_queue_release(struct fair_queue_slot *turn);
