/* caps.h - giving up privilege for good. Allocates nothing; may be used between clone and exec. */
#pragma once

#include "core/base/err.h"

/* Bounding, ambient, inheritable, permitted and effective sets become empty, the secure bits are locked so that no uid
 * and no file can bring them back, and no_new_privs is set. */
int caps_drop_all(struct err *err);
