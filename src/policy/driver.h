/* driver.h - the names of the drivers. A driver makes sandboxes by one kind of wall. Data only; the
 * operations of the drivers are in src/sandbox. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

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

/* Differences from native other than walls and limits: driver_weaknesses.def. */
/* Writes the member "weaker" of an open object: a list, empty if there is nothing. */
void driver_weaknesses_json(enum driver_id d, struct jsonw *w);
void driver_weaknesses_print(enum driver_id d, const char *prefix, struct buf *out); /* one line for each */

/* The program that the jailer executes for the driver bwrap. PATH is not searched. */
#define DRIVER_BWRAP_PROGRAM "/usr/bin/bwrap"

/* A set of drivers: one bit per driver. */
#define DRIVER_BIT(d) (1u << (d))
#define DRIVERS_ALL (DRIVER_BIT(DRIVER_COUNT) - 1)

/* The driver of a sandbox whose driver is not chosen: the first of the table that is not
 * forbidden. */
enum driver_id driver_default(uint32_t forbidden);
/* Refuses a forbidden driver: "WHAT: WHOSE does not allow driver NAME; it allows ...". */
int driver_check_allowed(uint32_t forbidden, enum driver_id d, const char *what, const char *whose, struct err *err);
