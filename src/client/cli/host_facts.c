/* Read-only: nothing is created, mounted or enabled, so the facts are what the host claims. Every
 * run proves the walls themselves: it has all of them or is refused. */
#include "client/cli/host_facts.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CGROUP2_MAGIC 0x63677270
#define LANDLOCK_CREATE_RULESET_ 444
#define LANDLOCK_VERSION_FLAG 1u

static void PRINTF_LIKE(4, 5) host_fact_set(struct host_fact *f, const char *name, bool good, const char *fmt, ...)
{
    va_list ap;

    f->name = name;
    f->good = good;
    va_start(ap, fmt);
    vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
    va_end(ap);
}

/* An unprivileged user needs a user namespace, which some distributions disable with a sysctl. */
static void host_fact_privilege(struct host_fact *f)
{
    static const struct {
        const char *path, *name;
        uint64_t forbids;
    } switches[] = {
        { "/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone=1", 0 },
        { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "kernel.apparmor_restrict_unprivileged_userns=0",
          1 },
    };
    uint64_t v;

    if (geteuid() == 0) {
        host_fact_set(f, "privilege", true, "root");
        return;
    }
    host_fact_set(f, "privilege", true, "an unprivileged user");
    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        if (fd_get_u64_at(AT_FDCWD, switches[i].path, &v) == 0 && v == switches[i].forbids)
            host_fact_set(f, "privilege", false, "an unprivileged user; needs sysctl %s", switches[i].name);
}

static void host_fact_kernel(struct host_fact *f)
{
    struct utsname u;
    const char *p = u.release;
    uint32_t major = 0, minor = 0;

    uname(&u);
    bool good = str_eat_u32(&p, 1000, &major) && str_eat(&p, ".") && str_eat_u32(&p, 1000, &minor) &&
                (major > 5 || (major == 5 && minor >= 13));
    host_fact_set(f, "kernel", good, "%.60s%s", u.release, good ? "" : " (5.13 or newer is needed)");
}

static void host_fact_user_namespaces(struct host_fact *f)
{
    uint64_t n = 0;
    bool known = fd_get_u64_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", &n) == 0;

    host_fact_set(f, "userNamespaces", known && n > 0,
                  !known ? "not in this kernel"
                  : n    ? "allowed"
                         : "disabled (user.max_user_namespaces is 0)");
}

static void host_fact_landlock(struct host_fact *f)
{
    long abi = syscall(LANDLOCK_CREATE_RULESET_, NULL, 0, LANDLOCK_VERSION_FLAG);

    if (abi > 0)
        host_fact_set(f, "landlock", true, "ABI %ld", abi);
    else
        host_fact_set(f, "landlock", false,
                      errno == EOPNOTSUPP ? "disabled (boot with lsm=landlock,...)" : "not in this kernel");
}

static void host_fact_seccomp(struct host_fact *f)
{
    char actions[256] = "";
    bool good = fd_get_at(AT_FDCWD, "/proc/sys/kernel/seccomp/actions_avail", actions, sizeof(actions)) > 0 &&
                strstr(actions, "errno");

    host_fact_set(f, "seccomp", good, good ? "filters" : "no filters in this kernel");
}

/* Pure v2 mounts its hierarchy at the root of the tree; v1 and hybrid hosts have one directory per
 * controller there. */
static void host_fact_cgroups(struct host_fact *f)
{
    static const char *const wanted[] = { "memory", "pids", "cpu" };
    char list[512] = "", missing[64] = "";
    struct statfs fs;
    bool unified = statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_MAGIC;

    if (unified)
        (void)fd_get_at(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", list, sizeof(list));
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        char path[64];

        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", wanted[i]);
        if (unified ? strstr(list, wanted[i]) != NULL : access(path, F_OK) == 0)
            continue;
        snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", wanted[i]);
    }
    if (missing[0])
        host_fact_set(f, "cgroups", false, "%s without%s", unified ? "v2" : "v1", missing);
    else if (geteuid() != 0)
        host_fact_set(f, "cgroups", false, "%s",
                      unified ? "v2; limits of an unprivileged user need a systemd user session"
                              : "v1 or hybrid, for root; limits of an unprivileged user are partial");
    else
        host_fact_set(f, "cgroups", true, "%s: memory, pids, cpu", unified ? "v2" : "v1 or hybrid");
}

/* The controller is in a v1 hierarchy or in the v2 tree, which a hybrid host mounts next to
 * the v1 hierarchies. */
void host_facts_disk_rates(struct host_fact *f)
{
    char list[512] = "";
    bool v1 = access("/sys/fs/cgroup/blkio", F_OK) == 0;

    if (!v1 && fd_get_at(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", list, sizeof(list)) < 0)
        (void)fd_get_at(AT_FDCWD, "/sys/fs/cgroup/unified/cgroup.controllers", list, sizeof(list));
    bool v2 = strncmp(list, "io ", 3) == 0 || strstr(list, " io");
    if (!v1 && !v2)
        host_fact_set(f, "diskRates", false,
                      "no cgroup controller io or blkio: --io-read and --io-write have no effect");
    else if (geteuid() != 0)
        host_fact_set(f, "diskRates", false,
                      "for root only: --io-read and --io-write of an unprivileged user have no effect");
    else if (v1)
        host_fact_set(f, "diskRates", true, "v1: --io-read; --io-write only for synchronous writes");
    else
        host_fact_set(f, "diskRates", true, "v2: --io-read and --io-write");
}

const char *host_facts_cgroup_advice(const char *release, bool systemd)
{
    if (!systemd && strstr(release, "-microsoft-"))
        return "to enforce them, set systemd=true under [boot] in /etc/wsl.conf and run wsl --shutdown, or run as root";
    return "to enforce them, use a systemd user session or run as root";
}

const char *host_facts_cgroup_advice_here(void)
{
    struct utsname u;

    return host_facts_cgroup_advice(uname(&u) == 0 ? u.release : "", access("/run/systemd/system", F_OK) == 0);
}

uint64_t host_facts_processors(void)
{
    cpu_set_t allowed;

    return sched_getaffinity(0, sizeof(allowed), &allowed) < 0 ? 1 : (uint64_t)CPU_COUNT(&allowed);
}

size_t host_facts_collect(struct host_fact facts[HOST_FACTS_MAX])
{
    size_t n = 0;

    host_fact_privilege(&facts[n++]);
    host_fact_kernel(&facts[n++]);
    host_fact_user_namespaces(&facts[n++]);
    host_fact_seccomp(&facts[n++]);
    host_fact_landlock(&facts[n++]);
    host_fact_cgroups(&facts[n++]);
    host_facts_disk_rates(&facts[n++]);
    return n;
}
