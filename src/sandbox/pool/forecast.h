/* forecast.h - how many members a pool should hold, from when they were asked for.
 *
 * The caller passes the time in and says when a member was asked for; nothing here reads a clock, allocates or fails.
 * Every call takes a bounded time, whatever the numbers. Times that go backwards count as standing still. */
#pragma once

#include "core/base/base.h"

struct forecast_settings {
    uint32_t min, max;            /* the target is never outside; min <= max */
    uint32_t target_hit_permille; /* so many of a thousand who ask should find a member; 1 to 999 */
    uint64_t scale_down_ns;       /* a target that is not needed any more is kept for so long; at least a second */
};

struct forecast {
    /* the rate of arrivals */
    uint64_t last_ns;       /* of the latest */
    uint64_t interval_ns;   /* between two, on average; good from the second on */
    uint32_t arrivals_seen; /* arrivals since the last pause, up to where the average forgets */
    /* how many came within the time of one refill: two buckets of that length make a sliding window */
    uint64_t bucket_at;
    uint64_t window_ns;
    uint32_t current_count, previous_count;
    double smoothed_count; /* of whole windows, smoothed */
    /* the target, and what it may fall to */
    uint64_t pause_ns; /* of the latest settings */
    uint64_t level_at; /* when the level was needed for the last time */
    uint32_t level;
    uint32_t lower_level; /* the most that was needed since then */
};

void forecast_init(struct forecast *f, uint64_t now_ns);
void forecast_arrival(struct forecast *f, uint64_t now_ns); /* somebody asks for a member, found or not */
/* refill_ns: how long it takes from asking for a member to having it, as measured. */
uint32_t forecast_target(struct forecast *f, uint64_t now_ns, uint64_t refill_ns, const struct forecast_settings *set);
/* When the target may fall although nothing happens; 0: not at all. For one timer, after forecast_target. */
uint64_t forecast_next_ns(const struct forecast *f, const struct forecast_settings *set);
/* Arrivals in a thousand seconds, for people. */
uint64_t forecast_rate_milli(const struct forecast *f, uint64_t now_ns);
