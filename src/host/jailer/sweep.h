/* sweep.h - opens what a starting jailer needs (state directory, cgroups, uid locks) and removes
 * leftovers of dead jailers. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/cgroup.h"
#include "host/jailer/uids.h"

/* Makes the directory if needed. Refuses one that is not ours. */
int sweep_open_state(const char *state_dir, int *ret_dir, struct err *err);
/* Directory of the leaves below the root of each cgroup hierarchy. SWEEP_PARENT_VARIABLE in the
 * environment of a jailer that root started may name another one, so that test suites that run
 * concurrently each count and sweep only their own leaves. It selects a directory and nothing else;
 * uids are locked for the whole host. */
#define SWEEP_PARENT "cove"
#define SWEEP_PARENT_VARIABLE "COVE_CGROUP_PARENT"
#define SWEEP_PARENT_MAX 32
int sweep_check_parent(const char *name, struct err *err);
int sweep_open_host(struct cgroup_hierarchies *hierarchies, struct uids *uids, struct err *err);
struct sweep_count {
    int removed; /* empty leaves that were removed */
    int busy;    /* leaves that still had processes, which were killed; to be tried again soon */
    int held;    /* leaves whose uid another process has locked: a live jailer or a dying spawner */
};
/* One pass over the cgroups of sandboxes whose owner is dead. Skips a leaf whose uid is locked. */
struct sweep_count sweep_once(const struct cgroup_hierarchies *hierarchies, const struct uids *uids);
/* Repeats sweep_once until none is busy, for one second at most. Returns how many it removed. */
int sweep_until_idle(const struct cgroup_hierarchies *hierarchies, const struct uids *uids);
