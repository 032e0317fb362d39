/* The CPU clock does not poll. A process tree on n cores cannot use more than n CPU seconds per
 * second, and with a quota of q not more than q CPU seconds per second plus the burst of one
 * quota period. So the remaining budget determines how long the counter need not be read: a
 * sleeping program costs one read now and then, a busy one a few reads near its end.
 *
 * Invariants:
 * 1. cpu_at is never later than the earliest time at which the budget could be used up, counted
 *    from the time of the last sample, except for CPU_READ_INTERVAL_MIN_NS, which separates the
 *    last reads, and CPU_READ_RETRY_NS, where a newer sample is not there yet. The counter moves
 *    with the scheduler's tick, so more reads would gain nothing.
 * 2. When the wall clock and the CPU clock are both due, the wall clock is reported: its time is
 *    known exactly. */
#include "sandbox/clocks.h"

#include "core/base/str.h"

#include <unistd.h>

#define CPU_READ_INTERVAL_MIN_NS (2 * NS_PER_MS)
#define CPU_READ_RETRY_NS (10 * NS_PER_MS) /* after a read that failed */
#define QUOTA_PERIOD_NS (100 * NS_PER_MS)  /* Linux's default, which the jailer keeps */

static uint64_t clocks_add_saturating(uint64_t now, uint64_t ns)
{
    return ns >= CLOCKS_NEVER - now ? CLOCKS_NEVER : now + ns;
}

static uint64_t clocks_deadline_after_ms(uint64_t now, uint64_t ms)
{
    if (ms == 0 || ms > CLOCKS_NEVER / NS_PER_MS)
        return CLOCKS_NEVER;
    return clocks_add_saturating(now, ms * NS_PER_MS);
}

static uint64_t clocks_shift_deadline(uint64_t at, uint64_t by)
{
    return at == CLOCKS_NEVER ? at : clocks_add_saturating(at, by);
}

static uint64_t exec_clocks_earliest_cpu_expiry(const struct exec_clocks *c, uint64_t left_ns)
{
    uint32_t cores = c->rate.cores > 0 ? c->rate.cores : 1;
    uint64_t wait = left_ns / cores;

    if (c->rate.quota_milli > 0 && c->rate.quota_milli < (uint64_t)cores * 1000) {
        uint64_t steady = left_ns / c->rate.quota_milli * 1000;

        wait = max_u64(wait, steady > QUOTA_PERIOD_NS ? steady - QUOTA_PERIOD_NS : 0);
    }
    return max_u64(wait, CPU_READ_INTERVAL_MIN_NS);
}

void exec_clocks_start(struct exec_clocks *c, uint64_t wall_ms, uint64_t cpu_ms, struct cpu_rate rate, uint64_t now,
                       uint64_t cpu_ns)
{
    *c = (struct exec_clocks){ .wall_at = clocks_deadline_after_ms(now, wall_ms),
                               .cpu_at = CLOCKS_NEVER,
                               .rate = rate };
    if (cpu_ms == 0 || cpu_ms > CLOCKS_NEVER / NS_PER_MS || cpu_ns == CPU_UNKNOWN)
        return;
    c->cpu_budget_ns = cpu_ms * NS_PER_MS;
    c->cpu_base_ns = cpu_ns;
    c->cpu_at = clocks_add_saturating(now, exec_clocks_earliest_cpu_expiry(c, c->cpu_budget_ns));
}

uint64_t exec_clocks_next(const struct exec_clocks *c)
{
    return c->paused_at ? CLOCKS_NEVER : min_u64(c->wall_at, c->cpu_at);
}

bool exec_clocks_check(struct exec_clocks *c, uint64_t now, struct cpu_sample cpu, enum ended_by *ret)
{
    if (c->paused_at)
        return false;
    if (now >= c->wall_at) {
        *ret = ENDED_TIMEOUT;
        return true;
    }
    if (now < c->cpu_at)
        return false;
    if (cpu.ns == CPU_UNKNOWN) {
        c->cpu_at = clocks_add_saturating(now, CPU_READ_RETRY_NS);
        return false;
    }
    uint64_t used = cpu.ns > c->cpu_base_ns ? cpu.ns - c->cpu_base_ns : 0;
    if (used >= c->cpu_budget_ns) {
        *ret = ENDED_CPU;
        return true;
    }
    /* The use since an old sample is unknown: wait for the next one. */
    c->cpu_at = clocks_add_saturating(cpu.at, exec_clocks_earliest_cpu_expiry(c, c->cpu_budget_ns - used));
    if (c->cpu_at <= now)
        c->cpu_at = clocks_add_saturating(now, CPU_READ_RETRY_NS);
    return false;
}

