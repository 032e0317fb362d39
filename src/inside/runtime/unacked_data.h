/* unacked_data.h - the DATA bytes of one stream sent but not yet credited, in order, over all
 * channels.
 *
 * They are kept so that a new host can be sent the bytes that the old one may not have stored.
 * Pure: no descriptors. */
#pragma once

#include "core/base/base.h"

#define UNACKED_DATA_RUNS_MAX 4096u /* alternating one-byte writes must not grow the runs beyond the bytes */

struct unacked_data {
    uint8_t *data; /* ring of cap bytes, a power of two */
    size_t cap, head, len;
    uint32_t *runs; /* length << 2 | channel; at worst one per byte */
    size_t runs_cap, runs_head, nruns;
    size_t read_run, read_pos; /* cached position of unacked_data_read: a run, and the bytes before it */
};

void unacked_data_done(struct unacked_data *k);
/* With `merge`, the bytes may be joined with preceding ones of the same channel; without it, each
 * call stays a unit. */
void unacked_data_add(struct unacked_data *k, uint8_t channel, const void *data, size_t len, bool merge);
/* Drops n bytes from the front. False, without dropping any, if it holds fewer. */
bool unacked_data_drop(struct unacked_data *k, size_t n);

/* Copies a piece of one channel, at most max bytes, starting `pos` bytes after the front. Returns
 * its length, 0 at the end. */
size_t unacked_data_read(struct unacked_data *k, size_t pos, uint8_t *channel, uint8_t *out, size_t max);
