/* A period is identified by its beginning: the first call in another period finds a different
 * beginning and clears the sums. So there is no timer that could fire late, or not at all on a
 * machine that was suspended over midnight. If the wall clock is set back, the earlier period
 * starts again from zero, in favour of the tenant. */
#include "service/budget_period.h"

#include "core/base/clock.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

const char *const budget_resource_names[STORE_BUDGET_RESOURCES] = { "cpuMs", "sandboxMs", "executions" };
const char *const budget_period_names[STORE_PERIOD_COUNT] = { "day", "month" };
const uint64_t budget_resource_units[STORE_BUDGET_RESOURCES] = { 1000, 1, 1 };

static uint64_t budget_period_boundary_ms(enum store_period p, uint64_t now_ms, int ahead)
{
    time_t t = (time_t)(now_ms / 1000);
    struct tm tm;

    gmtime_r(&t, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    if (p == STORE_PERIOD_MONTH) {
        tm.tm_mday = 1;
        tm.tm_mon += ahead;
    } else {
        tm.tm_mday += ahead;
    }
    return (uint64_t)timegm(&tm) * 1000;
}

uint64_t budget_period_begin_ms(enum store_period p, uint64_t now_ms)
{
    return budget_period_boundary_ms(p, now_ms, 0);
}

uint64_t budget_period_end_ms(enum store_period p, uint64_t now_ms)
{
    return budget_period_boundary_ms(p, now_ms, 1);
}

void budget_period_roll(struct budget_period *a, uint64_t now_ms)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        uint64_t begin = budget_period_begin_ms((enum store_period)p, now_ms);

        if (begin == a->begin_ms[p])
            continue;
        a->begin_ms[p] = begin;
        memset(a->used[p], 0, sizeof(a->used[p]));
    }
}

void budget_period_add(struct budget_period *a, enum store_budget_resource what, uint64_t amount, uint64_t now_ms)
{
    budget_period_roll(a, now_ms);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        a->used[p][what] += amount;
}

void budget_period_add_span(struct budget_period *a, uint64_t from_ms, uint64_t to_ms, uint64_t now_ms)
{
    budget_period_roll(a, now_ms);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        uint64_t from = max_u64(from_ms, a->begin_ms[p]);

        a->used[p][STORE_BUDGET_SANDBOX_TIME] += to_ms > from ? to_ms - from : 0;
    }
}

bool budget_period_limit_reached(const struct budget_period *a,
                                 uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                 enum store_budget_resource what, enum store_period *ret)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        if (a->max[p][what] && sums[p][what] / budget_resource_units[what] >= a->max[p][what]) {
            *ret = (enum store_period)p;
            return true;
        }
    return false;
}

enum budget_limit_state budget_period_limit_state(const struct budget_period *a,
                                                  uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                                  enum store_period p, enum store_budget_resource what)
{
    uint64_t used = sums[p][what] / budget_resource_units[what], max = a->max[p][what];

    return used >= max ? BUDGET_LIMIT_REACHED : used >= max - max / 10 ? BUDGET_LIMIT_NEAR : BUDGET_LIMIT_OPEN;
}

int budget_period_set_error(const struct budget_period *a, uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                            enum store_budget_resource what, enum store_period p, uint64_t now_ms, struct err *err)
{
    char at[32];

    return err_set(err, ERR_BUDGET,
                   "the budget of %s is used up: %" PRIu64 " of %" PRIu64 " %s this %s; it renews at %s", a->owner,
                   sums[p][what] / budget_resource_units[what], a->max[p][what], budget_resource_names[what],
                   budget_period_names[p], clock_rfc3339(budget_period_end_ms(p, now_ms) * NS_PER_MS, at));
}
