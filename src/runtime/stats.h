/* stats.h - STATS: processes, executions, and how full the two writable places are. */
#pragma once

#include "runtime/files.h"

request_open stats_open;
