/* no_fork_filter.h - a seccomp filter that keeps a process from starting other processes. */
#pragma once

#include "core/base/err.h"

/* After this call neither this process nor any of its threads can fork or exec: both fail with
 * EPERM. New threads are allowed. The caller must have set no_new_privs. If `looked_into` is true,
 * a process that shares this one's memory may be created, which the leak checker of a sanitized
 * build needs. */
int no_fork_filter_install(bool looked_into, struct err *err);
