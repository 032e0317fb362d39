/* file_remove.h - REMOVE: one name, or with RT_PATH_RECURSIVE everything below it. DONE returns the
 * number of removed entries. */
#pragma once

#include "inside/runtime/files.h"

request_open_fn file_remove_open;

/* For RESET: removes all contents of a directory and keeps the directory. */
struct removal;
struct removal *removal_of_contents(const char *dir); /* NULL: error, with errno */
/* Does one slice of the work. 1: more to do. 0: the directory is empty. -1: error, with errno. */
int removal_step(struct removal *r, uint64_t *removed);
void removal_free(struct removal *r);
