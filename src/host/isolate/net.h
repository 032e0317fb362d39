/* net.h - the network of a sandbox: loopback, and a wall. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* In the network namespace of the caller: brings up lo and adds a prohibit route for everything else, so that
 * connecting anywhere answers "Permission denied" at once. Allocates nothing. */
int net_loopback_only(struct err *err);
