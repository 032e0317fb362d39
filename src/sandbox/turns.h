/* turns.h - a bounded number of things under way at one time, chosen in turn from the tenants that wait.
 *
 * Who comes when there is room begins at once. Otherwise each tenant has a line of its own, and every place that
 * becomes free goes to the next tenant in the round: one with a thousand things in its line is waited for by nobody
 * longer than one with a single thing. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "ev/ev.h"

struct turn { /* one thing; zeroed is none. It must not move while it waits or is under way */
    struct turns *turns;
    struct turn_line *line;
    struct turn *next; /* in its line */
    bool waits;
    void (*fn)(void *arg, const struct err *err);
    void *arg;
    struct ev_timer timer; /* until it has waited, or has kept its place, for too long */
};

struct turn_line { /* one tenant's; zeroed is empty */
    struct turn *first, *last;
    struct turn_line *next; /* in the round */
};

struct turns {
    struct ev *ev;
    unsigned max, under_way;
    uint64_t wait_ns; /* who waited for so long is told ERR_BUSY */
    uint64_t keep_ns; /* a place that was kept for so long is given to the next; the thing itself goes on */
    struct turn_line *first, *last; /* the round: lines in which somebody waits */
    struct ev_defer pump;
};

void turns_init(struct turns *t, struct ev *ev, unsigned max, uint64_t wait_ns, uint64_t keep_ns);
void turns_done(struct turns *t); /* when nobody waits any more */

bool turns_free(const struct turns *t);    /* turns_ask would call fn at once */
bool turns_crowded(const struct turns *t); /* somebody waits, or more than half of the places are taken */
/* Calls fn(arg, NULL) when it is this one's turn, possibly before it returns; or fn(arg, err), and then it has none. */
void turns_ask(struct turns *t, struct turn_line *line, struct turn *turn, void (*fn)(void *arg, const struct err *err),
               void *arg);
/* It is over, or need not happen: out of the line, or from its place. Of one that is neither, nothing. */
void turn_end(struct turn *turn);
