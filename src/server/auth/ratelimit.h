/* ratelimit.h - token buckets: a rule says how many, a bucket says how many are left.
 *
 * Every key has a bucket of its own for each class of requests, and all share the rules. The caller passes the time in;
 * nothing here reads a clock, so a test is a list of numbers. A zeroed bucket is full. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct ratelimit_rule {
    uint64_t interval_ns; /* one token comes back in this time; 0: no limit */
    uint64_t window_ns;   /* a whole bucket comes back in this time */
    uint32_t burst;
};

struct ratelimit {
    uint64_t full_at;
};

/* For the headers of the answer. */
struct ratelimit_answer {
    uint32_t limit;     /* tokens in a full bucket; 0: no limit */
    uint32_t remaining; /* after this request */
    uint64_t reset_ns;  /* until the bucket is full again */
    uint64_t retry_ns;  /* refused: until there is a token */
};

/* Reads "RATE/s", "RATE/m" or "RATE/h", then optionally " burst N"; without a burst, N is RATE. "none" is no limit. */
int ratelimit_parse(const char *text, struct ratelimit_rule *ret, struct err *err);

/* Takes one token. False means the bucket is empty and the answer is 429. */
bool ratelimit_take(const struct ratelimit_rule *rule, struct ratelimit *rl, uint64_t now_ns,
                    struct ratelimit_answer *ret);
/* Whether there is one, without taking it. */
bool ratelimit_has_token(const struct ratelimit_rule *rule, const struct ratelimit *rl, uint64_t now_ns);
