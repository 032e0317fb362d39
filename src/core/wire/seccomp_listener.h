/* seccomp_listener.h - hands the listener of a filter to who reads J_WATCH. */
#pragma once

#include "core/base/base.h"

/* listener is -1 where the kernel has none, and sys says why. Allocates nothing: it is called between clone and exec.
 * -1 with errno. */
int seccomp_listener_send(int sock, const char *id, int listener, int sys);
