/* cgtext.h - the two text forms in which cgroup files speak. Pure. */
#pragma once

#include "base/base.h"

#define CGTEXT_UNKNOWN UINT64_MAX

/* "key 123" on a line of its own: the number, or CGTEXT_UNKNOWN. */
uint64_t cgtext_value(const char *text, const char *key);
/* A number at the start of the text; "max" and anything else is CGTEXT_UNKNOWN. */
uint64_t cgtext_number(const char *text);
/* A whole word of a list that is separated by blanks. */
bool cgtext_has_word(const char *list, const char *word);
