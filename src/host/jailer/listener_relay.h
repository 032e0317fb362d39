/* listener_relay.h - sends the seccomp listeners of sandboxes to the monitor, and again to a
 * restarted monitor.
 *
 * A jailer forked by `cove run` has a socket to its monitor, and the sandboxes send their listeners
 * there directly. The monitor of a service may be restarted. Its sandboxes send their listeners to
 * the jailer, which keeps a duplicate of each, forwards it, and sends all of them to the next
 * monitor. While no monitor is connected, denied system calls wait; if none connects within
 * HELPER_LINK_GRACE_NS, the duplicates are closed and the calls return ENOSYS. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"
#include "host/jailer/helper_link.h"

struct jailer;
struct spawner;

struct listener_relay {
    int sender_socket;          /* given to the spawners; 0: none */
    struct ev_io receiver_io;   /* service: the other end of sender_socket */
    struct helper_link monitor; /* service */
};

int listener_relay_start(struct jailer *j, struct err *err);
void listener_relay_end(struct jailer *j);
/* Sends a new client's end of a socket to the monitor. ERR_MISSING: no monitor, or none at the
 * moment. */
int listener_relay_add_client(struct jailer *j, int sock, struct err *err);
/* A socket pair on which a less trusted process announces listeners: [0] is for the jailer to read,
 * [1] for the process. */
int listener_relay_pair(int sv[2], struct err *err);
/* Reads announced listeners for sandboxes of spawner `of`; NULL: of any spawner. False: the sender
 * broke the protocol, or all senders are gone. */
bool listener_relay_read(struct jailer *j, int sock, const struct spawner *of);
