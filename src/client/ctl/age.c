/* Formats a timestamp for tables as a distance in one unit: how long ago, or in how much time.
 * Clocks of two machines differ slightly, so a distance below one second is "now". */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"

#include <stdio.h>

static void ctl_age_write_span(uint64_t s, char *buf, size_t size)
{
    static const struct {
        uint64_t seconds;
        const char *unit;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "m" }, { 1, "s" } };
    size_t i = 0;

    while (units[i].seconds > 1 && s < 2 * units[i].seconds) /* 90m is more precise than 1h */
        i++;
    snprintf(buf, size, "%" PRIu64 "%s", (s + units[i].seconds / 2) / units[i].seconds, units[i].unit);
}

const char *ctl_age(const char *moment, uint64_t now_ms, char buf[CTL_AGE])
{
    char span[32];
    uint64_t then_ms;

    if (!clock_from_rfc3339(moment, &then_ms))
        return moment;
    bool ahead = then_ms > now_ms;
    uint64_t ms = ahead ? then_ms - now_ms : now_ms - then_ms;
    uint64_t s = ms < 1000 ? 0 : (ms + 499) / 1000; /* 299.9 s left of 5 minutes are 5 minutes */
    ctl_age_write_span(s, span, sizeof(span));
    snprintf(buf, CTL_AGE, s == 0 ? "now" : ahead ? "in %s" : "%s ago", span);
    return buf;
}
