/* bounded_table.h - a table of fixed size that forgets: which row of it a name belongs to.
 *
 * Names come from strangers (addresses, hashes of keys they made up), so a table must neither grow nor slow down with
 * them. Each name has BOUNDED_TABLE_WAYS places; when all are taken the caller gives up the one it misses least. The
 * row is chosen with a secret, so nobody can aim at the places of another. */
#pragma once

#include "core/base/base.h"

#define BOUNDED_TABLE_WAYS 8u

struct bounded_table {
    uint64_t secret[2];
    uint32_t rows; /* a power of two */
};

void bounded_table_init(struct bounded_table *w, uint32_t rows);
size_t bounded_table_row(const struct bounded_table *w, const void *name,
                         size_t len); /* index of its first place; BOUNDED_TABLE_WAYS follow */
