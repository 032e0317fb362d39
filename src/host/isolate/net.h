/* net.h - the network of a sandbox: loopback only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* In the network namespace of the caller: brings up lo and adds a prohibit route for everything
 * else, so that every other connection fails at once with "Permission denied". Allocates
 * nothing. */
int net_loopback_only(struct err *err);
