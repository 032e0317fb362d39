/* The cgroup leaf of a sandbox: made with its limits, entered, frozen, killed, read and removed.
 * cgroup_hierarchies.c finds the hierarchies.
 *
 * A leaf is made with fsgid set to the sandbox's group: the kernel gives the new directory that
 * group atomically, so a leaf always shows its owner, and a sweep can check whether that owner
 * lives.
 *
 * Tried and dropped: reusing leaves for the next sandbox. Resetting peaks and counters costs as
 * much as a new directory, and a counter that is not reset would make a receipt wrong. */
#include "host/isolate/cgroup.h"

#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "host/isolate/cgtext.h"
#include "host/isolate/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>

#define PERIOD_US 100000u /* of the CPU quota */
#define PROCS_TEXT (256 * 1024)
#define FREEZE_TRIES 40
#define FREEZE_STEP_NS 250000L

/* --- creation --- */

/* Path of a file of the leaf, relative to the tree's descriptor. */
struct cgroup_leaf_path {
    char s[ID_SIZE + 64];
};

static struct cgroup_leaf_path cgroup_leaf_file(const char *id, const char *file)
{
    struct cgroup_leaf_path p;

    snprintf(p.s, sizeof(p.s), "%s/%s", id, file);
    return p;
}

static int cgroup_tree_of(const struct cgroup_hierarchies *f, enum cgroup_job job, bool *v2)
{
    if (f->job[job] < 0)
        return -1;
    *v2 = f->v2[f->job[job]];
    return f->trees[f->job[job]];
}

/* For tests that prove that an unset limit is detected. */
static bool cgroup_limit_is_mutated(enum cgroup_job job)
{
    return (job == CGROUP_MEMORY && wall_is_mutated("memory")) || (job == CGROUP_PIDS && wall_is_mutated("pids")) ||
           (job == CGROUP_CPU && wall_is_mutated("cpu")) || (job == CGROUP_IO && wall_is_mutated("io"));
}

int cgroup_write_file(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id, const char *v1_file,
                      const char *v2_file, const char *text)
{
    bool v2 = false;

    if (cgroup_limit_is_mutated(job))
        return 0;
    int tree = cgroup_tree_of(f, job, &v2);
    const char *file = v2 ? v2_file : v1_file;

    if (tree < 0 || !file) {
        errno = ENOENT;
        return -1;
    }
    return fd_put_at(tree, cgroup_leaf_file(id, file).s, text);
}

static int cgroup_read_file(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id,
                            const char *v1_file, const char *v2_file, char *buf, size_t cap)
{
    bool v2 = false;
    int tree = cgroup_tree_of(f, job, &v2);
    const char *file = v2 ? v2_file : v1_file;

    if (tree < 0 || !file)
        return -1;
    return fd_get_at(tree, cgroup_leaf_file(id, file).s, buf, cap) < 0 ? -1 : 0;
}

static int cgroup_limit_memory(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                               struct limit_enforcements *held, struct err *err)
{
    char text[32], both[32];
    bool v2 = f->v2[f->job[CGROUP_MEMORY]];

    snprintf(text, sizeof(text), "%" PRIu64, lim->v[LIMIT_MEMORY]);
    snprintf(both, sizeof(both), "%" PRIu64, lim->v[LIMIT_SWAP] + (v2 ? 0 : lim->v[LIMIT_MEMORY]));
    /* v1: the sum of memory and swap must never be smaller than memory alone, so when the limit
     * grows the sum is written first. */
    if (cgroup_write_file(f, CGROUP_MEMORY, id, "memory.limit_in_bytes", "memory.max", text) < 0 &&
        (cgroup_write_file(f, CGROUP_MEMORY, id, "memory.memsw.limit_in_bytes", NULL, both) < 0 ||
         cgroup_write_file(f, CGROUP_MEMORY, id, "memory.limit_in_bytes", NULL, text) < 0))
        return err_sys(err, ERR_NO_CGROUP, "cannot set the memory limit");
    limit_set_enforcement(held, LIMIT_MEMORY, ENFORCEMENT_FULL, REASON_NONE);
    if (v2)
        (void)cgroup_write_file(f, CGROUP_MEMORY, id, NULL, "memory.oom.group", "1");
    /* If the file is missing, the kernel does not account swap. On a host without swap that is
     * harmless, but it cannot be detected here. */
    if (cgroup_write_file(f, CGROUP_MEMORY, id, "memory.memsw.limit_in_bytes", "memory.swap.max", both) == 0)
        limit_set_enforcement(held, LIMIT_SWAP, ENFORCEMENT_FULL, REASON_NONE);
    else
        limit_set_enforcement(held, LIMIT_SWAP, ENFORCEMENT_NONE, REASON_SWAP_UNCOUNTED);
    return 0;
}

