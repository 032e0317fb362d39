/* forecast.h - how many members a pool should hold, from the times at which members were
 * requested.
 *
 * The caller passes the time in and reports each request; nothing here reads a clock, allocates
 * or fails. Every call takes bounded time for any input. A time that goes backwards counts as
 * unchanged. */
#pragma once

#include "core/base/base.h"

struct forecast_settings {
    uint32_t min, max;            /* the target is always within [min, max]; min <= max */
    uint32_t target_hit_permille; /* wanted share of requests that find a member, in thousandths; 1 to 999 */
    uint64_t scale_down_ns;       /* how long a target that is no longer needed is kept; at least one second */
};

struct forecast {
    /* The rate of arrivals. */
    uint64_t last_ns;       /* time of the latest arrival */
    uint64_t interval_ns;   /* average time between two arrivals; valid from the second arrival on */
    uint32_t arrivals_seen; /* arrivals since the last pause, up to the length of the average */
    /* Arrivals within the duration of one refill: two buckets of that length form a sliding
     * window. */
    uint64_t bucket_at;
    uint64_t window_ns;
    uint32_t current_count, previous_count;
    double smoothed_count; /* average over complete windows, exponentially smoothed */
    /* The target, and the value that it may fall to. */
    uint64_t pause_ns; /* from the latest settings */
    uint64_t level_at; /* when `level` was needed for the last time */
    uint32_t level;
    uint32_t lower_level; /* the highest level that was needed since level_at */
};

void forecast_init(struct forecast *f, uint64_t now_ns);
void forecast_arrival(struct forecast *f, uint64_t now_ns); /* a member is requested, whether there is one or not */
/* refill_ns: measured time from starting to create a member until it is ready. */
uint32_t forecast_target(struct forecast *f, uint64_t now_ns, uint64_t refill_ns, const struct forecast_settings *set);
/* When the target may fall although nothing happens; 0: never. For one timer, set after
 * forecast_target. */
uint64_t forecast_next_ns(const struct forecast *f, const struct forecast_settings *set);
/* Arrivals per 1000 seconds, for display. */
uint64_t forecast_rate_milli(const struct forecast *f, uint64_t now_ns);
