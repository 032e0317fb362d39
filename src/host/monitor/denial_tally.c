/* A sandbox controls which calls are denied to it, so both the number of entries and the rate are
 * bounded here. A program that repeats one call uses one entry; a program that tries a new call
 * each time fills the list, and further denials are only counted as overflow.
 *
 * The rate is a count per fixed tick, not a token bucket: a burst right after the start of a tick
 * is answered at once, which covers every ordinary program, and the monitor's work per second has a
 * simple upper bound. */
#include "host/monitor/denial_tally.h"

void denial_tally_add(struct denial_tally *t, uint32_t nr, const uint32_t args[JAIL_DENIAL_ARGS])
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->entries[i].nr == nr && memcmp(t->entries[i].args, args, sizeof(t->entries[i].args)) == 0) {
            t->entries[i].count++;
            return;
        }
    if (t->n == JAIL_DENIALS_MAX) {
        t->overflow_count++;
        return;
    }
    struct jail_denial *d = &t->entries[t->n++];
    *d = (struct jail_denial){ .nr = nr, .count = 1 };
    memcpy(d->args, args, sizeof(d->args));
}

bool denial_pace_take(struct denial_pace *p, uint64_t now_ns, uint64_t *ret_again)
{
    uint64_t tick = now_ns / PACE_TICK_NS;

    if (tick != p->tick)
        *p = (struct denial_pace){ .tick = tick };
    if (p->spent == PACE_ANSWERS) {
        *ret_again = (tick + 1) * PACE_TICK_NS;
        return false;
    }
    p->spent++;
    return true;
}