void exec_clocks_pause(struct exec_clocks *c, uint64_t now)
{
    if (!c->paused_at)
        c->paused_at = now;
}

void exec_clocks_resume(struct exec_clocks *c, uint64_t now)
{
    if (!c->paused_at)
        return;
    c->wall_at = clocks_shift_deadline(c->wall_at, now - c->paused_at);
    c->cpu_at = clocks_shift_deadline(c->cpu_at, now - c->paused_at);
    c->paused_at = 0;
}

void sandbox_clocks_start(struct sandbox_clocks *l, uint64_t lifetime_ms, uint64_t idle_ms, uint64_t now)
{
    *l = (struct sandbox_clocks){ .lifetime_at = clocks_deadline_after_ms(now, lifetime_ms), .idle_since = now };
    if (idle_ms <= CLOCKS_NEVER / NS_PER_MS)
        l->idle_ns = idle_ms * NS_PER_MS;
}

void sandbox_clocks_set_busy(struct sandbox_clocks *l)
{
    l->idle_since = 0;
}

void sandbox_clocks_set_idle(struct sandbox_clocks *l, uint64_t now)
{
    l->idle_since = now;
}

static uint64_t idle_at(const struct sandbox_clocks *l)
{
    if (l->idle_ns == 0 || l->idle_since == 0 || l->paused_at)
        return CLOCKS_NEVER;
    return clocks_add_saturating(l->idle_since, l->idle_ns);
}

uint64_t sandbox_clocks_next(const struct sandbox_clocks *l)
{
    return min_u64(l->lifetime_at, idle_at(l));
}

bool sandbox_clocks_check(const struct sandbox_clocks *l, uint64_t now, enum ended_by *ret)
{
    if (now >= l->lifetime_at)
        *ret = ENDED_LIFETIME;
    else if (now >= idle_at(l))
        *ret = ENDED_IDLE;
    else
        return false;
    return true;
}

void sandbox_clocks_pause(struct sandbox_clocks *l, uint64_t now)
{
    if (!l->paused_at)
        l->paused_at = now;
}

void sandbox_clocks_resume(struct sandbox_clocks *l, uint64_t now)
{
    if (l->paused_at && l->idle_since)
        l->idle_since += now - max_u64(l->paused_at, l->idle_since);
    l->paused_at = 0;
}

bool cpu_counter_parse(const char *text, uint8_t unit, uint64_t *ret_ns)
{
    const char *p = text;
    uint64_t v;

    if (unit == 1 && !str_eat(&p, "usage_usec "))
        return false;
    if (unit > 1 || !str_eat_u64(&p, unit == 1 ? CPU_UNKNOWN / NS_PER_US - 1 : CPU_UNKNOWN - 1, &v))
        return false;
    if (*p != '\n' && *p != '\0')
        return false;
    *ret_ns = unit == 1 ? v * NS_PER_US : v;
    return true;
}

uint64_t cpu_counter_read(int fd, uint8_t unit)
{
    char text[128]; /* in both files the figure is on the first line */
    uint64_t ns;

    if (fd < 0)
        return CPU_UNKNOWN;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return CPU_UNKNOWN;
    text[n] = '\0';
    return cpu_counter_parse(text, unit, &ns) ? ns : CPU_UNKNOWN;
}

uint64_t oom_kills_parse(const char *text)
{
    uint64_t v;

    for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (str_eat(&p, "oom_kill ") && str_eat_u64(&p, UINT64_MAX - 1, &v))
            return v;
    return 0;
}

uint64_t oom_kills_read(int fd)
{
    char text[256];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = '\0';
    return oom_kills_parse(text);
}
