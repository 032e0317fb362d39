/* unix_listener.h - a SEQPACKET socket in the file system, through which processes of this host come in.
 *
 * The kernel says whose process knocks. Who else but the owner may come in is decided by on_guest, which knows the
 * caller's uid; the socket's own mode only keeps the others from trying. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/socket.h>

struct unix_listener {
    struct ev *ev;
    struct ev_io io; /* io.fd is the listening socket */
    char *path;
    void (*on_connection)(void *arg, int sock, const struct ucred *who);
    void *arg;
};

/* `owner` is who may connect beside root: the socket is theirs, mode 0600. What lies at the path is replaced if it is a
 * socket that nobody listens on; if somebody does, the error is EXISTS. on_guest owns the socket that it is given. */
int unix_listener_open(struct unix_listener *d, struct ev *ev, const char *path, uid_t owner,
                       void (*on_guest)(void *arg, int sock, const struct ucred *who), void *arg, struct err *err);
void unix_listener_close(struct unix_listener *d); /* removes the socket; a zeroed or closed door is accepted */

/* The other side: a connection, and whose process listens (may be NULL). It never waits: MISSING when nobody listens,
 * BUSY when too many knock. */
int unix_connect(const char *path, int *ret_sock, struct ucred *ret_who, struct err *err);
