/* jailer_link.h - the connection to the jailer: connects at the start, and again with exponential
 * back-off after it was lost. */
#pragma once

#include "core/ev/ev.h"
#include "sandbox/engine.h"

struct jailer_link;

struct jailer_link_ops {
    /* Connects to the jailer and to the monitor, as in struct manager_settings. */
    int (*connect)(void *arg, int *ret_jailer, int *ret_monitor, struct err *err);
    void *connect_arg;
    const char *egress_socket; /* of the egress proxy, borrowed; NULL: sandboxes have no network */
    void (*on_connected)(void *arg);
    void (*on_lost)(void *arg); /* the engine is freed after this turn of the loop */
    void *arg;
};

struct jailer_link *jailer_link_new(struct ev *ev, const struct jailer_link_ops *ops);
void jailer_link_free(struct jailer_link *l);
DEFINE_AUTO(jailer_link, jailer_link_free);

/* Makes the first attempt, in this call; later ones follow by themselves. */
void jailer_link_start(struct jailer_link *l);
struct engine *jailer_link_engine(const struct jailer_link *l); /* NULL: not connected */
const char *jailer_link_why_lost(const struct jailer_link *l);  /* valid while not connected */
uint64_t jailer_link_connections(const struct jailer_link *l);  /* how often it was connected */
