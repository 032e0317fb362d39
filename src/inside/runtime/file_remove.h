/* file_remove.h - REMOVE: one name, or with RT_PATH_RECURSIVE everything below it. DONE counts what was removed. */
#pragma once

#include "inside/runtime/files.h"

request_open_fn file_remove_open;

/* For RESET: everything in a directory, which stays. */
struct removal;
struct removal *removal_of_contents(const char *dir); /* NULL: with errno */
/* A bounded part of it. 1: there is more. 0: it is empty. -1: with errno. */
int removal_step(struct removal *r, uint64_t *removed);
void removal_free(struct removal *r);
