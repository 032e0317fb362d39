/* state_dir.h - where this user's sandboxes leave their traces. */
#pragma once

#include "core/base/base.h"

/* The flag if given, then COVE_STATE_DIR, then /run/cove for root, $XDG_RUNTIME_DIR/cove for
 * others, and /tmp/cove-UID where there is none. `buf` needs STATE_DIR_MAX bytes; the result may
 * point into it. */
#define STATE_DIR_MAX 256
const char *state_dir(const char *flag, char buf[STATE_DIR_MAX]);
