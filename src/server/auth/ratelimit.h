/* ratelimit.h - token buckets: a rule holds the rate, a bucket the remaining tokens.
 *
 * Every key has a bucket for each class of requests, and all keys share the rules. The caller
 * passes the time; this module reads no clock, so that tests are deterministic. A zeroed bucket is
 * full. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct ratelimit_rule {
    uint64_t interval_ns; /* time to refill one token; 0: no limit */
    uint64_t window_ns;   /* time to refill the whole bucket */
    uint32_t burst;
};

struct ratelimit {
    uint64_t full_at;
};

/* Values for the headers of the response. */
struct ratelimit_answer {
    uint32_t limit;     /* tokens in a full bucket; 0: no limit */
    uint32_t remaining; /* after this request */
    uint64_t window_ns; /* in which an empty bucket is refilled */
    uint64_t reset_ns;  /* until the bucket is full again */
    uint64_t retry_ns;  /* if refused: time until there is a token */
};

/* Parses "RATE/s", "RATE/m" or "RATE/h", then optionally " burst N"; without a burst, N is RATE.
 * "none" disables the limit. */
int ratelimit_parse(const char *text, struct ratelimit_rule *ret, struct err *err);

/* Takes one token. Returns false if the bucket is empty; the response is then 429. */
bool ratelimit_take(const struct ratelimit_rule *rule, struct ratelimit *rl, uint64_t now_ns,
                    struct ratelimit_answer *ret);
/* Whether there is a token, without taking it. */
bool ratelimit_has_token(const struct ratelimit_rule *rule, const struct ratelimit *rl, uint64_t now_ns);
