/* stats.h - STATS: processes, executions, and how full the writable places are. */
#pragma once

#include "inside/runtime/files.h"

request_open_fn stats_open;
uint32_t stats_full_filesystems(void); /* RT_FULL_* */
