/* cmdline_wipe.h - what /proc shows of how this process was started. */
#pragma once

#include "core/base/err.h"

/* Wipes the environment that it was started with, and its arguments behind the first `keep`, so that no fork of it
 * shows them. Nothing may point there any more. */
int cmdline_wipe(size_t keep, struct err *err);