static int cgroup_limit_cpu(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                            struct limit_enforcements *held, struct err *err)
{
    uint64_t quota = lim->v[LIMIT_CPU] * PERIOD_US / 1000;
    char text[64];

    limit_set_enforcement(held, LIMIT_CPU, ENFORCEMENT_NONE, REASON_NO_CONTROLLER);
    if (f->job[CGROUP_CPU] < 0)
        return 0;
    if (f->v2[f->job[CGROUP_CPU]])
        snprintf(text, sizeof(text), "%" PRIu64 " %u", quota, PERIOD_US);
    else
        snprintf(text, sizeof(text), "%" PRIu64, quota); /* the default period of v1 is PERIOD_US */
    if (cgroup_write_file(f, CGROUP_CPU, id, "cpu.cfs_quota_us", "cpu.max", text) < 0)
        return err_sys(err, ERR_NO_CGROUP, "cannot set the CPU limit");
    limit_set_enforcement(held, LIMIT_CPU, ENFORCEMENT_FULL, REASON_NONE);
    return 0;
}

static int cgroup_limit_cpuset(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                               struct limit_enforcements *held, struct err *err)
{
    char list[64 * 3] = "", mems[64] = "";
    size_t n = 0;
    bool v2 = false;

    if (!lim->v[LIMIT_CPUSET]) {
        limit_set_enforcement(held, LIMIT_CPUSET, ENFORCEMENT_FULL, REASON_NONE); /* not requested */
        return 0;
    }
    int tree = cgroup_tree_of(f, CGROUP_CPUSET, &v2);
    if (tree < 0)
        return err_set(err, ERR_LIMIT_PARTIAL, "processors cannot be pinned: this host has no cpuset controller");
    for (unsigned cpu = 0; cpu < 64; cpu++)
        if (lim->v[LIMIT_CPUSET] >> cpu & 1)
            n += (size_t)snprintf(list + n, sizeof(list) - n, n ? ",%u" : "%u", cpu);
    if (!v2) { /* v1 also requires memory nodes, and both settings in the parent */
        if (fd_get_at(tree, "../cpuset.mems", mems, sizeof(mems)) < 0 || fd_put_at(tree, "cpuset.mems", mems) < 0)
            return err_sys(err, ERR_NO_CGROUP, "cpuset.mems");
        char all[256] = "";
        if (fd_get_at(tree, "../cpuset.cpus", all, sizeof(all)) < 0 || fd_put_at(tree, "cpuset.cpus", all) < 0)
            return err_sys(err, ERR_NO_CGROUP, "cpuset.cpus");
        if (fd_put_at(tree, cgroup_leaf_file(id, "cpuset.mems").s, mems) < 0)
            return err_sys(err, ERR_NO_CGROUP, "cpuset.mems");
    }
    if (fd_put_at(tree, cgroup_leaf_file(id, "cpuset.cpus").s, list) < 0) {
        int sys = errno;
        char all[256] = "";

        (void)fd_get_at(tree, v2 ? "cpuset.cpus.effective" : "../cpuset.cpus", all, sizeof(all));
        all[strcspn(all, "\n")] = '\0';
        errno = sys;
        return all[0] ? err_set(err, ERR_INVALID, "processors %s: this host has %s", list, all)
                      : err_sys(err, ERR_INVALID, "processors %s", list);
    }
    limit_set_enforcement(held, LIMIT_CPUSET, ENFORCEMENT_FULL, REASON_NONE);
    return 0;
}

static bool cgroup_job_needed(enum cgroup_job job, const struct limits *lim)
{
    return job == CGROUP_CPUSET ? lim->v[LIMIT_CPUSET] != 0
           : job == CGROUP_IO   ? lim->v[LIMIT_IO_READ] || lim->v[LIMIT_IO_WRITE]
                                : true;
}

static bool cgroup_tree_needed(const struct cgroup_hierarchies *f, size_t tree, const struct limits *lim)
{
    for (size_t j = 0; j < CGROUP_JOBS; j++)
        if (f->job[j] == (int)tree && cgroup_job_needed((enum cgroup_job)j, lim))
            return true;
    return false;
}

