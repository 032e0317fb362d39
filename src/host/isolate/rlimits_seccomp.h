/* rlimits_seccomp.h - limits of the process and the filter of its system calls. Nothing here allocates. */
#pragma once

#include "host/isolate/native.h"

int rlimits_apply(const struct native_spec *spec, struct err *err);
/* The last wall of all. `monitor` is the socket that t->monitor is here; it is closed, as is the listener: what could
 * answer for the filter must not be left inside it. */
int seccomp_install_filter(const struct native_template *t, const struct native_spec *spec, int monitor,
                           struct err *err);
