/* drivers.h - the table of the drivers: what each can do, and its operations. */
#pragma once

#include "sandbox/driver/availability.h"
#include "sandbox/driver/driver.h"

const struct driver_caps *drivers_caps(enum driver_id d);
const struct driver_ops *drivers_ops(enum driver_id d);
/* Refuses a network with a driver that has none. */
int drivers_check_network(enum driver_id d, enum network_mode mode, struct err *err);
/* Reads files and kernel settings below `root` ("" on a host) and runs nothing, so the creation of
 * a sandbox can still fail with driver_unavailable. */
void drivers_check_host(enum driver_id d, const char *root, struct driver_availability *ret);
