/* clock.h - the only place that reads a clock. Everything else takes the time as an argument. */
#pragma once

#include "core/base/base.h"

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: durations, deadlines */
uint64_t clock_real_ns(void); /* CLOCK_REALTIME: stamps for people */
uint64_t clock_real_ms(void); /* the same in milliseconds */

/* RFC 3339 UTC with milliseconds: "2026-11-15T22:26:50.123Z". buf needs 32 bytes and is returned. */
char *clock_rfc3339(uint64_t real_ns, char buf[32]);
/* The same for times that somebody chose: nanoseconds end in the year 2554. */
char *clock_rfc3339_ms(uint64_t real_ms, char buf[32]);
/* Milliseconds since 1970 from RFC 3339: with a fraction or without, Z or an offset. False for anything else, and for
 * times before 1970. */
bool clock_from_rfc3339(const char *text, uint64_t *ret_ms);