int cgroup_set_limits(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                      struct limit_enforcements *held, struct err *err)
{
    char text[32];

    if (cgroup_limit_memory(f, id, lim, held, err) < 0)
        return -1;
    snprintf(text, sizeof(text), "%" PRIu64, lim->v[LIMIT_PIDS]);
    if (cgroup_write_file(f, CGROUP_PIDS, id, "pids.max", "pids.max", text) < 0)
        return err_sys(err, ERR_NO_CGROUP, "cannot set the process limit");
    limit_set_enforcement(held, LIMIT_PIDS, ENFORCEMENT_FULL, REASON_NONE);
    return cgroup_limit_cpu(f, id, lim, held, err);
}

int cgroup_make(const struct cgroup_hierarchies *f, const char *id, gid_t gid, const struct limits *lim,
                struct limit_enforcements *held, struct err *err)
{
    struct sys_parent_death bond;
    int bad = 0;

    if (!f->ntrees)
        return 0;
    sys_parent_death_save(&bond);
    setfsgid(gid);
    for (size_t i = 0; i < f->ntrees && !bad; i++)
        if (cgroup_tree_needed(f, i, lim) && mkdirat(f->trees[i], id, 0755) < 0)
            bad = err_sys(err, errno == ENOSPC || errno == ENOMEM ? ERR_DISK_FULL : ERR_NO_CGROUP, "cgroup %s", id);
    setfsgid(0);
    sys_parent_death_restore(&bond);
    limit_set_enforcement(held, LIMIT_CPU_TIME, f->job[CGROUP_USAGE] >= 0 ? ENFORCEMENT_FULL : ENFORCEMENT_NONE,
                          REASON_NO_CONTROLLER);
    if (!bad)
        bad = cgroup_set_limits(f, id, lim, held, err) < 0 ? -1 : cgroup_limit_cpuset(f, id, lim, held, err);
    if (bad)
        (void)cgroup_remove(f, id);
    return bad;
}

int cgroup_remove(const struct cgroup_hierarchies *f, const char *id)
{
    int bad = 0;

    for (size_t i = 0; i < f->ntrees; i++)
        if (unlinkat(f->trees[i], id, AT_REMOVEDIR) < 0 && errno != ENOENT)
            bad = errno;
    errno = bad;
    return bad ? -1 : 0;
}

/* --- entering --- */

/* On v1 the child writes "0" to `tasks`, not to `cgroup.procs`. The child has one thread, so both
 * have the same effect, but moving a single thread avoids the kernel's lock on all forks of the
 * host and its wait for an RCU grace period, which takes 5 to 15 ms when no other process is
 * moving. */
/* v1: the `tasks` file. v2: the directory for clone3, or `cgroup.procs` for a process that already
 * exists. */
