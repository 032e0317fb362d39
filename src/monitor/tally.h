/* tally.h - what was refused in one sandbox, and how fast it may be answered. Pure: the time is passed in. */
#pragma once

#include "base/base.h"
#include "wire/jail.h"

struct tally {
    struct jail_denial each[JAIL_DENIALS_MAX]; /* in the order of their first time */
    uint32_t n;
    uint64_t more; /* refusals of a kind that found no room */
};

/* One more refusal. args are those that say what was asked; the caller sets the others to 0. */
void tally_add(struct tally *t, uint32_t nr, const uint32_t args[JAIL_DENIAL_ARGS]);

/* So many answers in each tick of time; the rest waits for the next one. */
#define PACE_TICK_NS (100 * NS_PER_MS)
#define PACE_ANSWERS 100u

struct pace {
    uint64_t tick; /* the one that is being spent */
    uint32_t spent;
};

/* False when this tick is spent; *ret_again is then the time to try again. */
bool pace_take(struct pace *p, uint64_t now_ns, uint64_t *ret_again);
