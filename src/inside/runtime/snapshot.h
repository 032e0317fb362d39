/* snapshot.h - SNAPSHOT and CHANGES: what changed in a tree since the snapshot.
 *
 * The first half is pure: a set of paths with the identity of their content, and a comparison. */
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

/* False if full; the snapshot is then truncated. */
bool snapshot_add(struct snapshot *m, const char *path, const struct snapshot_file *f);
bool snapshot_truncated(const struct snapshot *m);
size_t snapshot_count(const struct snapshot *m);
void snapshot_begin_compare(struct snapshot *m); /* starts a comparison: marks all paths as not seen */
/* Returns RT_ADDED, RT_MODIFIED, or 0 if unchanged. A directory is never modified: its entries show
 * the changes. A truncated snapshot cannot know what is new, so it returns 0 instead of a wrong
 * result. */
char snapshot_compare(struct snapshot *m, const char *path, const struct snapshot_file *f);
/* Returns the next path that was not seen since snapshot_begin_compare; *at starts at 0. NULL at
 * the end. */
const char *snapshot_next_deleted(const struct snapshot *m, size_t *at, struct snapshot_file *ret);

request_open_fn snapshot_open; /* path "": /workspace */
request_open_fn changes_open;  /* lists at most `length` changes, 0: all; counts all */
