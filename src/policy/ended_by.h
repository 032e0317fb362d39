/* ended_by.h - why an execution or a sandbox ended: by itself, by one of its limits or by the
 * server. */
#pragma once

#include <stdbool.h>

enum ended_by {
    ENDED_EXIT,
    ENDED_SIGNAL,
    ENDED_LIFETIME,
    ENDED_IDLE,
    ENDED_TIMEOUT,
    ENDED_CPU,
    ENDED_MEMORY,
    ENDED_KILLED,
    ENDED_LOST,
    ENDED_BUDGET, /* the server ended it: the tenant's budget is used up */
};
const char *ended_by_name(enum ended_by e);
bool ended_by_parse(const char *name, enum ended_by *ret); /* false: not a name of a reason */
