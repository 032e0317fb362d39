/* jailed.h - the drivers whose sandboxes are made by cove's jailer: one link serves them all. */
#pragma once

#include "sandbox/driver/availability.h"
#include "sandbox/driver/driver.h"

extern const struct driver_ops jailed_driver_ops;
/* Whether a host below `root` has what the driver bwrap needs. Runs nothing. */
void bwrap_availability_check(const char *root, struct driver_availability *ret);
