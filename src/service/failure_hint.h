/* failure_hint.h - hints for failed executions of a server. */
#pragma once

#include "sandbox/failure.h"
#include "service/host_modules.h"
#include "service/kernel_event.h"

/* Keeps the exception of an event of kind KERNEL_EVENT_ERROR. */
void failure_hint_add_event(struct failure *f, const struct kernel_event *e);
/* As hint_write(). A hint about a module uses the last list of `modules`, and renews it; NULL: the
 * modules are unknown. */
bool failure_hint_write(const struct failure *f, enum hint_place place, const struct receipt *r,
                        struct host_modules *modules, uint64_t now_ns, char ret[HINT_MAX]);
