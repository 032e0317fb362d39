/* calendar.h - by which time retention reckons what is old.
 *
 * To a server that starts, a calendar that was set years ahead looks like years in which it did not run; only the
 * latter is a reason to forget everything at once. So it writes down how far it believed the calendar. One that is more
 * than CALENDAR_AHEAD_MS beyond that at a start has to hold for CALENDAR_WAIT_MS in which the server runs, over
 * restarts too, before ages count by it; set right meanwhile, it counts at once. While a server runs, the machine's
 * clock carries the calendar on, and one that is set ahead is not followed.
 *
 * The caller passes the time in: now_ns of the machine, real_ms of the calendar. */
#pragma once

#include "base/base.h"

#define CALENDAR_DAY_MS UINT64_C(86400000)
#define CALENDAR_AHEAD_MS (3 * CALENDAR_DAY_MS)
#define CALENDAR_WAIT_MS CALENDAR_DAY_MS
#define CALENDAR_TEXT 48

struct calendar {
    uint64_t began_ns, began_ms;
    uint64_t seen_ms; /* how far it was believed */
    uint64_t waited_ms, looked_ns;
    bool waits;
};

/* kept: what calendar_print() wrote at last, or NULL. What cannot be read is as if there were none. */
void calendar_begin(struct calendar *c, const char *kept, uint64_t now_ns, uint64_t real_ms);
/* Whether what is old may go by itself. */
bool calendar_look(struct calendar *c, uint64_t now_ns, uint64_t real_ms);
uint64_t calendar_now(const struct calendar *c, uint64_t now_ns, uint64_t real_ms); /* what ages are reckoned from */
char *calendar_print(const struct calendar *c, char buf[CALENDAR_TEXT]);            /* to be kept; returns buf */
