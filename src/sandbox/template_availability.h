/* template_availability.h - whether this host has what a template promises: its runtime and the
 * modules it preloads. */
#pragma once

#include "core/base/buf.h"
#include "policy/driver.h"
#include "sandbox/python_modules.h"

/* Texts are empty if the template is available. */
struct template_availability {
    bool available;
    struct buf missing; /* modules, with commas between them; empty if the runtime itself is missing */
    struct buf reason;
    struct buf fix; /* a command */
};

/* An empty runtime and a NULL preload need nothing. Asks the driver for the program of the
 * runtime. */
void template_availability_init(struct template_availability *ret, enum driver_id driver, const char *runtime,
                                const char *preload, const struct python_modules *modules);
void template_availability_done(struct template_availability *a);
#define auto_template_availability __attribute__((cleanup(template_availability_done))) struct template_availability
