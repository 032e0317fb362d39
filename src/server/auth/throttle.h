/* throttle.h - slows down those who try keys.
 *
 * Every address has a bucket of wrong attempts; a client that is right never touches it. Addresses of IPv6 count by
 * their /64, because one host has all of it. A second bucket counts for everybody together and bounds what a search
 * from many addresses at once can cost the store. */
#pragma once

#include "core/base/base.h"

struct throttle;

struct throttle *throttle_new(void);
void throttle_free(struct throttle *t);
DEFINE_AUTO(throttle, throttle_free);

/* May this address try a key that we do not know? False: after *retry_ns. NULL is a local peer, counted as one. */
bool throttle_may_try(struct throttle *t, const char *peer, uint64_t now_ns, uint64_t *retry_ns);
/* May somebody try all the same whose address has to wait? A few of all that come may: or a neighbour behind the same
 * address, by being wrong once in a while, shut out every key that nobody has seen yet. */
bool throttle_may_look_up(struct throttle *t, uint64_t now_ns);
/* It tried, and was wrong. */
void throttle_record_failure(struct throttle *t, const char *peer, uint64_t now_ns);
