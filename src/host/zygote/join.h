/* join.h - a fork of this process that lives in a sandbox, behind all of its walls.
 *
 * The caller has no privilege. It may do this because its effective uid owns the sandbox's user namespace, and it can
 * do it to no other sandbox. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"

struct join_request {
    const struct native_template *template; /* its calls, filter, rootless and monitor: whether there is one */
    const struct native_spec *spec; /* id, limits, fail and watch; its cgroup: files to write to, `into` is not used */
    int pidfd;                      /* of the sandbox's PID 1 */
    int kernel, out, err_out;       /* become 3, 1 and 2 */
    int monitor;                    /* who hears of refused calls; -1: nobody */
};

/* Returns 1 in the new process, whose parent is the sandbox's PID 1 and whose only descriptors are 0 to 3; 0 in the
 * caller when that process exists; -1 in the caller otherwise. What fails in the new process is told by spec->fail on
 * `kernel` and ends it. The caller has one thread, and nothing in it may wait for `kernel`. */
int join_fork(const struct join_request *j, struct err *err);
