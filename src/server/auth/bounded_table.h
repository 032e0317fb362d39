/* bounded_table.h - maps a name to a row of a table of fixed size with eviction.
 *
 * Names are untrusted input (addresses, hashes of invalid keys), so a table must neither grow nor
 * slow down with them. Each name has BOUNDED_TABLE_WAYS slots; when all are in use, the caller
 * evicts the least valuable one. A secret selects the row, so an attacker cannot target the slots
 * of another name. */
#pragma once

#include "core/base/base.h"

#define BOUNDED_TABLE_WAYS 8u

struct bounded_table {
    uint64_t secret[2];
    uint32_t rows; /* a power of two */
};

void bounded_table_init(struct bounded_table *w, uint32_t rows);
/* Returns the index of the first of the name's BOUNDED_TABLE_WAYS consecutive slots. */
size_t bounded_table_row(const struct bounded_table *w, const void *name, size_t len);
