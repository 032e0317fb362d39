/* reported_names.h - names that a watch told because it found them, and that may yet be told by the kernel too.
 *
 * A set of hashes of 64 bits. It is bounded: beyond REPORTED_NAMES_MAX a name is forgotten, and may then be told twice.
 */
#pragma once

#include "core/base/base.h"

#define REPORTED_NAMES_MAX 65536u

struct reported_names {
    uint64_t *keys;
    size_t slots, used; /* used: slots that are not free, left ones included */
};

void reported_names_add(struct reported_names *t, int wd, const char *name);
bool reported_names_remove(struct reported_names *t, int wd, const char *name); /* true: it was there; it is no more */
void reported_names_clear(struct reported_names *t);
