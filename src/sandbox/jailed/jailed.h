/* jailed.h - the drivers whose sandboxes are made by cove's jailer: one link serves them all. */
#pragma once

#include "sandbox/driver/driver.h"

extern const struct driver_ops jailed_driver_ops;
