/* egress_filter.h - the system calls of the proxy: sockets, memory, time, and nothing that opens a
 * file or starts a program. Everything else returns EPERM. */
#pragma once

#include "core/base/base.h"

int egress_filter_install(void); /* needs no_new_privs; -1 with errno */
