/* The last walls of a process that is about to run untrusted code. PID 1 of a sandbox and an
 * interpreter that joins it later both raise them with this code. */
#include "host/isolate/rlimits_seccomp.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "host/isolate/sys.h"
#include "inside/confine/seccomp.h"

#include <errno.h>

int rlimits_apply(const struct native_spec *spec, struct err *err)
{
    const uint64_t *v = spec->limits.v;
    bool bare = spec->cgroup.nprocs == 0 && spec->cgroup.v2_dir < 0;
    rlim_t cpu_s = (v[LIMIT_CPU_TIME] + 999) / 1000;
    const struct {
        int what;
        rlim_t soft, hard;
    } wanted[] = {
        { RLIMIT_CORE, 0, 0 },
        { RLIMIT_NOFILE, v[LIMIT_NOFILE], v[LIMIT_NOFILE] },
        { RLIMIT_FSIZE, v[LIMIT_FSIZE], v[LIMIT_FSIZE] },
        /* With a cgroup this is a second line of defence; without one it is the only limit. PID 1
         * counts. */
        { RLIMIT_NPROC, v[LIMIT_PIDS] + (bare ? 0 : 16), v[LIMIT_PIDS] + (bare ? 0 : 16) },
        { RLIMIT_MEMLOCK, 8 * MIB, 8 * MIB },
        { RLIMIT_SIGPENDING, 4096, 4096 },
        { RLIMIT_MSGQUEUE, 819200, 819200 },
        { RLIMIT_STACK, 8 * MIB, 64 * MIB },
        { RLIMIT_NICE, 0, 0 },
        { RLIMIT_RTPRIO, 0, 0 },
        /* For hosts without cgroups: limits each process separately, which is weaker than the limit
         * of the sandbox. */
        { RLIMIT_DATA, bare ? v[LIMIT_MEMORY] : RLIM_INFINITY, bare ? v[LIMIT_MEMORY] : RLIM_INFINITY },
        { RLIMIT_CPU, bare && cpu_s ? cpu_s : RLIM_INFINITY, bare && cpu_s ? cpu_s + 1 : RLIM_INFINITY },
    };

    for (size_t i = 0; i < ARRAY_LEN(wanted) && !wall_is_mutated("rlimits"); i++) {
        struct rlimit now, next;

        if (sys_prlimit(wanted[i].what, NULL, &now) < 0)
            return err_sys(err, ERR_SYS, "rlimit");
        /* The hard limit of the host may be lower and cannot be raised here. */
        next.rlim_max = now.rlim_max < wanted[i].hard ? now.rlim_max : wanted[i].hard;
        next.rlim_cur = next.rlim_max < wanted[i].soft ? next.rlim_max : wanted[i].soft;
        if (sys_prlimit(wanted[i].what, &next, NULL) < 0)
            return err_sys(err, ERR_SYS, "rlimit");
    }
    return 0;
}

/* For a kernel that provides no listener. This is rare, so the filter is built only when needed. */
static int seccomp_install_without_listener(const struct native_template *t, struct err *err)
{
    static struct native_filter plain;

    if (t->monitor >= 0 && filter_build(&t->calls, false, plain.prog, &plain.len, err) < 0)
        return -1;
    const struct native_filter *f = t->monitor >= 0 ? &plain : &t->filter;

    if (seccomp_load(f->prog, f->len) < 0)
        return err_sys(err, ERR_WALL_MISSING, "system call filter");
    return 0;
}

/* Both filters deny a call in the same way; with a listener the monitor also learns of it. */
int seccomp_install_filter(const struct native_template *t, const struct native_spec *spec, int monitor,
                           struct err *err)
{
    int listener = -1, why = 0;

    if (wall_is_mutated("seccomp"))
        return 0;
    if (t->monitor >= 0) {
        listener = seccomp_load_with_listener(t->filter.prog, t->filter.len);
        why = listener < 0 ? errno : 0;
    }
    if (listener < 0 && seccomp_install_without_listener(t, err) < 0)
        return -1;
    if (t->monitor < 0)
        return 0;
    if (spec->send_listener(monitor, spec->id, listener, why) < 0)
        return err_sys(err, errno == EPIPE || errno == ECONNRESET ? ERR_LOST : ERR_SYS,
                       "cannot send the seccomp listener to the monitor"); /* ERR_LOST: the jailer died, and this
                                                                              process is about to */
    /* Both are close-on-exec too: no descriptor that can answer for the filter may remain inside
     * it. */
    close(monitor);
    fd_close(&listener);
    return 0;
}
