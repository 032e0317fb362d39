/* jailer.h - the privileged process: reads requests from a socket, raises walls, hands back descriptors.
 *
 * One thread, one loop, one table of requests and the states in which each is legal. It trusts nobody: every field of
 * every request is checked again here, whoever sent it. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct jailer_settings {
    int runtime_fd;        /* the cove-runtime program, opened for reading */
    int kernels_fd;        /* the directory of the languages' kernels, or 0 */
    const char *state_dir; /* "/run/cove": locks and sockets of kept sandboxes */
    int monitor_fd;        /* socket to which listeners of refused calls go, as J_WATCH; 0 is none */
    bool keep_log;         /* say what it does on standard error */
    /* jailer_service only */
    const char *socket;  /* where hosts knock */
    uid_t host_uid;      /* who may, beside root */
    const char *monitor; /* socket of a monitor that may be restarted; NULL is none */
};

/* Serves the socket until its other side is gone and no kept sandbox lives, then removes all it made. Meant to be
 * called in a process forked for it; returns that process's exit status. */
int jailer_serve(int sock, const struct jailer_settings *settings);

/* Serves all hosts that knock at `socket`, until SIGTERM, and then ends every sandbox. A host that goes away leaves the
 * sandboxes that it asked to keep; a later host of the same uid, or of root, may list and adopt them. Returns the exit
 * status of the process. */
int jailer_service(const struct jailer_settings *settings);

/* Forks a process that runs jailer_serve, and returns the other end of its socket. The child lives in a session of its
 * own, so signals of the terminal do not reach it. */
int jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err);

/* How many sandboxes a jailer has room for that may hold so many descriptors; fewer when some of them are kept. */
uint64_t jailer_sandbox_capacity(uint64_t nofile);

/* Removes cgroups and directories of jailers that died without cleaning up. Returns how many it found. */
int jailer_sweep(const char *state_dir, struct err *err);

/* The socket of a kept sandbox's jailer, by the sandbox's id. */
int jailer_connect_kept(const char *state_dir, const char *id, int *ret_sock, struct err *err);
