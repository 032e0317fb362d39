/* usage_batch.h - usage of sandboxes without a row, summed by tenant, user and hour.
 *
 * The sums are committed about one second after the first amount; a kill loses the usage of that
 * second. If the store refuses, nothing is lost: the sums stay and are submitted again with later
 * ones. */
#pragma once

#include "core/ev/ev.h"
#include "store/usage.h"

struct usage_batch;

struct usage_batch *usage_batch_new(struct ev *ev, struct store *store); /* both are borrowed */
void usage_batch_free(struct usage_batch *b);
DEFINE_AUTO(usage_batch, usage_batch_free);

/* The row to which the caller adds amounts: of this tenant and user ("": unknown), in the hour of
 * at_ms. Valid until the next call. */
struct store_usage *usage_batch_row(struct usage_batch *b, const char *owner, const char *created_by, uint64_t at_ms);
/* Submits the rows to the store, ahead of calls made after this one. While an earlier submission is
 * pending, the rows wait for its answer. */
void usage_batch_flush(struct usage_batch *b);
void usage_batch_flush_last(struct usage_batch *b); /* for shutdown: submits the rows in any case */
