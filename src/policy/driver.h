/* driver.h - the names of the drivers. A driver makes sandboxes by one kind of wall. Data only; the
 * operations of the drivers are in src/sandbox. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

enum driver_id {
#define DRIVER(name, id, summary) DRIVER_##id,
#include "policy/drivers.def"
#undef DRIVER
    DRIVER_COUNT
};

const char *driver_name(enum driver_id d);
const char *driver_summary(enum driver_id d);
bool driver_parse(const char *name, enum driver_id *ret);
/* Returns -1 with an error that lists the drivers: "WHAT: unknown driver 'NAME'; use ...". */
int driver_unknown_error(const char *what, const char *name, struct err *err);
