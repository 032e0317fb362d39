/* A period is known by the moment of its beginning: whoever comes first in another period finds that the beginning is a
 * different one, and empties the sums. So there is no timer that could come late, or not at all on a machine that slept
 * over midnight. A calendar that is set back makes the period before count again from nothing, never against anybody.
 */
#include "sandbox/allowance.h"

#include "base/clock.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

const char *const allowance_names[STORE_BUDGETED] = { "cpuSeconds", "sandboxSeconds", "executions" };
const char *const allowance_periods[STORE_PERIODS] = { "day", "month" };
const uint64_t allowance_units[STORE_BUDGETED] = { 1000000, 1000, 1 };

static uint64_t boundary(enum store_period p, uint64_t now_ms, int ahead)
{
    time_t t = (time_t)(now_ms / 1000);
    struct tm tm;

    gmtime_r(&t, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    if (p == STORE_MONTH) {
        tm.tm_mday = 1;
        tm.tm_mon += ahead;
    } else {
        tm.tm_mday += ahead;
    }
    return (uint64_t)timegm(&tm) * 1000;
}

uint64_t allowance_begin(enum store_period p, uint64_t now_ms)
{
    return boundary(p, now_ms, 0);
}

uint64_t allowance_renews(enum store_period p, uint64_t now_ms)
{
    return boundary(p, now_ms, 1);
}

void allowance_turn(struct allowance *a, uint64_t now_ms)
{
    for (int p = 0; p < STORE_PERIODS; p++) {
        uint64_t begin = allowance_begin((enum store_period)p, now_ms);

        if (begin == a->begin_ms[p])
            continue;
        a->begin_ms[p] = begin;
        memset(a->used[p], 0, sizeof(a->used[p]));
    }
}

void allowance_add(struct allowance *a, enum store_budgeted what, uint64_t amount, uint64_t now_ms)
{
    allowance_turn(a, now_ms);
    for (int p = 0; p < STORE_PERIODS; p++)
        a->used[p][what] += amount;
}

void allowance_add_span(struct allowance *a, uint64_t from_ms, uint64_t to_ms, uint64_t now_ms)
{
    allowance_turn(a, now_ms);
    for (int p = 0; p < STORE_PERIODS; p++) {
        uint64_t from = max_u64(from_ms, a->begin_ms[p]);

        a->used[p][STORE_SANDBOX_S] += to_ms > from ? to_ms - from : 0;
    }
}

bool allowance_reached(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED],
                       enum store_budgeted what, enum store_period *ret)
{
    for (int p = 0; p < STORE_PERIODS; p++)
        if (a->max[p][what] && sums[p][what] / allowance_units[what] >= a->max[p][what]) {
            *ret = (enum store_period)p;
            return true;
        }
    return false;
}

enum allowance_state allowance_state(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED],
                                     enum store_period p, enum store_budgeted what)
{
    uint64_t used = sums[p][what] / allowance_units[what], max = a->max[p][what];

    return used >= max ? ALLOWANCE_SPENT : used >= max - max / 10 ? ALLOWANCE_NEAR : ALLOWANCE_OPEN;
}

int allowance_explain(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED], enum store_budgeted what,
                      enum store_period p, uint64_t now_ms, struct err *err)
{
    char at[32];

    return err_set(err, ERR_BUDGET,
                   "the budget of %s is used up: %" PRIu64 " of %" PRIu64 " %s this %s; it renews at %s", a->owner,
                   sums[p][what] / allowance_units[what], a->max[p][what], allowance_names[what], allowance_periods[p],
                   clock_rfc3339(allowance_renews(p, now_ms) * NS_PER_MS, at));
}
