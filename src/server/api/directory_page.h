/* directory_page.h - one page of a directory listing: the first names after a given one, selected
 * from entries that arrive in any order. */
#pragma once

#include "core/base/buf.h"
#include "service/manager.h"

struct directory_page {
    size_t max; /* entries per page */
    /* A max-heap by name: the smallest max + 1 names seen so far, the greatest of them first. */
    struct files_entry **heap;
    size_t n, room;
    char *after_name; /* only names greater than this; NULL: all */
};

/* cursor: the nextCursor of the previous page, or NULL. */
int directory_page_init(struct directory_page *l, size_t max, const char *cursor, struct err *err);
void directory_page_add(struct directory_page *l, const struct files_entry *e); /* copies e if it can be on the page */
void directory_page_done(struct directory_page *l);

/* Call it after the last entry: heap[0..n) is then the page, sorted. True: more entries follow, and
 * ret_cursor is the cursor of the next page. */
bool directory_page_finish(struct directory_page *l, struct buf *ret_cursor);
