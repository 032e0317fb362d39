/* sweep.h - what a jailer finds when it starts: its directory, the cgroups, the uid locks, and leftovers of the dead.
 */
#pragma once

#include "core/base/err.h"
#include "host/isolate/cgroup.h"
#include "host/jailer/uids.h"

int sweep_open_state(const char *state_dir, int *ret_dir,
                     struct err *err); /* makes it if needed; refuses if not ours */
/* Directory of the leaves below the root of each cgroup hierarchy. The environment of a jailer that root started may
 * name another one, so that test suites that run at one time each count and sweep their own leaves. It chooses a
 * directory and nothing else; uids are locked for the whole host. */
#define SWEEP_PARENT "cove"
#define SWEEP_PARENT_VARIABLE "COVE_CGROUP_PARENT"
#define SWEEP_PARENT_MAX 32
int sweep_check_parent(const char *name, struct err *err);
int sweep_open_host(struct cgroup_hierarchies *forest, struct uids *uids, struct err *err);
struct sweep_count {
    int removed; /* leaves that were empty */
    int busy;    /* leaves that still had processes, which were killed: to be tried again soon */
    int held;    /* leaves whose uid another process has locked: a living neighbour, or a spawner that is still dying */
};
/* One pass over the cgroups of sandboxes whose owner is gone. A leaf whose uid is locked is left alone. */
struct sweep_count sweep_once(const struct cgroup_hierarchies *forest, const struct uids *uids);
/* The same until nothing is busy, for a second at most. Returns how many it removed. */
int sweep_until_idle(const struct cgroup_hierarchies *forest, const struct uids *uids);
