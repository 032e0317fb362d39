/* cgroup.h - one leaf per sandbox in every hierarchy that matters, on v1, v2 and hybrid hosts.
 *
 * A forest is what the host offers, found once. A leaf is named by the sandbox's id in each of its trees; nothing is
 * kept open for a leaf, files are opened when they are needed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/limits.h"

#define CGROUP_TREES 8

enum cgroup_job {
    CGROUP_MEMORY,
    CGROUP_PIDS,
    CGROUP_CPU,
    CGROUP_CPUSET, /* only used when processors are pinned */
    CGROUP_USAGE,  /* CPU time: v2 cpu.stat, or v1 cpuacct */
    CGROUP_FREEZE, /* v2 cgroup.freeze, or v1 freezer */
    CGROUP_IO,     /* v2 io, or v1 blkio; only used when disks are slowed */
    CGROUP_JOBS,
};

struct cgroup_hierarchies {
    int trees[CGROUP_TREES]; /* directory "cove" of each hierarchy in use */
    bool v2[CGROUP_TREES];
    size_t ntrees;
    int job[CGROUP_JOBS]; /* index into trees, or -1 */
    bool has_cgroup_kill; /* v2 has cgroup.kill */
    bool found_empty;     /* no tree had a leaf when it was found; false also where nobody looked */
    char kind[8];         /* "v1", "v2", "hybrid", "none" */
};

/* `parent` is the name of the directory below each root, normally "cove". `mountinfo` is the text of
 * /proc/self/mountinfo. ignore_v2 is for tests of the v1 paths on a hybrid host. */
int cgroup_find_hierarchies(struct cgroup_hierarchies *f, const char *mountinfo, const char *parent, bool ignore_v2,
                            struct err *err);
/* A forest of one v2 directory that is ours already and holds no process; `dir` belongs to the forest from now on. */
int cgroup_use_dir(struct cgroup_hierarchies *f, int dir, struct err *err);
/* No forest at all: nothing is limited, counted or frozen, and everything below says so instead of failing. */
void cgroup_init_none(struct cgroup_hierarchies *f);
void cgroup_close_hierarchies(struct cgroup_hierarchies *f);

/* A file that everybody who uses this tree can lock bytes of; its content does not matter. */
int cgroup_lock_file(const struct cgroup_hierarchies *f);

/* Makes the leaf with these limits; `gid` becomes the group of its directories, which marks its owner for sweeping.
 * *held says how far, for the limits that cgroups carry; those of disks are set afterwards, by io_limits_apply. On
 * failure nothing is left. */
int cgroup_make(const struct cgroup_hierarchies *f, const char *id, gid_t gid, const struct limits *lim,
                struct limit_enforcements *held, struct err *err);
/* The limits of a leaf that can change while it lives: memory, swap, processes, processor time. */
int cgroup_set_limits(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                      struct limit_enforcements *held, struct err *err);
/* Writes to a file of a leaf, whichever version does the job. A name of NULL is a version that cannot; -1 + errno. */
int cgroup_write_file(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id, const char *v1_file,
                      const char *v2_file, const char *text);
/* rmdir everywhere. 0, or -1 with errno EBUSY while something still lives in it. */
int cgroup_remove(const struct cgroup_hierarchies *f, const char *id);

/* What a new process needs to enter: on v1 "tasks" open for writing, one per tree; on v2 the leaf's directory,
 * for CLONE_INTO_CGROUP. The caller closes all of them. */
struct cgroup_entry {
    int procs[CGROUP_TREES];
    size_t nprocs;
    int v2_dir; /* -1 without a v2 tree */
};
/* lim: those it was made with. join: by a process that exists already and writes itself into all of `procs`. */
int cgroup_enter_open(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim, bool join,
                      struct cgroup_entry *ret, struct err *err);
void cgroup_enter_close(struct cgroup_entry *e);

int cgroup_freeze(const struct cgroup_hierarchies *f, const char *id, bool frozen, struct err *err);
bool cgroup_is_frozen(const struct cgroup_hierarchies *f, const char *id);
/* One round of killing: nothing new is born, everything that lives gets SIGKILL, throttling is lifted. Repeat until
 * PID 1 is reaped. */
void cgroup_kill(const struct cgroup_hierarchies *f, const char *id);

struct cgroup_stats { /* CGROUP_UNKNOWN where the host cannot say */
    uint64_t cpu_ns, memory, memory_peak, oom_kills, pids, pids_peak, pids_refused, throttled_ns;
};
#define CGROUP_UNKNOWN UINT64_MAX
/* Of one that has ended only what it used is read, not what it uses. */
void cgroup_read_stats(const struct cgroup_hierarchies *f, const char *id, bool ended, struct cgroup_stats *ret);

uint64_t cgroup_pids_current(const struct cgroup_hierarchies *f, const char *id); /* processes in it now */

/* A file to pread for CPU time; *v2 says which format. -1 when there is none. */
int cgroup_usage_fd(const struct cgroup_hierarchies *f, const char *id, bool *v2);

/* A file to pread, in which a line "oom_kill N" counts the processes killed for want of memory. -1 when there is none.
 */
int cgroup_memory_fd(const struct cgroup_hierarchies *f, const char *id);
/* An eventfd (v1) or inotify descriptor (v2) that becomes readable when the leaf runs out of memory. -1 when it cannot
 * be had. */
int cgroup_oom_fd(const struct cgroup_hierarchies *f, const char *id);

/* Calls fn for each leaf of any tree whose name is a sandbox id, with the group that owns it. */
void cgroup_each_leaf(const struct cgroup_hierarchies *f, void (*fn)(void *arg, const char *id, gid_t gid), void *arg);
