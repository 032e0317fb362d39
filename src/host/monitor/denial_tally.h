/* denial_tally.h - what was refused in one sandbox, and how fast it may be answered. Pure: the time is passed in. */
#pragma once

#include "core/base/base.h"
#include "core/wire/jail.h"

struct denial_tally {
    struct jail_denial entries[JAIL_DENIALS_MAX]; /* in the order of their first time */
    uint32_t n;
    uint64_t overflow_count; /* refusals of a kind that found no room */
};

/* One more refusal. args are those that say what was asked; the caller sets the others to 0. */
void denial_tally_add(struct denial_tally *t, uint32_t nr, const uint32_t args[JAIL_DENIAL_ARGS]);

/* So many answers in each tick of time; the rest waits for the next one. */
#define PACE_TICK_NS (100 * NS_PER_MS)
#define PACE_ANSWERS 100u

struct denial_pace {
    uint64_t tick; /* the one that is being spent */
    uint32_t spent;
};

/* False when this tick is spent; *ret_again is then the time to try again. */
bool denial_pace_take(struct denial_pace *p, uint64_t now_ns, uint64_t *ret_again);
