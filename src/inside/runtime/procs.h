/* procs.h - information in /proc about the processes of the sandbox.
 *
 * Two files are opened once, before another process lives in the sandbox, and read repeatedly: the
 * runtime's own I/O counters and the load average, whose last field is the last pid assigned in the
 * reader's pid namespace. */
#pragma once

#include "core/base/base.h"

struct procs {
    int io_fd;      /* /proc/self/io; -1: unavailable */
    int loadavg_fd; /* /proc/loadavg; -1: unavailable */
};

struct procs_io {
    uint64_t rchar, wchar;
    size_t cost; /* bytes that this read itself adds to rchar afterwards */
};

/* Must be called before PR_SET_DUMPABLE 0: afterwards /proc/self/io belongs to root. */
void procs_init(struct procs *p);
void procs_done(struct procs *p);
bool procs_io(const struct procs *p, struct procs_io *ret); /* of PID 1 and every child it has reaped */
bool procs_last_pid(const struct procs *p, uint64_t *ret);
uint32_t procs_count(void); /* processes in /proc without the caller */

/* Sends a signal to `leader`, all its descendants, and every process of its session. For SIGKILL
 * the tree is first stopped, until no new process appears, so that it cannot fork away. Never
 * signals the caller. */
void procs_signal_tree(pid_t leader, int signo);

/* Parses the fields of /proc/PID/stat that a tree needs; false if malformed. Pure. */
bool procs_parse_stat(const char *text, char *state, pid_t *ppid, pid_t *session);
/* Parses the two numbers of /proc/PID/io; false if malformed. Pure. */
bool procs_parse_io(const char *text, uint64_t *rchar, uint64_t *wchar);