static int cgroup_open_entry(const struct cgroup_hierarchies *f, size_t tree, const char *id, bool join)
{
    if (f->v2[tree] && !join)
        return openat(f->trees[tree], id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return openat(f->trees[tree], cgroup_leaf_file(id, f->v2[tree] ? "cgroup.procs" : "tasks").s, O_WRONLY | O_CLOEXEC);
}

int cgroup_enter_open(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim, bool join,
                      struct cgroup_entry *ret, struct err *err)
{
    *ret = (struct cgroup_entry){ .v2_dir = -1 };
    for (size_t i = 0; i < f->ntrees; i++) {
        if (!cgroup_tree_needed(f, i, lim))
            continue;
        int fd = cgroup_open_entry(f, i, id, join);

        if (fd < 0) {
            cgroup_enter_close(ret);
            return err_sys(err, ERR_NO_CGROUP, "cgroup of %s", id);
        }
        if (f->v2[i] && !join)
            ret->v2_dir = fd;
        else
            ret->procs[ret->nprocs++] = fd;
    }
    return 0;
}

void cgroup_enter_close(struct cgroup_entry *e)
{
    for (size_t i = 0; i < e->nprocs; i++)
        close(e->procs[i]);
    e->nprocs = 0;
    fd_close(&e->v2_dir);
}

/* --- freezing and killing --- */

int cgroup_freeze(const struct cgroup_hierarchies *f, const char *id, bool frozen, struct err *err)
{
    if (f->job[CGROUP_FREEZE] < 0)
        return err_set(err, ERR_NO_CGROUP, "this sandbox cannot be frozen: it has no cgroup");
    bool v2 = f->v2[f->job[CGROUP_FREEZE]];
    if (cgroup_write_file(f, CGROUP_FREEZE, id, "freezer.state", "cgroup.freeze",
                          v2 ? (frozen ? "1" : "0") : (frozen ? "FROZEN" : "THAWED")) < 0)
        return err_sys(err, ERR_SYS, frozen ? "freeze" : "thaw");
    return 0;
}

bool cgroup_is_frozen(const struct cgroup_hierarchies *f, const char *id)
{
    char text[256];

    if (cgroup_read_file(f, CGROUP_FREEZE, id, "freezer.state", "cgroup.events", text, sizeof(text)) < 0)
        return false;
    return strstr(text, f->v2[f->job[CGROUP_FREEZE]] ? "frozen 1" : "FROZEN") != NULL;
}

/* Sends SIGKILL to every listed process. A pid cannot be reused meanwhile: no process is created,
 * and a frozen or dying process keeps its pid until it is reaped, which needs PID 1. If the list is
 * longer than the buffer, the next round kills the rest. */
static void cgroup_kill_each(const struct cgroup_hierarchies *f, const char *id)
{
    static char text[PROCS_TEXT];
    const char *p = text;
    pid_t pid;

    if (cgroup_read_file(f, CGROUP_PIDS, id, "cgroup.procs", "cgroup.procs", text, sizeof(text)) < 0)
        return;
    while (cgtext_next_pid(&p, &pid))
        (void)kill(pid, SIGKILL);
}

/* A throttled group also dies slowly. */
static void cgroup_lift_cpu_quota(const struct cgroup_hierarchies *f, const char *id)
{
    bool v2 = false;

    if (cgroup_tree_of(f, CGROUP_CPU, &v2) >= 0)
        (void)cgroup_write_file(f, CGROUP_CPU, id, "cpu.cfs_quota_us", "cpu.max", v2 ? "max" : "-1");
}

/* A process that waits for a throttled disk dies only after the disk has served it. */
static void cgroup_lift_io_limit(const struct cgroup_hierarchies *f, const char *id, const char *v1_file)
{
    char text[4096];
    bool v2 = false;

    if (cgroup_tree_of(f, CGROUP_IO, &v2) < 0 ||
        cgroup_read_file(f, CGROUP_IO, id, v1_file, "io.max", text, sizeof(text)) < 0)
        return;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char open[64];

        snprintf(open, sizeof(open), v2 ? "%.*s rbps=max wbps=max" : "%.*s 0", (int)min_u64(strcspn(line, " \n"), 24),
                 line);
        (void)cgroup_write_file(f, CGROUP_IO, id, v1_file, "io.max", open);
    }
}

void cgroup_kill(const struct cgroup_hierarchies *f, const char *id)
{
    if (f->job[CGROUP_FREEZE] < 0)
        return;
    (void)cgroup_write_file(f, CGROUP_PIDS, id, "pids.max", "pids.max", "0");
    cgroup_lift_cpu_quota(f, id);
    cgroup_lift_io_limit(f, id, "blkio.throttle.read_bps_device");
    cgroup_lift_io_limit(f, id, "blkio.throttle.write_bps_device");
    /* cgroup.kill works without pids, so it cannot hit another process that reused one. */
    if (f->has_cgroup_kill && f->v2[f->job[CGROUP_FREEZE]] &&
        cgroup_write_file(f, CGROUP_FREEZE, id, NULL, "cgroup.kill", "1") == 0)
        return;
    (void)cgroup_freeze(f, id, true, NULL);
    /* A pid can be reused until the group is frozen. */
    for (int i = 0; i < FREEZE_TRIES && !cgroup_is_frozen(f, id); i++)
        nanosleep(&(struct timespec){ .tv_nsec = FREEZE_STEP_NS }, NULL);
    cgroup_kill_each(f, id);
    (void)cgroup_freeze(f, id, false, NULL); /* v1: SIGKILL takes effect after the thaw */
}

/* --- statistics --- */

static uint64_t cgroup_read_number(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id,
                                   const char *v1, const char *v2)
{
    char text[64];

    return cgroup_read_file(f, job, id, v1, v2, text, sizeof(text)) < 0 ? CGROUP_UNKNOWN : cgtext_number(text);
}

static uint64_t cgroup_read_keyed(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id,
                                  const char *file, const char *file2, const char *key, uint64_t scale)
{
    char text[2048];

    if (cgroup_read_file(f, job, id, file, file2, text, sizeof(text)) < 0)
        return CGROUP_UNKNOWN;
    uint64_t v = cgtext_value(text, key);
    return v == CGROUP_UNKNOWN ? v : v * scale;
}

