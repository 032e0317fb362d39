/* limit_hits.h - which limits refused a program something, and which of them nobody can see refusing. */
#pragma once

#include "sandbox/receipt.h"

struct limit_hit {
    enum limit limit;
    uint64_t count; /* 0: it happened, and how often is counted by nothing */
    const char *how;
    char fix[64];
};

/* The limits that refused for certain, in the order of the table. Returns how many. */
size_t limit_hits_list(const struct receipt *r, struct limit_hit ret[LIMIT_COUNT]);
/* Why a refusal by this limit may have happened without being known; NULL when it would be. */
const char *limit_hit_unobservable(const struct receipt *r, enum limit l);
