/* throttle.h - slows down clients that try invalid keys.
 *
 * Every address has a bucket of failed attempts; a client with a valid key never touches it. IPv6
 * addresses count by their /64, because one host owns all of it. A second bucket counts the
 * attempts of all addresses together and bounds the cost of a distributed search. */
#pragma once

#include "core/base/base.h"

struct throttle;

struct throttle *throttle_new(void);
void throttle_free(struct throttle *t);
DEFINE_AUTO(throttle, throttle_free);

/* Whether this address may try an unknown key. False: after *retry_ns. peer NULL is a local peer;
 * all local peers share one bucket. */
bool throttle_may_try(struct throttle *t, const char *peer, uint64_t now_ns, uint64_t *retry_ns);
/* Whether a client of a throttled address may try an unknown key. A few of all attempts may:
 * otherwise a neighbour with the same address could, with a few failures, lock out every key that
 * is not in the cache. */
bool throttle_may_look_up(struct throttle *t, uint64_t now_ns);
/* Counts a failed attempt. */
void throttle_record_failure(struct throttle *t, const char *peer, uint64_t now_ns);
