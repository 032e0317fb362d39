/* reported_names.h - names already reported by a directory scan, so that the inotify event for the
 * same name is dropped.
 *
 * A set of 64-bit hashes. It is bounded: beyond REPORTED_NAMES_MAX a name is not stored and may be
 * reported twice. */
#pragma once

#include "core/base/base.h"

#define REPORTED_NAMES_MAX 65536u

struct reported_names {
    uint64_t *keys;
    size_t slots, used; /* used: slots that are not free, tombstones included */
};

void reported_names_add(struct reported_names *t, int wd, const char *name);
bool reported_names_remove(struct reported_names *t, int wd, const char *name); /* true: it was present */
void reported_names_clear(struct reported_names *t);
