/* snapshot.h - SNAPSHOT and CHANGES: what became of a tree since it was last looked at.
 *
 * The first half is pure: a set of paths with what identifies their content, and a comparison. */
#pragma once

#include "core/base/buf.h"
#include "inside/runtime/files.h"

#define SNAPSHOT_ENTRIES_MAX 100000u
#define SNAPSHOT_BYTES_MAX (16u * 1024u * 1024u)

struct snapshot_file {
    char kind; /* as in struct rt_entry */
    uint64_t ino, ctime_ns, size;
};

struct snapshot;
struct snapshot *snapshot_new(void);
void snapshot_free(struct snapshot *m);
DEFINE_AUTO(snapshot, snapshot_free);

bool snapshot_add(struct snapshot *m, const char *path,
                  const struct snapshot_file *f); /* false when full; then it is truncated */
bool snapshot_truncated(const struct snapshot *m);
size_t snapshot_count(const struct snapshot *m);
void snapshot_begin_compare(struct snapshot *m); /* before a comparison: nothing was seen again yet */
/* RT_ADDED, RT_MODIFIED, or 0 when it is what it was. A directory is never modified: what is in it tells. A truncated
 * mark does not know what is new, and says 0 rather than something untrue. */
char snapshot_compare(struct snapshot *m, const char *path, const struct snapshot_file *f);
/* The next path that was not seen again since snapshot_begin_compare; *at starts as 0. NULL at the end. */
const char *snapshot_next_deleted(const struct snapshot *m, size_t *at, struct snapshot_file *ret);

request_open_fn snapshot_open; /* "" is /workspace */
request_open_fn changes_open;  /* at most `length` of them are listed, 0 is all; all are counted */
