/* zygote_start.h - starts an unprivileged process that can fork itself into the sandboxes of one
 * owner. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* Called by the spawner in the template's root: executes /.cove/kernels/LANGUAGE/zygote PRELOAD as
 * `owner`, with sock as descriptor 3 and /dev/null as 0 to 2. The zygote dies with the caller, and
 * reports its state on the socket. */
int zygote_start(uid_t owner, const char *language, const char *preload, int sock, struct err *err);
