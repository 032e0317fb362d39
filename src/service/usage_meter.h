/* usage_meter.h - the timer that samples the CPU counters of live sandboxes, so that the usage of a
 * long execution is recorded in the hours in which it ran, and a crash of the machine loses at most
 * a minute. */
#pragma once

#include "core/ev/ev.h"

struct usage_meter;

/* Reads all counters and sends them to the store. since_ns: the time since the last sample or the
 * last activity, whichever is later. Returns whether a counter grew although no execution runs. */
typedef bool usage_meter_sample_fn(void *arg, uint64_t since_ns);

struct usage_meter *usage_meter_new(struct ev *ev, usage_meter_sample_fn *sample, void *arg);
void usage_meter_free(struct usage_meter *u);
DEFINE_AUTO(usage_meter, usage_meter_free);

/* Something began or ended; live_sandboxes is their current number. */
void usage_meter_activity(struct usage_meter *u, size_t live_sandboxes);
void usage_meter_execution_begin(struct usage_meter *u);
void usage_meter_execution_end(struct usage_meter *u);
