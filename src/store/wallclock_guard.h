/* wallclock_guard.h - protects retention from a wrong wall clock.
 *
 * To a starting server, a wall clock that was set years ahead looks like years in which the
 * server did not run, but only the latter is a reason to delete everything at once. So the
 * server stores the last wall clock time that it trusted. If at start the clock is more than
 * WALLCLOCK_GUARD_AHEAD_MS ahead of that time, age-based deletion waits until the server has run
 * for WALLCLOCK_GUARD_WAIT_MS with that clock, across restarts; if the clock is corrected
 * meanwhile, deletion resumes at once. While a server runs, the monotonic clock advances the
 * trusted time, and a wall clock that jumps ahead is not followed.
 *
 * The caller passes the time in: now_ns is monotonic, real_ms is the wall clock. */
#pragma once

#include "core/base/base.h"

#define WALLCLOCK_GUARD_DAY_MS UINT64_C(86400000)
#define WALLCLOCK_GUARD_AHEAD_MS (3 * WALLCLOCK_GUARD_DAY_MS)
#define WALLCLOCK_GUARD_WAIT_MS WALLCLOCK_GUARD_DAY_MS
#define WALLCLOCK_GUARD_TEXT 48

struct wallclock_guard {
    uint64_t began_ns, began_ms;
    uint64_t trusted_ms; /* latest wall clock time that was trusted */
    uint64_t waited_ms, updated_ns;
    bool is_distrusted;
};

/* kept: the last result of wallclock_guard_format(), or NULL. Text that cannot be parsed counts
 * as NULL. */
void wallclock_guard_init(struct wallclock_guard *c, const char *kept, uint64_t now_ns, uint64_t real_ms);
/* True if age-based deletion is allowed. */
bool wallclock_guard_update(struct wallclock_guard *c, uint64_t now_ns, uint64_t real_ms);
/* The time that ages are computed from. */
uint64_t wallclock_guard_now_ms(const struct wallclock_guard *c, uint64_t now_ns, uint64_t real_ms);
/* The text to be stored; returns buf. */
char *wallclock_guard_format(const struct wallclock_guard *c, char buf[WALLCLOCK_GUARD_TEXT]);
