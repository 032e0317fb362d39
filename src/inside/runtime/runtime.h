/* runtime.h - PID 1 of a sandbox: one socket, one event loop, many streams.
 *
 * This object is shared by all requests. Each kind of request is a module with an `open` function,
 * listed in the table of control.c; the function gets a new stream and either answers at once or
 * attaches its own object to the stream. */
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

#define RESET_DIRS 3u           /* writable directories */
struct runtime_reset_baseline { /* state before the first claim, which RESET restores and compares with */
    bool is_recorded;
    bool dir_exists[RESET_DIRS];
    mode_t mode[RESET_DIRS];
    struct timespec times[RESET_DIRS][2];            /* access and modification time */
    uint64_t blocks[RESET_DIRS], inodes[RESET_DIRS]; /* free ones */
    int nice, policy;
    cpu_set_t cpus;
    struct rlimit rlimits[RLIM_NLIMITS];
    uint32_t sockets; /* TCP sockets: listeners of the egress proxy, which processes outside hold */
};

struct runtime {
    struct ev *ev;
    struct chan chan;
    struct runtime_streams streams;
    struct paths paths;
    struct procs procs;

    bool greeted;
    bool claimed;
    bool resetting; /* RESET has started and has not succeeded yet */
    struct runtime_reset_baseline reset_baseline;
    uint64_t epoch;
    uint32_t measured_walls;         /* runtime_walls_measure() at the start */
    struct rt_claimed claimed_walls; /* as sent with CLAIMED */
    const char *const *env;          /* of the claim; points into env_strings */
    void *env_strings;
    int ruleset; /* applied Landlock ruleset, for interpreters that join later; -1: none */
    struct {     /* prepared for an expected claim; valid if `ruleset` is not -1 */
        int ruleset;
        struct rt_rule *rules;
        uint32_t nrules;
        void *strings;
    } preloaded;
    int interpreter_fds[RT_INTERPRETER_FDS]; /* our ends of a joined interpreter that waits; -1: none */
    struct ev_io interpreter_io;
    int *frame_fds; /* descriptors of the current frame; a function that takes one sets it to -1 */
    size_t nframe_fds;

    struct runtime_exec *execs; /* main process not reaped, or output still open */
    struct snapshot *snapshot;  /* state of /workspace at SNAPSHOT; NULL: none */
    bool snapshot_busy;         /* a SNAPSHOT or CHANGES is in progress; they share `snapshot` */
    struct ev_defer reap;
    int status;
};

static inline struct runtime *runtime_of_stream(struct runtime_stream *s)
{
    return container_of(s->streams, struct runtime, streams);
}

/* Serves the control socket until its peer is gone. Returns the exit status of the process. */
int runtime_serve(int control_fd);
