/* CPU counters are sampled every full minute while an execution runs or a program was found to run
 * without one; once, one second after the last execution ended, to record the rest; and otherwise
 * at every full hour, for programs that slept at the last sample: their usage is recorded in the
 * hour of its use. Without a sandbox there is no timer. */
#include "service/sample_schedule.h"

#include "core/base/clock.h"

#define QUIET_NS (1 * NS_PER_S)
#define MINUTE_MS 60000u
#define HOUR_MS 3600000u

static uint64_t sample_schedule_next_tick(uint64_t now_ns, uint64_t now_ms, uint64_t every_ms)
{
    return now_ns + (every_ms - now_ms % every_ms) * NS_PER_MS;
}

void sample_schedule_activity(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms)
{
    l->activity_ns = now_ns;
    if (!l->next_tick_ns || l->next_tick_ns > now_ns + MINUTE_MS * NS_PER_MS)
        l->next_tick_ns = sample_schedule_next_tick(now_ns, now_ms, MINUTE_MS);
}

void sample_schedule_sampled(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms, bool moved)
{
    l->sampled_ns = now_ns;
    l->next_tick_ns = sample_schedule_next_tick(now_ns, now_ms, moved || l->running_executions ? MINUTE_MS : HOUR_MS);
}

uint64_t sample_schedule_next_ns(const struct sample_schedule *l)
{
    if (!l->live_sandboxes || !l->next_tick_ns)
        return SAMPLE_NEVER;
    if (l->running_executions || l->activity_ns <= l->sampled_ns)
        return l->next_tick_ns;
    return min_u64(l->next_tick_ns, l->activity_ns + QUIET_NS);
}
