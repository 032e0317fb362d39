/* drivers.h - the table of the drivers: what each can do, and its operations. */
#pragma once

#include "sandbox/driver/driver.h"

const struct driver_caps *drivers_caps(enum driver_id d);
const struct driver_ops *drivers_ops(enum driver_id d);
