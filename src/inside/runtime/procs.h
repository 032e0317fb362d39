/* procs.h - what /proc tells PID 1 about the processes of its sandbox.
 *
 * Two files are opened once, before anybody else lives in the sandbox, and read again and again: the runtime's own I/O
 * counters and the load average, whose last field is the last process number given out in the reader's namespace. */
#pragma once

#include "core/base/base.h"

struct procs {
    int io_fd;      /* /proc/self/io; -1 when it cannot be had */
    int loadavg_fd; /* /proc/loadavg */
};

struct procs_io {
    uint64_t rchar, wchar;
    size_t cost; /* bytes that this reading itself adds to rchar afterwards */
};

/* Must run before PR_SET_DUMPABLE 0: afterwards /proc/self/io belongs to root. */
void procs_init(struct procs *p);
void procs_done(struct procs *p);
bool procs_io(const struct procs *p, struct procs_io *ret); /* of PID 1 and every child it has reaped */
bool procs_last_pid(const struct procs *p, uint64_t *ret);
uint32_t procs_count(void); /* processes in /proc, the caller excluded */

/* Sends a signal to `leader`, everything that descends from it, and every process of its session. For SIGKILL the tree
 * is stopped first, until no new member shows up, so that it cannot fork away. Never touches the caller. */
void procs_signal_tree(pid_t leader, int signo);

/* The fields of /proc/PID/stat that a tree needs; false on text that is none. Pure. */
bool procs_parse_stat(const char *text, char *state, pid_t *ppid, pid_t *session);
/* The two numbers of /proc/PID/io. Pure. */
bool procs_parse_io(const char *text, uint64_t *rchar, uint64_t *wchar);
