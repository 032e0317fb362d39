/* denial_tally.h - counts the denials of one sandbox and limits how fast they are answered. Pure:
 * the caller passes the time. */
#pragma once

#include "core/base/base.h"
#include "core/wire/jail.h"

struct denial_tally {
    struct jail_denial entries[JAIL_DENIALS_MAX]; /* in the order of first occurrence */
    uint32_t n;
    uint64_t overflow_count; /* denials that found no free entry */
};

/* Counts one denial. The caller sets insignificant args to 0. */
void denial_tally_add(struct denial_tally *t, uint32_t nr, const uint32_t args[JAIL_DENIAL_ARGS]);

/* At most PACE_ANSWERS answers in each tick of PACE_TICK_NS; further calls wait for the next
 * tick. */
#define PACE_TICK_NS (100 * NS_PER_MS)
#define PACE_ANSWERS 100u

struct denial_pace {
    uint64_t tick; /* number of the current tick */
    uint32_t spent;
};

/* False: the current tick is used up, and *ret_again is the time to try again. */
bool denial_pace_take(struct denial_pace *p, uint64_t now_ns, uint64_t *ret_again);
