/* ways.h - a table of fixed size that forgets: which row of it a name belongs to.
 *
 * Names come from strangers (addresses, hashes of keys they made up), so a table must neither grow nor slow down with
 * them. Each name has WAYS places; when all are taken the caller gives up the one it misses least. The row is chosen
 * with a secret, so nobody can aim at the places of another. */
#pragma once

#include "base/base.h"

#define WAYS 8u

struct ways {
    uint64_t secret[2];
    uint32_t rows; /* a power of two */
};

void ways_init(struct ways *w, uint32_t rows);
size_t ways_first(const struct ways *w, const void *name, size_t len); /* index of its first place; WAYS follow */
