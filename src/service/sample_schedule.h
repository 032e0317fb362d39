/* sample_schedule.h - when the CPU counters of live sandboxes are sampled.
 *
 * The caller passes both clocks in: the clock of the loop (ns) and the wall clock (ms), which
 * determines full minutes and hours. */
#pragma once

#include "core/base/base.h"

#define SAMPLE_NEVER UINT64_MAX

struct sample_schedule {
    size_t live_sandboxes;     /* set by the caller */
    size_t running_executions; /* set by the caller */
    uint64_t activity_ns;      /* when something last began or ended */
    uint64_t sampled_ns;       /* the last sample */
    uint64_t next_tick_ns;     /* the next full minute or hour; 0: none yet */
};

/* Call it when something began or ended. */
void sample_schedule_activity(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms);

/* Call it after a sample. moved: a counter grows although no execution runs. */
void sample_schedule_sampled(struct sample_schedule *l, uint64_t now_ns, uint64_t now_ms, bool moved);

/* The time of the next sample; SAMPLE_NEVER: no sandbox is live. */
uint64_t sample_schedule_next_ns(const struct sample_schedule *l);
