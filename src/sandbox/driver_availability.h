/* driver_availability.h - whether this host has what a driver needs. */
#pragma once

#include "policy/driver.h"

struct driver_availability {
    bool available;
    char path[64]; /* the driver's program on the host; "": it has none, or none was found */
    char why[160]; /* why it is not available; "": it is */
    char fix[200]; /* what makes it available; "": it is */
};

/* Reads files and kernel settings below `root` ("" on a host) and runs nothing, so the creation of
 * a sandbox can still fail with driver_unavailable. */
void driver_availability_check(enum driver_id d, const char *root, struct driver_availability *ret);
