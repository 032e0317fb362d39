/* availability.h - the answer of a driver whether a host has what it needs. Data only. */
#pragma once

#include "core/base/base.h"

struct driver_availability {
    bool available;
    char path[64]; /* the driver's program on the host; "": it has none, or none was found */
    char why[160]; /* why it is not available; "": it is */
    char fix[200]; /* what makes it available; "": it is */
};
