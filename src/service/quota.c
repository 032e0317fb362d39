/* Executions are counted per minute in a ring of 60 minutes: a new minute replaces the count of the
 * minute one hour before. So "an hour" is between 59 and 60 minutes, and counting costs the same at
 * any rate. Times come from a monotonic clock, because a change of the wall clock must not change a
 * quota. */
#include "service/quota.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "service/spec.h"

#include <inttypes.h>

#define MINUTE_MS 60000u
#define HOUR_MS 3600000u

const char *const quota_names[STORE_QUOTA_COUNT] = { "sandboxes", "cpuMillis", "memoryBytes", "storageBytes",
                                                     "executionsPerHour" };

static int quota_check_suspended(const struct tenant_quota *s, struct err *err)
{
    return s->is_suspended ? err_set(err, ERR_TENANT_SUSPENDED, "the tenant %s is suspended", s->tenant) : 0;
}

static int quota_refuse(const struct tenant_quota *s, const struct err_limit *l, struct err *err)
{
    err_set(err, ERR_QUOTA, "the tenant %s uses %" PRIu64 " of %" PRIu64 " %s, and this needs %" PRIu64 " more",
            s->tenant, l->used, l->max, l->name, l->requested);
    if (err)
        err->limit = *l;
    return -1;
}

int quota_reserve(struct tenant_quota *s, const uint64_t asked[STORE_QUOTA_COUNT], struct err *err)
{
    if (quota_check_suspended(s, err) < 0)
        return -1;
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++) {
        uint64_t limit = s->limit[q];

        if (!limit || (asked[q] <= limit && s->used[q] <= limit - asked[q]))
            continue;
        return quota_refuse(s, &(struct err_limit){ quota_names[q], s->used[q], asked[q], limit, 0 }, err);
    }
    quota_add_reserved(s, asked);
    return 0;
}

void quota_add_reserved(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT])
{
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++)
        s->used[q] += amounts[q];
}

void quota_release(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT])
{
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++)
        s->used[q] -= amounts[q];
}

/* Clears the counts of the minutes since the last call. */
static void quota_advance_minute(struct tenant_quota *s, uint64_t now_ms)
{
    uint64_t minute = now_ms / MINUTE_MS;

    for (unsigned i = 0; s->newest_minute < minute && i < QUOTA_MINUTES; i++)
        s->executions_by_minute[++s->newest_minute % QUOTA_MINUTES] = 0;
    s->newest_minute = max_u64(s->newest_minute, minute);
}

uint64_t quota_executions_last_hour(struct tenant_quota *s, uint64_t now_ms)
{
    uint64_t sum = 0;

    quota_advance_minute(s, now_ms);
    for (unsigned i = 0; i < QUOTA_MINUTES; i++)
        sum += s->executions_by_minute[i];
    return sum;
}

/* When the oldest minute with a count is replaced. */
static uint64_t quota_retry_ms(const struct tenant_quota *s, uint64_t now_ms)
{
    for (unsigned i = 1; i <= QUOTA_MINUTES; i++) {
        uint64_t at = s->newest_minute + i; /* replaces the minute one hour before */

        if (s->executions_by_minute[at % QUOTA_MINUTES])
            return at * MINUTE_MS - now_ms;
    }
    return MINUTE_MS;
}

int quota_reserve_execution(struct tenant_quota *s, uint64_t now_ms, struct err *err)
{
    uint64_t limit = s->limit[STORE_QUOTA_EXECUTIONS];
    uint64_t used = quota_executions_last_hour(s, now_ms);

    if (quota_check_suspended(s, err) < 0)
        return -1;
    if (limit && used >= limit)
        return quota_refuse(
            s, &(struct err_limit){ quota_names[STORE_QUOTA_EXECUTIONS], used, 1, limit, quota_retry_ms(s, now_ms) },
            err);
    s->executions_by_minute[s->newest_minute % QUOTA_MINUTES]++;
    return 0;
}

void quota_add_past_executions(struct tenant_quota *s, uint64_t now_ms, uint64_t age_minutes, uint64_t n)
{
    quota_advance_minute(s, now_ms);
    if (age_minutes < QUOTA_MINUTES)
        s->executions_by_minute[(s->newest_minute - age_minutes) % QUOTA_MINUTES] += (uint32_t)min_u64(n,
                                                                                                       UINT32_MAX / 2);
}

/* One hour is added, so that the clock is past its first hour even right after boot. */
uint64_t quota_now_ms(const struct ev *ev)
{
    return ev_now(ev) / NS_PER_MS + HOUR_MS;
}

void quota_amounts_for_spec(const struct spec *spec, uint64_t ret[STORE_QUOTA_COUNT])
{
    const uint64_t *v = spec->limits.v;

    ret[STORE_QUOTA_SANDBOXES] = 1;
    ret[STORE_QUOTA_CPU] = v[LIMIT_CPU];
    ret[STORE_QUOTA_MEMORY] = v[LIMIT_MEMORY];
    ret[STORE_QUOTA_STORAGE] = v[LIMIT_WORKSPACE];
    ret[STORE_QUOTA_EXECUTIONS] = 0;
}
