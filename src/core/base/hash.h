/* hash.h - FNV-1a, 64 bits, for hash tables and for comparing values that are not hostile.
 *
 * A client that chooses the keys can make them collide. So each table of this tree has
 * keys that clients cannot choose (ids that the server draws at random, names that an operator
 * gives), or lives inside the sandbox that it serves. */
#pragma once

#include "core/base/base.h"

#define HASH_INIT 14695981039346656037ull

/* Continues the hash h with len bytes; begin with HASH_INIT. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

static inline uint64_t hash_str(uint64_t h, const char *text)
{
    return hash_bytes(h, text, strlen(text));
}

/* Folds the high bits into the low ones, by which a table of a power of two is indexed. */
static inline uint64_t hash_fold(uint64_t h)
{
    return h ^ h >> 29;
}
