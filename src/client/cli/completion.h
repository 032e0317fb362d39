/* completion.h - shell completion scripts for the verbs and flags of this version. */
#pragma once

#include "core/base/buf.h"
#include "client/cli/cli.h"

/* `server`: the settings that `cove serve` accepts as flags. Returns false for an unknown shell. */
bool completion_script(const char *shell, const struct cli_setting *server, struct buf *out);
