/* runtime.h - PID 1 of a sandbox: one socket, one loop, many streams.
 *
 * This is the object that requests share. Each kind of request is a module with an `open` function, listed in the table
 * of control.c; it gets a fresh stream and either answers at once or hangs its own object on the stream. */
#pragma once

#include "core/ev/ev.h"
#include "inside/runtime/path.h"
#include "inside/runtime/procs.h"
#include "inside/runtime/runtime_stream.h"
#include "core/wire/chan.h"

#include <sched.h>
#include <sys/resource.h>

struct runtime_exec;
struct snapshot;

#define RESET_DIRS 3u           /* that can be written to */
struct runtime_reset_baseline { /* what RESET compares with: nobody else had lived in the sandbox */
    bool is_recorded;
    bool dir_exists[RESET_DIRS];
    mode_t mode[RESET_DIRS];
    struct timespec times[RESET_DIRS][2];            /* last read and written */
    uint64_t blocks[RESET_DIRS], inodes[RESET_DIRS]; /* that are free */
    int nice, policy;
    cpu_set_t cpus;
    struct rlimit rlimits[RLIM_NLIMITS];
};

struct runtime {
    struct ev *ev;
    struct chan chan;
    struct runtime_streams streams;
    struct paths paths;
    struct procs procs;

    bool greeted;
    bool claimed;
    bool resetting; /* RESET came, and has not ended well */
    struct runtime_reset_baseline reset_baseline;
    uint64_t epoch;
    uint32_t measured_walls;         /* runtime_walls_measure() at the start */
    struct rt_claimed claimed_walls; /* as told with CLAIMED */
    const char *const *env;          /* of the claim; in env_strings */
    void *env_strings;
    int ruleset; /* what Landlock holds us to, for those who join later; -1 */
    struct {     /* made ready for a claim that may come, when `ruleset` is one */
        int ruleset;
        struct rt_rule *rules;
        uint32_t nrules;
        void *strings;
    } preloaded;
    int interpreter_fds[RT_INTERPRETER_FDS]; /* an interpreter that joined and waits: our ends; -1 */
    struct ev_io interpreter_io;
    int *frame_fds; /* descriptors of the frame that is being looked at; who takes one leaves -1 */
    size_t nframe_fds;

    struct runtime_exec *execs; /* whose main process was not reaped or whose output still flows */
    struct snapshot *snapshot;  /* /workspace as SNAPSHOT saw it; NULL before */
    bool snapshot_busy;         /* a SNAPSHOT or CHANGES is under way; they share the mark */
    struct ev_defer reap;
    int status;
};

static inline struct runtime *runtime_of_stream(struct runtime_stream *s)
{
    return container_of(s->streams, struct runtime, streams);
}

/* Serves the control socket until its other side is gone. Returns the exit status of the process. */
int runtime_serve(int control_fd);
