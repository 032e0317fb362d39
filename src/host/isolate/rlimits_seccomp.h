/* rlimits_seccomp.h - resource limits and the system call filter of a process. Nothing here
 * allocates. */
#pragma once

#include "host/isolate/native.h"

int rlimits_apply(const struct native_spec *spec, struct err *err);
/* Raises the last wall. `monitor` is the number that the socket t->monitor has in this process.
 * Closes it and the listener: no descriptor that can answer for the filter may remain inside it. */
int seccomp_install_filter(const struct native_template *t, const struct native_spec *spec, int monitor,
                           struct err *err);
