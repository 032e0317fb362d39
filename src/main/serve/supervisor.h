/* supervisor.h - keeps a few programs running: starts them in order, restarts them when they die,
 * stops them in reverse order.
 *
 * If a program dies before it was ready for the first time, the supervisor stops everything: the
 * program has logged the cause, and a restart would fail again. A program that dies later is
 * restarted, with an increasing back-off; an optional one that was never ready as well, but rarely.
 */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/types.h>

struct supervisor;

struct supervisor_program {
    const char *name;
    const char *const *argv; /* argv[0] is the path of the program; NULL: it is left out */
    const int *fds;          /* become descriptors 3, 4, ... of the program */
    size_t nfds;
    /* User of the program if the supervisor is root, with no capabilities and no_new_privs; 0 stays
     * root. */
    uid_t uid;
    gid_t gid;
    /* Socket that the program opens when it is ready. NULL: descriptor 3 + nfds of the program is a
     * pipe, to which it writes lines, the last of them "ready". */
    const char *ready_socket;
    bool optional;    /* the programs after it do not wait for it, and the others run without it */
    int stop_signal;  /* signal that asks the program to stop; 0 is SIGTERM */
    uint64_t stop_ms; /* from stop_signal to SIGKILL */
};

struct supervisor_ops {
    void (*on_line)(void *arg, const char *program, const char *line); /* a line on the ready pipe before "ready" */
    void (*on_ready)(void *arg);                                       /* all programs are ready for the first time */
};

/* Programs and the tables they point to are borrowed. */
int supervisor_new(struct ev *ev, const struct supervisor_program *programs, size_t n, const struct supervisor_ops *ops,
                   void *arg, struct supervisor **ret, struct err *err);
void supervisor_stop(struct supervisor *s); /* stops the programs one by one, the last first; then the loop stops */
void supervisor_kill_last(struct supervisor *s);   /* sends SIGKILL to the last running program */
void supervisor_reap(struct supervisor *s);        /* call after SIGCHLD */
int supervisor_status(const struct supervisor *s); /* exit status of the supervisor, valid after the loop */
void supervisor_free(struct supervisor *s);
DEFINE_AUTO(supervisor, supervisor_free);

/* Returns the back-off before a restart. before_ns is the previous back-off, 0 if there was none. A
 * run shorter than the previous back-off doubles it, a longer run halves it, and a run of more than
 * ten times its length resets it. So a program that dies at once is restarted ever more rarely, and
 * a program that is killed repeatedly is never down for longer than it ran. */
uint64_t supervisor_backoff_ns(uint64_t before_ns, uint64_t ran_ns);
