/* service.h - the jailer and the monitor as processes that `cove serve` or systemd runs. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* argv[0] is "__jailer" or "__monitor". open_runtime returns a descriptor of cove-runtime, or -1.
 * open_kernels is called after it and returns a descriptor of the directory of language kernels, or
 * 0. */
int service_main(int argc, char **argv, int (*open_runtime)(struct err *err), int (*open_kernels)(void));
