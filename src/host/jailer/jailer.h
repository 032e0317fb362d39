/* jailer.h - the privileged process: reads requests from a socket, raises walls, returns
 * descriptors.
 *
 * One thread, one event loop, one table of requests and the states in which each is legal. It
 * trusts no client: it checks every field of every request again. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct jailer_settings {
    int runtime_fd;        /* the cove-runtime program, opened for reading */
    int kernels_fd;        /* directory of the language kernels, or 0 */
    const char *state_dir; /* "/run/cove": locks and sockets of kept sandboxes */
    int monitor_fd;        /* socket for seccomp listeners, sent as J_WATCH; 0: none */
    int egress_fd;         /* socket to an egress proxy, for E_LISTEN; 0: none */
    bool keep_log;         /* log to standard error */
    /* Used by jailer_service only. */
    const char *socket;  /* path on which clients connect */
    uid_t host_uid;      /* uid that may connect, besides root */
    const char *monitor; /* socket path of a monitor that may restart; NULL: none */
    const char *egress;  /* socket path of an egress proxy that may restart; NULL: none */
};

/* Serves the socket until its peer is gone and no kept sandbox lives, then removes everything it
 * made. Call it in a process forked for it; returns that process's exit status. */
int jailer_serve(int sock, const struct jailer_settings *settings);

/* Serves all clients that connect to `socket` until SIGTERM, then ends every sandbox. When a client
 * disconnects, its kept sandboxes stay; a later client with the same uid, or root, may list and
 * adopt them. Returns the exit status of the process. */
int jailer_service(const struct jailer_settings *settings);

/* Forks a process that runs jailer_serve, and returns the other end of its socket. The child has
 * its own session, so signals of the terminal do not reach it. */
int jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err);

/* How many sandboxes fit into a descriptor limit of `nofile`; fewer if some of them are kept or
 * have a network. */
uint64_t jailer_sandbox_capacity(uint64_t nofile);

/* Removes cgroups and directories of jailers that died without cleanup. Returns how many it
 * removed. */
int jailer_sweep(const char *state_dir, struct err *err);

/* Connects to the jailer of the kept sandbox `id`. */
int jailer_connect_kept(const char *state_dir, const char *id, int *ret_sock, struct err *err);
