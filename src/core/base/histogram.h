/* histogram.h - durations counted in buckets: below 1, 2, 4, ... 4096 ms, and the rest. */
#pragma once

#include "core/base/base.h"

#define HISTOGRAM_BUCKETS 14u

struct histogram {
    uint64_t
        counts[HISTOGRAM_BUCKETS]; /* durations below 1 << i ms that are in no bucket before; the last has the rest */
    uint64_t sum_ns;
};

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    unsigned i = 0;

    while (i < HISTOGRAM_BUCKETS - 1 && ns >= (UINT64_C(1) << i) * NS_PER_MS)
        i++;
    h->counts[i]++;
    h->sum_ns += ns;
}
