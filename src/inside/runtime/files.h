/* files.h - file requests: READ, WRITE, LIST, STAT, MKDIR, MOVE. REMOVE is in file_remove.h,
 * archives are in archive.h.
 *
 * All operations run with the rights of the sandbox's user, inside its limits and walls; the host
 * never opens a path of the sandbox itself. */
#pragma once

#include "inside/runtime/runtime.h"

typedef int request_open_fn(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err);

/* Sends `length` bytes from `offset` as DATA, then DONE with the entry. Length 0: up to the file's
 * current end. */
request_open_fn file_read_open;
request_open_fn file_write_open; /* writes a temporary file and renames it over the target after the last byte */
request_open_fn dir_list_open;   /* sends at most `length` entries, 0: all; in directory order */
request_open_fn file_stat_open;  /* of the name itself: does not follow a link */
request_open_fn dir_make_open;
request_open_fn file_move_open;

/* Fills all fields except the name. `fd` is the directory that contains `name`; or the file's own
 * descriptor, with name "". */
void file_entry_fill(struct rt_entry *e, const struct stat *st, int fd, const char *name);
/* Sets version and settled. looked_ns: file_clock_ns() before the fstat() that filled *st. */
void file_entry_set_version(struct rt_entry *e, const struct stat *st, uint64_t looked_ns);
uint64_t file_clock_ns(void); /* the clock from which the kernel takes the times of files */
