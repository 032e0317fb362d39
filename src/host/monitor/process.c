/* The process of the monitor: the privileges and resources that it gives up before it serves. */
#include "host/monitor/process.h"

#include "core/base/child.h"
#include "core/base/fd.h"
#include "host/monitor/monitor.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MEMORY_MAX (128 * MIB) /* twice the need of the maximum number of records */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED /* a sanitizer needs more memory than any useful limit */
#undef MEMORY_MAX
#define MEMORY_MAX RLIM_INFINITY
#endif

#define UID_NOBODY 65534u

static int process_lower_limit(unsigned what, rlim_t most)
{
    struct rlimit l;

    if (getrlimit(what, &l) < 0)
        return -1;
    l.rlim_max = l.rlim_max < most ? l.rlim_max : most;
    l.rlim_cur = l.rlim_max;
    return setrlimit(what, &l);
}

/* A process that was root switches to an unprivileged uid. If cove's ids are not mapped (in a
 * container), it uses UID_NOBODY. Leaving uid 0 drops every capability. */
static int process_drop_identity(void)
{
    static const uid_t ids[] = { MONITOR_UID, UID_NOBODY };

    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (setgroups(0, NULL) == 0 && setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
            return 0;
    return -1;
}

/* The file size limit would end the process at its first log line. */
static bool process_logs_to_file(void)
{
    struct stat st;

    return fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode);
}

int process_drop_privileges(bool outlive, pid_t parent)
{
    if (process_drop_identity() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -1;
    if (process_lower_limit(RLIMIT_DATA, MEMORY_MAX) < 0 || process_lower_limit(RLIMIT_CORE, 0) < 0 ||
        (!process_logs_to_file() && process_lower_limit(RLIMIT_FSIZE, 0) < 0) ||
        process_lower_limit(RLIMIT_NPROC, 0) < 0 || process_lower_limit(RLIMIT_NOFILE, RLIM_INFINITY) < 0)
        return -1;
    if (outlive)
        return 0;
    /* Must follow the change of identity, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        return -1;
    return 0;
}

static NORETURN void monitor_child_main(int intake, int host, const struct monitor_settings *settings, pid_t parent)
{
    int keep[] = { open("/dev/null", O_RDWR | O_CLOEXEC), intake, host };

    if (chdir("/") < 0 || fd_keep_only(keep, ARRAY_LEN(keep)) < 0)
        _exit(125);
    for (int i = 0; i <= STDERR_FILENO; i++)
        if (dup2(keep[0], i) < 0)
            _exit(125);
    close(keep[0]);
    if (process_drop_privileges(settings->may_outlive_parent, parent) < 0)
        _exit(125);
    _exit(monitor_serve(keep[1], keep[2], settings));
}

int monitor_fork(int intake, const struct monitor_settings *settings, int *ret_host, pid_t *ret_pid, struct err *err)
{
    pid_t parent = getpid();

    if (child_fork("cove-monitor", false, ret_host, ret_pid, err) < 0)
        return -1;
    if (*ret_pid == 0)
        monitor_child_main(intake, *ret_host, settings, parent);
    return 0;
}
