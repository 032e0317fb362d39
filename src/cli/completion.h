/* completion.h - scripts that teach a shell the verbs and flags of this version. */
#pragma once

#include "base/buf.h"
#include "cli/cli.h"

/* `server`: settings whose flags `cove serve` takes. False when the shell is not one we know. */
bool completion_script(const char *shell, const struct cli_setting *server, struct buf *out);
