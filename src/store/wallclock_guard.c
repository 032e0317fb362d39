#include "store/wallclock_guard.h"

#include "core/base/str.h"

#include <stdio.h>

static bool wallclock_guard_parse(const char *text, uint64_t *seen, uint64_t *waited)
{
    return text && str_eat_u64(&text, UINT64_MAX, seen) && str_eat(&text, " ") &&
           str_eat_u64(&text, WALLCLOCK_GUARD_WAIT_MS, waited) && !*text;
}

static bool wallclock_guard_is_ahead(const struct wallclock_guard *c, uint64_t ms)
{
    return ms > c->trusted_ms && ms - c->trusted_ms > WALLCLOCK_GUARD_AHEAD_MS;
}

void wallclock_guard_init(struct wallclock_guard *c, const char *kept, uint64_t now_ns, uint64_t real_ms)
{
    *c = (struct wallclock_guard){ .began_ns = now_ns, .began_ms = real_ms, .updated_ns = now_ns };
    if (!wallclock_guard_parse(kept, &c->trusted_ms, &c->waited_ms))
        c->trusted_ms = real_ms;
    c->is_distrusted = wallclock_guard_is_ahead(c, real_ms);
    if (!c->is_distrusted)
        c->waited_ms = 0;
}

uint64_t wallclock_guard_now_ms(const struct wallclock_guard *c, uint64_t now_ns, uint64_t real_ms)
{
    return min_u64(c->began_ms + (now_ns - c->began_ns) / NS_PER_MS, real_ms);
}

bool wallclock_guard_update(struct wallclock_guard *c, uint64_t now_ns, uint64_t real_ms)
{
    uint64_t now = wallclock_guard_now_ms(c, now_ns, real_ms);

    if (c->is_distrusted) {
        c->waited_ms = min_u64(c->waited_ms + (now_ns - c->updated_ns) / NS_PER_MS, WALLCLOCK_GUARD_WAIT_MS);
        c->is_distrusted = wallclock_guard_is_ahead(c, now) && c->waited_ms < WALLCLOCK_GUARD_WAIT_MS;
    }
    c->updated_ns = now_ns;
    if (c->is_distrusted)
        return false;
    c->trusted_ms = now;
    c->waited_ms = 0;
    return true;
}

char *wallclock_guard_format(const struct wallclock_guard *c, char buf[WALLCLOCK_GUARD_TEXT])
{
    snprintf(buf, WALLCLOCK_GUARD_TEXT, "%" PRIu64 " %" PRIu64, c->trusted_ms, c->waited_ms);
    return buf;
}
