/* remove.h - REMOVE: one name, or with RT_PATH_RECURSIVE everything below it. DONE counts what was removed. */
#pragma once

#include "runtime/files.h"

request_open remove_open;
