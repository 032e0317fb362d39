/* mark.h - MARK and CHANGES: what became of a tree since it was last looked at.
 *
 * The first half is pure: a set of paths with what identifies their content, and a comparison. */
#pragma once

#include "base/buf.h"
#include "runtime/files.h"

#define MARK_ENTRIES_MAX 100000u
#define MARK_BYTES_MAX (16u * 1024u * 1024u)

struct mark_file {
    char kind; /* as in struct rt_entry */
    uint64_t ino, ctime_ns, size;
};

struct mark;
struct mark *mark_new(void);
void mark_free(struct mark *m);
DEFINE_AUTO(mark, mark_free);

bool mark_add(struct mark *m, const char *path, const struct mark_file *f); /* false when full; then it is truncated */
bool mark_truncated(const struct mark *m);
size_t mark_count(const struct mark *m);
void mark_begin(struct mark *m); /* before a comparison: nothing was seen again yet */
/* RT_ADDED, RT_MODIFIED, or 0 when it is what it was. A directory is never modified: what is in it tells. A truncated
 * mark does not know what is new, and says 0 rather than something untrue. */
char mark_compare(struct mark *m, const char *path, const struct mark_file *f);
/* The next path that was not seen again since mark_begin; *at starts as 0. NULL at the end. */
const char *mark_deleted(const struct mark *m, size_t *at, struct mark_file *ret);

request_open mark_open;    /* "" is /workspace */
request_open changes_open; /* at most `length` of them are listed, 0 is all; all are counted */
