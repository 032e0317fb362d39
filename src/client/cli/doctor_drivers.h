/* doctor_drivers.h - the state of each driver on this host, for `cove doctor`. */
#pragma once

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "sandbox/drivers.h"

struct doctor_driver {
    struct driver_availability host;
    bool allowed;     /* by the operator limits */
    char version[48]; /* of the driver's program: "bubblewrap 0.8.0"; "": it has none, or it did not answer */
};

struct doctor_drivers {
    enum driver_id tested; /* the driver of the sandboxes that are attacked */
    struct doctor_driver v[DRIVER_COUNT];
};

/* Runs the programs of the available drivers with --version, for at most two seconds each. */
void doctor_drivers_collect(struct doctor_drivers *d, enum driver_id tested, uint32_t forbidden);
void doctor_drivers_print(const struct doctor_drivers *d, struct buf *out);
void doctor_drivers_json(const struct doctor_drivers *d, struct jsonw *w); /* members "driver" and "drivers" */
