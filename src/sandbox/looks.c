/* Three speeds. While something is executed, or was found to run by itself, a look comes at each full minute. When the
 * last execution has ended, one look comes a second later and writes down what is left to be written. From then on
 * nobody wakes up but at full hours, for the sake of programs that slept at that look: what they use is counted in the
 * hour in which they used it. Without a sandbox there is no look at all. */
#include "sandbox/looks.h"

#include "base/clock.h"

#define QUIET_NS (1 * NS_PER_S)
#define MINUTE_MS 60000u
#define HOUR_MS 3600000u

static uint64_t next_full(uint64_t now_ns, uint64_t now_ms, uint64_t every_ms)
{
    return now_ns + (every_ms - now_ms % every_ms) * NS_PER_MS;
}

void looks_stir(struct looks *l, uint64_t now_ns, uint64_t now_ms)
{
    l->stirred_ns = now_ns;
    if (!l->full_ns || l->full_ns > now_ns + MINUTE_MS * NS_PER_MS)
        l->full_ns = next_full(now_ns, now_ms, MINUTE_MS);
}

void looks_done(struct looks *l, uint64_t now_ns, uint64_t now_ms, bool moved)
{
    l->looked_ns = now_ns;
    l->full_ns = next_full(now_ns, now_ms, moved || l->executing ? MINUTE_MS : HOUR_MS);
}

uint64_t looks_next(const struct looks *l)
{
    if (!l->living || !l->full_ns)
        return LOOKS_NEVER;
    if (l->executing || l->stirred_ns <= l->looked_ns)
        return l->full_ns;
    return min_u64(l->full_ns, l->stirred_ns + QUIET_NS);
}
