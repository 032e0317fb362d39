/* process.h - a process becomes one that has no privilege, for good. */
#pragma once

#include "core/base/base.h"

#include <sys/types.h>

/* Identity, capabilities and limits go. Unless it may outlive its parent it also dies with it. -1: do not go on. */
int process_drop_privileges(bool outlive, pid_t parent);
