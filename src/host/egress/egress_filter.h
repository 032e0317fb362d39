/* egress_filter.h - the system calls of the proxy: sockets, memory and time. Files are only read
 * (certificate authorities); no program is started. Any other call returns EPERM. */
#pragma once

#include "core/base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define EGRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EGRESS_SANITIZED 1
#endif
#endif

int egress_filter_install(void); /* needs no_new_privs; -1 with errno */
