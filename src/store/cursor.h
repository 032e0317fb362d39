/* cursor.h - the position in a list: creation time and id of the last row of a page, as text. */
#pragma once

#include "store/store.h"

struct store_cursor {
    uint64_t created_ms;
    char id[STORE_NAME_MAX + 1];
};

void store_cursor_format(const struct store_cursor *c, char ret[STORE_CURSOR_SIZE]);
/* The text comes from a client. `kind` is the two-letter prefix of the ids in this list; NULL
 * for a list by name. */
int store_cursor_parse(const char *text, const char *kind, struct store_cursor *ret, struct err *err);
