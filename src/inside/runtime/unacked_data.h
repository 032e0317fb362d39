/* unacked_data.h - the DATA bytes of one stream that were sent but not yet credited, in order, over all channels.
 *
 * They are kept so that a new host can be told again what the old one may not have stored. Pure: no descriptors. */
#pragma once

#include "core/base/base.h"

#define UNACKED_DATA_RUNS_MAX \
    4096u /* alternating one-byte writes to two channels must not grow the bookkeeping past the bytes */

struct unacked_data {
    uint8_t *data; /* a ring of cap bytes, a power of two */
    size_t cap, head, len;
    uint32_t *runs; /* length << 2 | channel; at the worst one for each byte */
    size_t runs_cap, runs_head, nruns;
    size_t read_run, read_pos; /* where unacked_data_read was last: a run, and the bytes before it */
};

void unacked_data_done(struct unacked_data *k);
/* With `merge`, bytes of the same channel may be joined with those before them; without, each call stays a unit. */
void unacked_data_add(struct unacked_data *k, uint8_t channel, const void *data, size_t len, bool merge);
bool unacked_data_drop(struct unacked_data *k,
                       size_t n); /* from the front; false, and nothing dropped, when it holds fewer */

/* Copies a piece of one channel, at most max bytes, beginning `pos` bytes after the front; returns its length, 0 at the
 * end. */
size_t unacked_data_read(struct unacked_data *k, size_t pos, uint8_t *channel, uint8_t *out, size_t max);
