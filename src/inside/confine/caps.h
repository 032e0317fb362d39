/* caps.h - gives up all privilege permanently. Allocates nothing; may be used between clone and
 * exec. */
#pragma once

#include "core/base/err.h"

/* Empties the bounding, ambient, inheritable, permitted and effective sets, locks the secure bits
 * so that neither a uid change nor a file can restore capabilities, and sets no_new_privs. */
int caps_drop_all(struct err *err);
/* Empties the same sets but for one capability, which survives the next exec, and sets
 * no_new_privs. */
int caps_keep_only(unsigned cap, struct err *err);
