/* looks.h - when the counters of living sandboxes are read.
 *
 * The caller passes both clocks in: that of the loop, and that of the calendar, at whose full minutes and hours the
 * looks are. */
#pragma once

#include "base/base.h"

#define LOOKS_NEVER UINT64_MAX

struct looks {
    size_t living;       /* sandboxes: the caller keeps these two */
    size_t executing;    /* executions in them */
    uint64_t stirred_ns; /* something began or ended last */
    uint64_t looked_ns;  /* the last look */
    uint64_t full_ns;    /* the full minute or hour that is waited for; 0: none yet */
};

/* Something began or ended. */
void looks_stir(struct looks *l, uint64_t now_ns, uint64_t now_ms);

/* There was a look; moved: a counter of what nobody waits for goes on. */
void looks_done(struct looks *l, uint64_t now_ns, uint64_t now_ms, bool moved);

/* The moment of the next look; LOOKS_NEVER: nothing is there to look at. */
uint64_t looks_next(const struct looks *l);
