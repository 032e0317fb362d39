/* wallclock_guard.h - by which time retention reckons what is old.
 *
 * To a server that starts, a calendar that was set years ahead looks like years in which it did not run; only the
 * latter is a reason to forget everything at once. So it writes down how far it believed the calendar. One that is more
 * than WALLCLOCK_GUARD_AHEAD_MS beyond that at a start has to hold for WALLCLOCK_GUARD_WAIT_MS in which the server
 * runs, over restarts too, before ages count by it; set right meanwhile, it counts at once. While a server runs, the
 * machine's clock carries the calendar on, and one that is set ahead is not followed.
 *
 * The caller passes the time in: now_ns of the machine, real_ms of the calendar. */
#pragma once

#include "core/base/base.h"

#define WALLCLOCK_GUARD_DAY_MS UINT64_C(86400000)
#define WALLCLOCK_GUARD_AHEAD_MS (3 * WALLCLOCK_GUARD_DAY_MS)
#define WALLCLOCK_GUARD_WAIT_MS WALLCLOCK_GUARD_DAY_MS
#define WALLCLOCK_GUARD_TEXT 48

struct wallclock_guard {
    uint64_t began_ns, began_ms;
    uint64_t trusted_ms; /* how far it was believed */
    uint64_t waited_ms, updated_ns;
    bool is_distrusted;
};

/* kept: what wallclock_guard_format() wrote at last, or NULL. What cannot be read is as if there were none. */
void wallclock_guard_init(struct wallclock_guard *c, const char *kept, uint64_t now_ns, uint64_t real_ms);
/* Whether what is old may go by itself. */
bool wallclock_guard_update(struct wallclock_guard *c, uint64_t now_ns, uint64_t real_ms);
uint64_t wallclock_guard_now_ms(const struct wallclock_guard *c, uint64_t now_ns,
                                uint64_t real_ms); /* what ages are reckoned from */
char *wallclock_guard_format(const struct wallclock_guard *c,
                             char buf[WALLCLOCK_GUARD_TEXT]); /* to be kept; returns buf */
