/* cgtext.h - parses the text formats of cgroup files. Pure. */
#pragma once

#include "core/base/base.h"

#include <sys/types.h>

#define CGTEXT_UNKNOWN UINT64_MAX

/* The number of a line "KEY 123", or CGTEXT_UNKNOWN. */
uint64_t cgtext_value(const char *text, const char *key);
/* The number at the start of the text; CGTEXT_UNKNOWN for "max" and anything else. */
uint64_t cgtext_number(const char *text);
/* Whether `word` is a whole word of a list separated by spaces. */
bool cgtext_has_word(const char *list, const char *word);
/* Reads the next process of a cgroup.procs list, one number per line. The list may be truncated,
 * and a truncated number could be the pid of an unrelated process, so a number without its newline
 * is ignored. Skips 1, and 0, which the kernel writes for a process of another pid namespace. */
bool cgtext_next_pid(const char **text, pid_t *ret);
