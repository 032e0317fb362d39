/* told.h - names that a watch told because it found them, and that may yet be told by the kernel too.
 *
 * A set of hashes of 64 bits. It is bounded: beyond TOLD_MAX a name is forgotten, and may then be told twice. */
#pragma once

#include "base/base.h"

#define TOLD_MAX 65536u

struct told {
    uint64_t *keys;
    size_t slots, used; /* used: slots that are not free, left ones included */
};

void told_put(struct told *t, int wd, const char *name);
bool told_take(struct told *t, int wd, const char *name); /* true: it was there; it is no more */
void told_clear(struct told *t);
