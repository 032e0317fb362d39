/* cgroup.h - one leaf per sandbox in every cgroup hierarchy in use, on v1, v2 and hybrid hosts.
 *
 * struct cgroup_hierarchies describes the host and is found once. A leaf has the sandbox's id as
 * its name in each tree; no descriptor is kept for a leaf, its files are opened when needed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/limits.h"

#define CGROUP_TREES 8

enum cgroup_job {
    CGROUP_MEMORY,
    CGROUP_PIDS,
    CGROUP_CPU,
    CGROUP_CPUSET, /* used only when processors are pinned */
    CGROUP_USAGE,  /* CPU time: v2 cpu.stat, or v1 cpuacct */
    CGROUP_FREEZE, /* v2 cgroup.freeze, or v1 freezer */
    CGROUP_IO,     /* v2 io, or v1 blkio; used only with disk rate limits */
    CGROUP_JOBS,
};

struct cgroup_hierarchies {
    int trees[CGROUP_TREES]; /* our parent directory in each hierarchy in use */
    bool v2[CGROUP_TREES];
    size_t ntrees;
    int job[CGROUP_JOBS]; /* index into trees, or -1 */
    bool has_cgroup_kill; /* v2 has cgroup.kill */
    bool found_empty;     /* no tree had a leaf when it was opened; false if not checked */
    char kind[8];         /* "v1", "v2", "hybrid", "none" */
};

/* `parent` is the name of the directory below each hierarchy's root, normally "cove". `mountinfo`
 * is the text of /proc/self/mountinfo. ignore_v2 is for tests of the v1 paths on a hybrid host. */
int cgroup_find_hierarchies(struct cgroup_hierarchies *f, const char *mountinfo, const char *parent, bool ignore_v2,
                            struct err *err);
/* Uses one v2 directory that belongs to us and holds no process. Takes ownership of `dir`. */
int cgroup_use_dir(struct cgroup_hierarchies *f, int dir, struct err *err);
/* Uses no hierarchy: nothing is limited, counted or frozen, and the functions below report that
 * instead of failing. */
void cgroup_init_none(struct cgroup_hierarchies *f);
void cgroup_close_hierarchies(struct cgroup_hierarchies *f);

/* Opens a file in which all users of this tree can lock bytes; its content does not matter. */
int cgroup_lock_file(const struct cgroup_hierarchies *f);

/* Makes the leaf with these limits; `gid` becomes the group of its directories, which identifies
 * its owner to a sweep. *held receives how far each limit is enforced, for the limits that cgroups
 * enforce; disk rates are set afterwards by io_limits_apply. On failure nothing is left. */
int cgroup_make(const struct cgroup_hierarchies *f, const char *id, gid_t gid, const struct limits *lim,
                struct limit_enforcements *held, struct err *err);
/* Sets the limits of a leaf that can change while it exists: memory, swap, processes, CPU share. */
int cgroup_set_limits(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim,
                      struct limit_enforcements *held, struct err *err);
/* Writes to a file of a leaf, in the hierarchy that does the job. A NULL name: that version does
 * not support it. Returns -1 with errno. */
int cgroup_write_file(const struct cgroup_hierarchies *f, enum cgroup_job job, const char *id, const char *v1_file,
                      const char *v2_file, const char *text);
/* Removes the leaf from every tree. Returns 0, or -1 with errno EBUSY while a process lives in
 * it. */
int cgroup_remove(const struct cgroup_hierarchies *f, const char *id);

/* Descriptors that a new process needs to enter a leaf: on v1 "tasks", open for writing, one per
 * tree; on v2 the leaf's directory, for CLONE_INTO_CGROUP. The caller closes all of them. */
struct cgroup_entry {
    int procs[CGROUP_TREES];
    size_t nprocs;
    int v2_dir; /* -1 without a v2 tree */
};
/* `lim` must be the limits the leaf was made with. `join`: the process already exists and writes
 * itself into all of `procs`. */
int cgroup_enter_open(const struct cgroup_hierarchies *f, const char *id, const struct limits *lim, bool join,
                      struct cgroup_entry *ret, struct err *err);
void cgroup_enter_close(struct cgroup_entry *e);

int cgroup_freeze(const struct cgroup_hierarchies *f, const char *id, bool frozen, struct err *err);
bool cgroup_is_frozen(const struct cgroup_hierarchies *f, const char *id);
/* One round of killing: forbids new processes, lifts throttling and sends SIGKILL to every process.
 * Repeat until PID 1 is reaped. */
void cgroup_kill(const struct cgroup_hierarchies *f, const char *id);

struct cgroup_stats { /* CGROUP_UNKNOWN: the host does not report it */
    uint64_t cpu_ns, memory, memory_peak, oom_kills, pids, pids_peak, pids_refused, throttled_ns;
};
#define CGROUP_UNKNOWN UINT64_MAX
/* `ended`: reads only totals and peaks, not current values. */
void cgroup_read_stats(const struct cgroup_hierarchies *f, const char *id, bool ended, struct cgroup_stats *ret);

uint64_t cgroup_pids_current(const struct cgroup_hierarchies *f, const char *id); /* number of processes in it now */

/* Opens a file from which CPU time can be read with pread; *v2 selects its format. -1 if there is
 * none. */
int cgroup_usage_fd(const struct cgroup_hierarchies *f, const char *id, bool *v2);

/* Opens a file for pread with a line "oom_kill N", the number of processes killed for lack of
 * memory. -1 if there is none. */
int cgroup_memory_fd(const struct cgroup_hierarchies *f, const char *id);
/* Returns an eventfd (v1) or inotify descriptor (v2) that becomes readable when the leaf runs out
 * of memory, or -1. */
int cgroup_oom_fd(const struct cgroup_hierarchies *f, const char *id);

/* Calls fn for each leaf of any tree whose name is a sandbox id, with the group of its
 * directory. */
void cgroup_each_leaf(const struct cgroup_hierarchies *f, void (*fn)(void *arg, const char *id, gid_t gid), void *arg);
