/* completion.h - scripts that teach a shell the verbs and flags of this version. */
#pragma once

#include "core/base/buf.h"
#include "client/cli/cli.h"

/* `server`: settings whose flags `cove serve` takes. False when the shell is not one we know. */
bool completion_script(const char *shell, const struct cli_setting *server, struct buf *out);
