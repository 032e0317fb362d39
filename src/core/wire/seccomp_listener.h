/* seccomp_listener.h - sends the listener of a seccomp filter to the reader of J_WATCH (the
 * monitor). */
#pragma once

#include "core/base/base.h"

/* `listener` is -1 if the kernel has none; then `sys` is the errno. Does not allocate, because it
 * is called between clone and exec. Returns -1 with errno. */
int seccomp_listener_send(int sock, const char *id, int listener, int sys);
