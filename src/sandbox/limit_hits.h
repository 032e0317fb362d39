/* limit_hits.h - which limits an execution reached, and for which limits that cannot be
 * observed. */
#pragma once

#include "sandbox/receipt.h"

struct limit_hit {
    enum limit limit;
    uint64_t count; /* 0: it happened, but the occurrences are not counted */
    const char *how;
    char fix[64];
};

/* The limits that certainly refused an operation, in the order of the limits table. Returns
 * their number. */
size_t limit_hits_list(const struct receipt *r, struct limit_hit ret[LIMIT_COUNT]);
/* Why this limit may have refused an operation unnoticed; NULL when a refusal would be known. */
const char *limit_hit_unobservable(const struct receipt *r, enum limit l);
