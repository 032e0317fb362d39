/* join.h - forks this process into a sandbox, inside all of its walls.
 *
 * The caller is unprivileged. It may do this because its effective uid owns the sandbox's user
 * namespace, so it cannot enter any other sandbox. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"

struct join_request {
    const struct native_template *template; /* used: calls, filter, rootless, and whether it has a monitor */
    const struct native_spec *spec;         /* used: id, limits, callbacks, and cgroup.procs; not cgroup.v2_dir */
    int pidfd;                              /* of the sandbox's PID 1 */
    int kernel, out, err_out;               /* become 3, 1 and 2 */
    int monitor;                            /* socket that receives the seccomp listener; -1: none */
};

/* Returns 1 in the new process, whose parent is the sandbox's PID 1 and whose only descriptors are
 * 0 to 3; 0 in the caller if that process exists; otherwise -1 in the caller. A failure in the new
 * process is reported by spec->report_failure on `kernel` and ends it. The caller must have one
 * thread, and nothing in it may wait for `kernel`. */
int join_fork(const struct join_request *j, struct err *err);
