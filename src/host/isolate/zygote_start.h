/* zygote_start.h - starts a process without privilege that can fork itself into the sandboxes of one owner. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* Called by the spawner, in the template's root: executes /.cove/kernels/LANGUAGE/zygote PRELOAD as `owner`, with sock
 * as descriptor 3 and /dev/null as the others. It dies with the caller, and tells on the socket how it goes. */
int zygote_start(uid_t owner, const char *language, const char *preload, int sock, struct err *err);
