/* clock.h - the only module that reads a clock. All other code takes the time as an argument. */
#pragma once

#include "core/base/base.h"

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: durations, deadlines */
uint64_t clock_real_ns(void); /* CLOCK_REALTIME: timestamps for people */
uint64_t clock_real_ms(void); /* clock_real_ns in milliseconds */

/* RFC 3339 UTC with milliseconds: "2026-11-15T22:26:50.123Z". Returns buf. */
char *clock_rfc3339(uint64_t real_ns, char buf[32]);
/* As clock_rfc3339, for times that a user chose: a uint64_t of nanoseconds overflows in the year
 * 2554. */
char *clock_rfc3339_ms(uint64_t real_ms, char buf[32]);
/* Parses RFC 3339, with or without a fraction, with Z or an offset, to milliseconds since 1970.
 * False for any other text, and for times before 1970. */
bool clock_from_rfc3339(const char *text, uint64_t *ret_ms);
