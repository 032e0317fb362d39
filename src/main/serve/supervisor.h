/* supervisor.h - keeps a few programs running: starts them in order, restarts what dies, stops them in reverse.
 *
 * A program that dies before it was ready for the first time ends the whole: it has said why, and would say it again.
 * Later it is started again, at once at first and then ever more patiently. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/types.h>

struct supervisor;

struct supervisor_program {
    const char *name;
    const char *const *argv; /* argv[0] is the path */
    const int *fds;          /* become 3, 4, ... of the program */
    size_t nfds;
    uid_t uid; /* when we are root it becomes this one, without capabilities or a way to new ones; 0 stays root */
    gid_t gid;
    const char *ready_socket; /* a socket that it opens when it is ready; NULL: descriptor 3 + nfds is a pipe, on which
                         it says lines, the last of them "ready" */
    int stop_signal;          /* that says that all of them stop; 0 is SIGTERM */
    uint64_t stop_ms;         /* from there to SIGKILL */
};

struct supervisor_ops {
    void (*on_line)(void *arg, const char *program, const char *line); /* said on its ready pipe before "ready" */
    void (*on_ready)(void *arg);                                       /* all of them, for the first time */
};

/* Programs and their tables are borrowed. */
int supervisor_new(struct ev *ev, const struct supervisor_program *programs, size_t n, const struct supervisor_ops *ops,
                   void *arg, struct supervisor **ret, struct err *err);
void supervisor_stop(struct supervisor *s);        /* the last first, one after the other; then the loop stops */
void supervisor_kill_last(struct supervisor *s);   /* SIGKILL instead of patience */
void supervisor_reap(struct supervisor *s);        /* after SIGCHLD */
int supervisor_status(const struct supervisor *s); /* the exit status for the whole, after the loop */
void supervisor_free(struct supervisor *s);
DEFINE_AUTO(supervisor, supervisor_free);

/* How long to wait before a program is started again: twice as long as the last time (0: there was none) when it ran
 * for less than that, half as long when it ran for more, and as at first when it ran for much more. So one that dies at
 * once is tried ever more seldom, and one that is killed again and again is not away for longer than it was there. */
uint64_t supervisor_backoff_ns(uint64_t before_ns, uint64_t ran_ns);
