/* monitor.h - the process that answers refused system calls, and remembers them for the receipt.
 *
 * The filter of a sandbox hands a call that it refuses to a listener instead of answering EPERM itself. The listeners
 * of all sandboxes end up here, in a process outside of them that has no privilege: it counts the call and answers
 * EPERM. It can do nothing else. It never lets a call through, never performs one, and never reads a sandbox's memory,
 * so taking it over gains a sandbox nothing but wrong counts.
 *
 * When it dies the kernel answers the refused calls with ENOSYS: nothing hangs and nothing is allowed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

#define MONITOR_UID 1900290000u /* on the host, beside those of sandboxes and templates */

struct monitor_settings {
    uint8_t (*significant_args)(
        unsigned nr);        /* arguments that tell refusals of a call apart, as bits; only the first four count */
    bool may_outlive_parent; /* it may live longer than the process that started it, for kept sandboxes */
    /* monitor_service only */
    const char *socket; /* where the jailer knocks: a process of root, or of the user who started this one */
};

/* Listeners come on `intake` as J_WATCH; questions (J_DENIALS, J_UNWATCH) come on `host`. J_NEW_CLIENT on `intake`
 * brings the socket of a host that takes the place of this one: kept sandboxes outlive theirs. For the new one counts
 * begin anew. Serves until the host is gone, nobody can send a listener any more, and the last one has ended. Takes
 * both. Returns the exit status. */
int monitor_serve(int intake, int host, const struct monitor_settings *settings);

/* Serves all that knock at `socket`, for good. Gives up every privilege as soon as that is open. `parent` is whom it
 * dies with, unless settings->outlive. Returns the exit status when it could not start. */
int monitor_service(const struct monitor_settings *settings, pid_t parent);

/* Forks a process that gives up every privilege and runs monitor_serve, and returns the other end of its host socket.
 * `intake` stays the caller's to close. */
int monitor_fork(int intake, const struct monitor_settings *settings, int *ret_host, pid_t *ret_pid, struct err *err);
