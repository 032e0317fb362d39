/* completion.h - scripts that teach a shell the verbs and flags of this version. */
#pragma once

#include "base/buf.h"

/* False when the shell is not one we know. */
bool completion_script(const char *shell, struct buf *out);
