#include "host/egress/egress_confine.h"

#include "host/egress/egress_filter.h"
#include "host/egress/egress_proxy.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 20000u
#ifdef EGRESS_SANITIZED /* needs memory, and at the end a process that looks for leaks */
#define MEMORY_MAX RLIM_INFINITY
#define PROCESSES_MAX RLIM_INFINITY
#define IS_DUMPABLE 1
#else
#define MEMORY_MAX (2 * GIB) /* several times what full buffers and all connections need */
#define PROCESSES_MAX 0
#define IS_DUMPABLE 0
#endif
#define UID_NOBODY 65534u

void egress_raise_descriptor_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return;
    if (l.rlim_max < DESCRIPTORS_MAX) {
        struct rlimit more = { DESCRIPTORS_MAX, DESCRIPTORS_MAX };

        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            return;
    }
    l.rlim_cur = min_u64(l.rlim_max, DESCRIPTORS_MAX);
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

static int egress_lower_limit(unsigned what, rlim_t most)
{
    struct rlimit l;

    if (getrlimit(what, &l) < 0)
        return -1;
    l.rlim_max = l.rlim_max < most ? l.rlim_max : most;
    l.rlim_cur = l.rlim_max;
    return setrlimit(what, &l);
}

/* If cove's ids are not mapped (in a container), UID_NOBODY is used. Leaving uid 0 drops every
 * capability. */
static int egress_drop_identity(void)
{
    static const uid_t ids[] = { EGRESS_UID, UID_NOBODY };

    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (setgroups(0, NULL) == 0 && setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
            return 0;
    return -1;
}

int egress_confine(pid_t parent)
{
    if (egress_drop_identity() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, IS_DUMPABLE, 0, 0, 0) < 0)
        return -1;
    if (egress_lower_limit(RLIMIT_DATA, MEMORY_MAX) < 0 || egress_lower_limit(RLIMIT_CORE, 0) < 0 ||
        egress_lower_limit(RLIMIT_NPROC, PROCESSES_MAX) < 0)
        return -1;
    /* Must follow the change of identity, which clears it. */
    if (parent && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -1;
    errno = ESRCH;
    return (parent && getppid() != parent) || egress_filter_install() < 0 ? -1 : 0;
}
