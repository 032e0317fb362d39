/* backoff.h - exponential back-off: each wait is twice the one before, from min_ns up to max_ns. */
#pragma once

#include "core/base/base.h"

struct backoff {
    uint64_t min_ns, max_ns;
    uint64_t wait_ns; /* what backoff_next returned last; 0: nothing failed since the last reset */
};

/* The time to wait after one more failure. */
static inline uint64_t backoff_next(struct backoff *b)
{
    b->wait_ns = b->wait_ns ? min_u64(b->wait_ns * 2, b->max_ns) : b->min_ns;
    return b->wait_ns;
}

/* After a success: the next failure waits min_ns. */
static inline void backoff_reset(struct backoff *b)
{
    b->wait_ns = 0;
}
