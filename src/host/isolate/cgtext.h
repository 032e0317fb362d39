/* cgtext.h - the text forms in which cgroup files speak. Pure. */
#pragma once

#include "core/base/base.h"

#include <sys/types.h>

#define CGTEXT_UNKNOWN UINT64_MAX

/* "key 123" on a line of its own: the number, or CGTEXT_UNKNOWN. */
uint64_t cgtext_value(const char *text, const char *key);
/* A number at the start of the text; "max" and anything else is CGTEXT_UNKNOWN. */
uint64_t cgtext_number(const char *text);
/* A whole word of a list that is separated by blanks. */
bool cgtext_has_word(const char *list, const char *word);
/* The next process of a cgroup.procs list, one number on a line. The list may have been cut off anywhere, and half a
 * number would be somebody else's: without its newline it is none. Left out are 1 and 0, which is how the kernel writes
 * a process of another pid namespace. */
bool cgtext_next_pid(const char **text, pid_t *ret);
