/* unix_listener.h - a SEQPACKET socket in the file system, to which processes of this machine
 * connect.
 *
 * The kernel reports the credentials of the connecting process. on_connection decides by uid
 * whether a process other than the owner's may connect; the mode of the socket only prevents other
 * users from trying. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/socket.h>

struct unix_listener {
    struct ev *ev;
    struct ev_io io; /* io.fd is the listening socket */
    char *path;
    void (*on_connection)(void *arg, int sock, const struct ucred *peer);
    void *arg;
};

/* `owner` may connect besides root: the socket belongs to `owner`, with mode 0600. A socket at
 * `path` without a listener is replaced; with a listener, the error is EXISTS. The callback owns
 * the socket that it receives. */
int unix_listener_open(struct unix_listener *d, struct ev *ev, const char *path, uid_t owner,
                       void (*on_connection)(void *arg, int sock, const struct ucred *peer), void *arg,
                       struct err *err);
void unix_listener_close(struct unix_listener *d); /* removes the socket; a zeroed or closed listener is accepted */

/* The client side: connects, and returns the credentials of the listening process (ret_peer may be
 * NULL). Never blocks: MISSING if no process listens, BUSY if the backlog is full. */
int unix_connect(const char *path, int *ret_sock, struct ucred *ret_peer, struct err *err);
