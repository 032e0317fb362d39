/* stats.h - STATS: processes, executions, and the use of the writable file systems. */
#pragma once

#include "inside/runtime/files.h"

request_open_fn stats_open;
uint32_t stats_full_filesystems(void); /* RT_FULL_* bits */
