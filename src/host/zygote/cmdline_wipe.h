/* cmdline_wipe.h - hides from /proc how this process was started. */
#pragma once

#include "core/base/err.h"

/* Wipes the initial environment, and the arguments after the first `keep`, so that no fork shows
 * them. No pointer to this memory may be used afterwards. */
int cmdline_wipe(size_t keep, struct err *err);
