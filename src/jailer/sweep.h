/* sweep.h - what a jailer finds when it starts: its directory, the cgroups, the uid locks, and leftovers of the dead.
 */
#pragma once

#include "base/err.h"
#include "isolate/cgroup.h"
#include "jailer/uids.h"

int sweep_open_state(const char *state_dir, int *ret_dir,
                     struct err *err); /* makes it if needed; refuses if not ours */
int sweep_open(bool rootless, struct cgroup_forest *forest, struct uids *uids, struct err *err);
/* Removes the cgroups of sandboxes whose owner is gone; returns how many. A leaf whose uid is locked has a living owner
 * and is left alone. */
int sweep(const struct cgroup_forest *forest, const struct uids *uids);
