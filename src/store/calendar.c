#include "store/calendar.h"

#include "base/str.h"

#include <stdio.h>

static bool read_kept(const char *text, uint64_t *seen, uint64_t *waited)
{
    return text && str_eat_u64(&text, UINT64_MAX, seen) && str_eat(&text, " ") &&
           str_eat_u64(&text, CALENDAR_WAIT_MS, waited) && !*text;
}

static bool ahead(const struct calendar *c, uint64_t ms)
{
    return ms > c->seen_ms && ms - c->seen_ms > CALENDAR_AHEAD_MS;
}

void calendar_begin(struct calendar *c, const char *kept, uint64_t now_ns, uint64_t real_ms)
{
    *c = (struct calendar){ .began_ns = now_ns, .began_ms = real_ms, .looked_ns = now_ns };
    if (!read_kept(kept, &c->seen_ms, &c->waited_ms))
        c->seen_ms = real_ms;
    c->waits = ahead(c, real_ms);
    if (!c->waits)
        c->waited_ms = 0;
}

uint64_t calendar_now(const struct calendar *c, uint64_t now_ns, uint64_t real_ms)
{
    return min_u64(c->began_ms + (now_ns - c->began_ns) / NS_PER_MS, real_ms);
}

bool calendar_look(struct calendar *c, uint64_t now_ns, uint64_t real_ms)
{
    uint64_t now = calendar_now(c, now_ns, real_ms);

    if (c->waits) {
        c->waited_ms = min_u64(c->waited_ms + (now_ns - c->looked_ns) / NS_PER_MS, CALENDAR_WAIT_MS);
        c->waits = ahead(c, now) && c->waited_ms < CALENDAR_WAIT_MS;
    }
    c->looked_ns = now_ns;
    if (c->waits)
        return false;
    c->seen_ms = now;
    c->waited_ms = 0;
    return true;
}

char *calendar_print(const struct calendar *c, char buf[CALENDAR_TEXT])
{
    snprintf(buf, CALENDAR_TEXT, "%" PRIu64 " %" PRIu64, c->seen_ms, c->waited_ms);
    return buf;
}
