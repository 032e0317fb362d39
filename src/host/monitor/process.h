/* process.h - drops all privileges of a process permanently. */
#pragma once

#include "core/base/base.h"

#include <sys/types.h>

/* Drops identity and capabilities, and lowers limits. Unless it may outlive its parent, the process
 * also dies with it. -1: the caller must not continue. */
int process_drop_privileges(bool outlive, pid_t parent);
