/* Executions are counted by the minute, in a ring of an hour: what is older than its place in the ring falls out with
 * the minute that takes the place over. So "an hour" is between 59 and 60 minutes, and counting costs the same at any
 * rate. Time is that of the machine: the calendar may be set, and a quota with it. */
#include "sandbox/share.h"

#include "base/str.h"

#include <inttypes.h>

#define MINUTE_MS 60000u

const char *const share_quota_names[STORE_QUOTA_COUNT] = { "sandboxes", "cpuMillis", "memoryBytes", "storageBytes",
                                                           "executionsPerHour" };

static int barred(const struct share *s, struct err *err)
{
    return s->barred ? err_set(err, ERR_TENANT_SUSPENDED, "the tenant %s is suspended", s->name) : 0;
}

static int refuse(const struct share *s, const struct share_refusal *r, struct err *err)
{
    return err_set(err, ERR_QUOTA, "the tenant %s uses %" PRIu64 " of %" PRIu64 " %s, and this needs %" PRIu64 " more",
                   s->name, r->used, r->limit, share_quota_names[r->quota], r->asked);
}

int share_take(struct share *s, const uint64_t asked[STORE_QUOTA_COUNT], struct share_refusal *ret, struct err *err)
{
    if (barred(s, err) < 0)
        return -1;
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++) {
        uint64_t limit = s->quota[q];

        if (!limit || (asked[q] <= limit && s->used[q] <= limit - asked[q]))
            continue;
        *ret = (struct share_refusal){ .quota = q, .used = s->used[q], .asked = asked[q], .limit = limit };
        return refuse(s, ret, err);
    }
    share_hold(s, asked);
    return 0;
}

void share_hold(struct share *s, const uint64_t amounts[STORE_QUOTA_COUNT])
{
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++)
        s->used[q] += amounts[q];
}

void share_give(struct share *s, const uint64_t amounts[STORE_QUOTA_COUNT])
{
    for (unsigned q = 0; q < STORE_QUOTA_EXECUTIONS; q++)
        s->used[q] -= amounts[q];
}

/* Empties the places of the minutes that passed since the last count. */
static void advance(struct share *s, uint64_t now_ms)
{
    uint64_t minute = now_ms / MINUTE_MS;

    for (unsigned i = 0; s->minute < minute && i < SHARE_MINUTES; i++)
        s->begun[++s->minute % SHARE_MINUTES] = 0;
    s->minute = max_u64(s->minute, minute);
}

uint64_t share_executions(struct share *s, uint64_t now_ms)
{
    uint64_t sum = 0;

    advance(s, now_ms);
    for (unsigned i = 0; i < SHARE_MINUTES; i++)
        sum += s->begun[i];
    return sum;
}

/* When the oldest minute that has any falls out. */
static uint64_t retry_ms(const struct share *s, uint64_t now_ms)
{
    for (unsigned i = 1; i <= SHARE_MINUTES; i++) {
        uint64_t at = s->minute + i; /* takes over the place of the minute an hour before */

        if (s->begun[at % SHARE_MINUTES])
            return at * MINUTE_MS - now_ms;
    }
    return MINUTE_MS;
}

int share_take_execution(struct share *s, uint64_t now_ms, struct share_refusal *ret, struct err *err)
{
    uint64_t limit = s->quota[STORE_QUOTA_EXECUTIONS];
    uint64_t used = share_executions(s, now_ms);

    if (barred(s, err) < 0)
        return -1;
    if (limit && used >= limit) {
        *ret = (struct share_refusal){ STORE_QUOTA_EXECUTIONS, used, 1, limit, retry_ms(s, now_ms) };
        return refuse(s, ret, err);
    }
    s->begun[s->minute % SHARE_MINUTES]++;
    return 0;
}

void share_note_executions(struct share *s, uint64_t now_ms, uint64_t age_minutes, uint64_t n)
{
    advance(s, now_ms);
    if (age_minutes < SHARE_MINUTES)
        s->begun[(s->minute - age_minutes) % SHARE_MINUTES] += (uint32_t)min_u64(n, UINT32_MAX / 2);
}
