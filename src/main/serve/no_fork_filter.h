/* no_fork_filter.h - a process that starts no other. */
#pragma once

#include "core/base/err.h"

/* From now on neither this process nor a thread of it can fork or become another program: both are EPERM. New threads
 * are as before. Needs no new privileges to be set. With `looked_into`, a process that shares this one's memory may be
 * made, as the leak checker of a sanitized build does. */
int no_fork_filter_install(bool looked_into, struct err *err);
