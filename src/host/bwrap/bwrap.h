/* bwrap.h - the bwrap driver: Bubblewrap makes the namespaces and drops the privileges.
 *
 * The template's root, cgroup, uid, network and the writable file systems are those of the native
 * driver. A child of the spawner enters them, takes the sandbox's uid without any capability, and
 * executes Bubblewrap, which makes the user, mount, pid, IPC, UTS and cgroup namespaces and
 * executes cove-runtime as PID 1. The runtime mounts /proc, gives up the capabilities that it
 * needed for that, and raises seccomp and Landlock. */
#pragma once

#include "host/isolate/native.h"

/* Checks that Bubblewrap is installed and stores the filter for the runtimes. The template was set
 * with native_set_template. */
int bwrap_set_template(struct native_template *t, struct err *err);
/* Returns when the child is started; it continues alone. The pid is Bubblewrap's own process, which
 * ends after PID 1 does. */
int bwrap_spawn(struct native_template *t, const struct native_spec *spec, struct native_process *ret, struct err *err);
/* Bubblewrap reports the end of PID 1 by its own exit status. Returns the wait status of PID 1. */
int bwrap_wait_status(int status);
/* Sets err to what Bubblewrap said about its failure; returns false if it said nothing. */
bool bwrap_read_failure(int messages, struct err *err);
