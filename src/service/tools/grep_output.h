/* grep_output.h - the output of `grep -HZ` with line numbers, names or counts: records of a file
 * name, a NUL, and the rest of the line. The program and the files are in a sandbox, so the bytes
 * are hostile. Pure functions. */
#pragma once

#include "core/base/buf.h"

/* `text` is not terminated; it holds no newline. */
typedef void grep_record_fn(void *arg, const char *name, const char *text, size_t len);
/* Calls fn for each record; names only: nothing follows the NUL. False: the last record is cut
 * off. */
bool grep_output_read(const struct buf *out, bool names_only, grep_record_fn *fn, void *arg);
/* Parses "12:text" of a match or "12-text" of its context. False: it is neither. *ret_head is the
 * length up to the text. */
bool grep_output_parse_line(const char *text, size_t len, uint64_t *ret_line, bool *ret_is_match, size_t *ret_head);
/* Parses a count that is not 0. */
bool grep_output_parse_count(const char *text, size_t len, uint64_t *ret);
