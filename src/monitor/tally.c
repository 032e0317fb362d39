/* A sandbox chooses what it is refused, so both its lines and its speed are bounded here. A program that repeats one
 * call costs one line; one that tries a new call each time fills the list and is counted as "more" from then on,
 * without guessing what those were.
 *
 * The pace is counted in whole ticks and not as a bucket that refills: a burst right after a tick began is answered at
 * once, which is all an ordinary program ever does, and the monitor's work per second has a plain upper bound. */
#include "monitor/tally.h"

void tally_add(struct tally *t, uint32_t nr, const uint32_t args[JAIL_DENIAL_ARGS])
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->each[i].nr == nr && memcmp(t->each[i].args, args, sizeof(t->each[i].args)) == 0) {
            t->each[i].count++;
            return;
        }
    if (t->n == JAIL_DENIALS_MAX) {
        t->more++;
        return;
    }
    struct jail_denial *d = &t->each[t->n++];
    *d = (struct jail_denial){ .nr = nr, .count = 1 };
    memcpy(d->args, args, sizeof(d->args));
}

bool pace_take(struct pace *p, uint64_t now_ns, uint64_t *ret_again)
{
    uint64_t tick = now_ns / PACE_TICK_NS;

    if (tick != p->tick)
        *p = (struct pace){ .tick = tick };
    if (p->spent == PACE_ANSWERS) {
        *ret_again = (tick + 1) * PACE_TICK_NS;
        return false;
    }
    p->spent++;
    return true;
}
