/* files.h - requests about files: READ, WRITE, LIST, STAT, MKDIR, MOVE. REMOVE is in file_remove.h, archives in
 * tar_in.h and tar_out.h.
 *
 * Everything happens with the rights of the sandbox's user, inside its quota and its walls; the host never opens a path
 * of the sandbox itself. */
#pragma once

#include "inside/runtime/runtime.h"

typedef int request_open_fn(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err);

request_open_fn
    file_read_open; /* DATA from offset on: `length` bytes, 0 is to the end the file has now; DONE with the entry */
request_open_fn file_write_open; /* a new file beside the old one, renamed over it when the last byte is there */
request_open_fn dir_list_open;   /* at most `length` entries, 0 is all; in the order the directory has them */
request_open_fn file_stat_open;  /* of the name itself: a link is not followed */
request_open_fn dir_make_open;
request_open_fn file_move_open;

/* Fills all but the name. `fd` is the directory, `name` in it; or a descriptor and "". */
void file_entry_fill(struct rt_entry *e, const struct stat *st, int fd, const char *name);
/* Its version. looked_ns is file_clock_ns() from before fstat() filled *st. */
void file_entry_set_version(struct rt_entry *e, const struct stat *st, uint64_t looked_ns);
uint64_t file_clock_ns(void); /* the clock from which the kernel takes the times of files */
