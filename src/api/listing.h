/* listing.h - one page of a directory: the first names behind a given one, of entries that come in any order. */
#pragma once

#include "base/buf.h"
#include "sandbox/manager.h"

struct listing {
    size_t max;                /* entries of the page */
    struct files_entry **heap; /* those of least name so far, the greatest of them first; one more than the page has */
    size_t n, room;
    char *after; /* only names behind this one; NULL: all */
};

/* cursor: the nextCursor of the page before, or NULL. */
int listing_init(struct listing *l, size_t max, const char *cursor, struct err *err);
void listing_add(struct listing *l, const struct files_entry *e); /* copied if it may be on the page */
void listing_done(struct listing *l);

/* All have come: heap[0..n) is the page, in order. True: there is more behind it, and ret_cursor says where. */
bool listing_end(struct listing *l, struct buf *ret_cursor);