uint64_t cgroup_pids_current(const struct cgroup_hierarchies *f, const char *id)
{
    return cgroup_read_number(f, CGROUP_PIDS, id, "pids.current", "pids.current");
}

void cgroup_read_stats(const struct cgroup_hierarchies *f, const char *id, bool ended, struct cgroup_stats *ret)
{
    bool usage_v2 = f->job[CGROUP_USAGE] >= 0 && f->v2[f->job[CGROUP_USAGE]];
    bool cpu_v2 = f->job[CGROUP_CPU] >= 0 && f->v2[f->job[CGROUP_CPU]];

    ret->cpu_ns = usage_v2 ? cgroup_read_keyed(f, CGROUP_USAGE, id, NULL, "cpu.stat", "usage_usec", 1000)
                           : cgroup_read_number(f, CGROUP_USAGE, id, "cpuacct.usage", NULL);
    ret->memory = ended ? CGROUP_UNKNOWN
                        : cgroup_read_number(f, CGROUP_MEMORY, id, "memory.usage_in_bytes", "memory.current");
    ret->memory_peak = cgroup_read_number(f, CGROUP_MEMORY, id, "memory.max_usage_in_bytes", "memory.peak");
    ret->oom_kills = cgroup_read_keyed(f, CGROUP_MEMORY, id, "memory.oom_control", "memory.events", "oom_kill", 1);
    ret->pids = ended ? 0 : cgroup_pids_current(f, id);
    ret->pids_peak = cgroup_read_number(f, CGROUP_PIDS, id, "pids.peak", "pids.peak");
    ret->pids_refused = cgroup_read_keyed(f, CGROUP_PIDS, id, "pids.events", "pids.events", "max", 1);
    ret->throttled_ns = cpu_v2 ? cgroup_read_keyed(f, CGROUP_CPU, id, NULL, "cpu.stat", "throttled_usec", 1000)
                               : cgroup_read_keyed(f, CGROUP_CPU, id, "cpu.stat", NULL, "throttled_time", 1);
}

int cgroup_usage_fd(const struct cgroup_hierarchies *f, const char *id, bool *v2)
{
    int tree = cgroup_tree_of(f, CGROUP_USAGE, v2);

    if (tree < 0)
        return -1;
    return openat(tree, cgroup_leaf_file(id, *v2 ? "cpu.stat" : "cpuacct.usage").s, O_RDONLY | O_CLOEXEC);
}

int cgroup_memory_fd(const struct cgroup_hierarchies *f, const char *id)
{
    bool v2 = false;
    int tree = cgroup_tree_of(f, CGROUP_MEMORY, &v2);

    if (tree < 0)
        return -1;
    return openat(tree, cgroup_leaf_file(id, v2 ? "memory.events" : "memory.oom_control").s, O_RDONLY | O_CLOEXEC);
}

int cgroup_oom_fd(const struct cgroup_hierarchies *f, const char *id)
{
    bool v2 = false;
    int tree = cgroup_tree_of(f, CGROUP_MEMORY, &v2);
    char text[64];

    if (v2) {
        char path[64 + ID_SIZE];
        auto_fd int in = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

        snprintf(path, sizeof(path), "/proc/self/fd/%d/%s/memory.events", tree, id);
        if (in < 0 || inotify_add_watch(in, path, IN_MODIFY) < 0)
            return -1;
        return take_fd(&in);
    }
    auto_fd int ev = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    auto_fd int oom = openat(tree, cgroup_leaf_file(id, "memory.oom_control").s, O_RDONLY | O_CLOEXEC);
    if (ev < 0 || oom < 0)
        return -1;
    snprintf(text, sizeof(text), "%d %d", ev, oom);
    if (fd_put_at(tree, cgroup_leaf_file(id, "cgroup.event_control").s, text) < 0)
        return -1;
    return take_fd(&ev);
}

void cgroup_each_leaf(const struct cgroup_hierarchies *f, void (*fn)(void *arg, const char *id, gid_t gid), void *arg)
{
    for (size_t i = 0; i < f->ntrees; i++) {
        int fd = openat(f->trees[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        struct stat st;

        if (!d) {
            fd_close(&fd);
            continue;
        }
        for (struct dirent *e; (e = readdir(d));)
            if (id_valid(e->d_name, "sb") && fstatat(f->trees[i], e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                fn(arg, e->d_name, st.st_gid);
        closedir(d);
    }
}
