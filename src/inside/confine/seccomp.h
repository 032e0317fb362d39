/* seccomp.h - loads a system call filter into this process. Allocates nothing. */
#pragma once

#include "core/base/base.h"

#include <linux/filter.h>

/* Returns -1 with errno. */
int seccomp_load(const struct sock_filter *prog, size_t len);
/* Returns a listener for the denied calls, or -1 with errno if the kernel provides none. */
int seccomp_load_with_listener(const struct sock_filter *prog, size_t len);
