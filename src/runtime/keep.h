/* keep.h - the DATA bytes of one stream that were sent but not yet credited, in order, over all channels.
 *
 * They are kept so that a new host can be told again what the old one may not have stored. Pure: no descriptors. */
#pragma once

#include "base/base.h"

#define KEEP_RUNS_MAX \
    4096u /* alternating one-byte writes to two channels must not grow the bookkeeping past the bytes */

struct keep {
    uint8_t *data; /* a ring of cap bytes, a power of two */
    size_t cap, head, len;
    uint32_t *runs; /* length << 2 | channel; at the worst one for each byte */
    size_t runs_cap, runs_head, nruns;
    size_t at_run, at_pos; /* where keep_read was last: a run, and the bytes before it */
};

void keep_done(struct keep *k);
/* With `merge`, bytes of the same channel may be joined with those before them; without, each call stays a unit. */
void keep_add(struct keep *k, uint8_t channel, const void *data, size_t len, bool merge);
bool keep_drop(struct keep *k, size_t n); /* from the front; false, and nothing dropped, when it holds fewer */

/* Copies a piece of one channel, at most max bytes, beginning `pos` bytes after the front; returns its length, 0 at the
 * end. */
size_t keep_read(struct keep *k, size_t pos, uint8_t *channel, uint8_t *out, size_t max);
