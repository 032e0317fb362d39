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
/* One pass over the cgroups of sandboxes whose owner is gone: what is empty is removed and added to *ret_found (may be
 * NULL), what is not is killed and counted as busy, to be tried again. A leaf whose uid is locked has a living owner
 * and is left alone. Returns the number of busy ones. */
int sweep_once(const struct cgroup_hierarchies *forest, const struct uids *uids, int *ret_found);
/* The same until nothing is busy, for a second at most. Returns how many it removed. */
int sweep_until_idle(const struct cgroup_hierarchies *forest, const struct uids *uids);
