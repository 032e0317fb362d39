/* state_dir.h - the directory for the state of this user's sandboxes. */
#pragma once

#include "core/base/base.h"

/* The flag if given, then COVE_STATE_DIR, then /run/cove for root, $XDG_RUNTIME_DIR/cove for other
 * users, and /tmp/cove-UID without XDG_RUNTIME_DIR. `buf` needs STATE_DIR_MAX bytes; the result may
 * point into it. */
#define STATE_DIR_MAX 256
const char *state_dir(const char *flag, char buf[STATE_DIR_MAX]);
