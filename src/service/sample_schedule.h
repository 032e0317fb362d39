/* sample_schedule.h - when the counters of living sandboxes are read.
 *
 * The caller passes both clocks in: that of the loop, and that of the calendar, at whose full minutes and hours the
 * looks are. */
#pragma once

#include "core/base/base.h"

#define SAMPLE_NEVER UINT64_MAX

struct sample_schedule {
    size_t live_sandboxes;     /* sandboxes: the caller keeps these two */
    size_t running_executions; /* executions in them */
    uint64_t activity_ns;      /* something began or ended last */
    uint64_t sampled_ns;       /* the last look */
    uint64_t next_tick_ns;     /* the full minute or hour that is waited for; 0: none yet */
};

/* Something began or ended. */
void sample_schedule_activity(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms);

/* There was a look; moved: a counter of what nobody waits for goes on. */
void sample_schedule_sampled(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms, bool moved);

/* The moment of the next look; SAMPLE_NEVER: nothing is there to look at. */
uint64_t sample_schedule_next_ns(const struct sample_schedule *l);
