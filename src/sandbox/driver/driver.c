#include "sandbox/driver/driver.h"

/* Per thread and not per engine, because a callback may free the engine that it came from. */
static _Thread_local int driver_callback_depth;

void driver_callback_begin(void)
{
    driver_callback_depth++;
}

void driver_callback_end(void)
{
    driver_callback_depth--;
}

void driver_free_deferred(struct ev *ev, struct ev_defer *d, void *mem)
{
    if (driver_callback_depth > 0)
        ev_defer(ev, d, free, mem);
    else
        free(mem);
}

void driver_request_forget(struct driver_request *r)
{
    r->on.done = NULL;
    r->owner = NULL;
}
