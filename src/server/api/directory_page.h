/* directory_page.h - one page of a directory: the first names behind a given one, of entries that come in any order. */
#pragma once

#include "core/base/buf.h"
#include "service/manager.h"

struct directory_page {
    size_t max;                /* entries of the page */
    struct files_entry **heap; /* those of least name so far, the greatest of them first; one more than the page has */
    size_t n, room;
    char *after_name; /* only names behind this one; NULL: all */
};

/* cursor: the nextCursor of the page before, or NULL. */
int directory_page_init(struct directory_page *l, size_t max, const char *cursor, struct err *err);
void directory_page_add(struct directory_page *l, const struct files_entry *e); /* copied if it may be on the page */
void directory_page_done(struct directory_page *l);

/* All have come: heap[0..n) is the page, in order. True: there is more behind it, and ret_cursor says where. */
bool directory_page_finish(struct directory_page *l, struct buf *ret_cursor);
