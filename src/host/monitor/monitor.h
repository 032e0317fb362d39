/* monitor.h - the process that answers denied system calls and counts them for the receipt.
 *
 * The filter of a sandbox sends a denied call to a listener instead of returning EPERM itself. The
 * listeners of all sandboxes are held here, in an unprivileged process outside the sandboxes, which
 * counts the call and answers EPERM. It does nothing else: it never lets a call through, never
 * performs one, and never reads a sandbox's memory, so a sandbox that takes it over gains only
 * wrong counts.
 *
 * If the monitor dies, the kernel answers denied calls with ENOSYS: nothing hangs and nothing is
 * allowed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

#define MONITOR_UID 1900290000u /* on the host, next to the uids of sandboxes and templates */

struct monitor_settings {
    /* Arguments that distinguish denials of a call, as a bit mask; only the first four count. NULL:
     * none. */
    uint8_t (*significant_args)(unsigned nr);
    bool may_outlive_parent; /* it may outlive its parent, for kept sandboxes */
    /* Used by monitor_service only. */
    const char *socket; /* path on which the jailer connects, as root or as the user of the monitor */
};

/* Listeners arrive on `intake` as J_WATCH; queries (J_DENIALS, J_UNWATCH) arrive on `host`.
 * J_NEW_CLIENT on `intake` carries the socket of a client that replaces the current one, because
 * kept sandboxes outlive their client. For the new client, counts start at 0. Serves until the
 * client is gone, no sender of listeners is left, and the last listener has ended. Takes both
 * descriptors. Returns the exit status. */
int monitor_serve(int intake, int host, const struct monitor_settings *settings);

/* Serves all connections to `socket` until it is killed. Drops every privilege as soon as the
 * socket is open. It dies with `parent`, unless settings->may_outlive_parent. Returns the exit
 * status if it could not start. */
int monitor_service(const struct monitor_settings *settings, pid_t parent);

/* Forks a process that drops every privilege and runs monitor_serve, and returns the other end of
 * its client socket. The caller still owns `intake`. */
int monitor_fork(int intake, const struct monitor_settings *settings, int *ret_host, pid_t *ret_pid, struct err *err);
