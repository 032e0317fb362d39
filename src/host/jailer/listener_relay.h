/* listener_relay.h - where the listeners of refused calls go: to the monitor, and to the one that comes after it.
 *
 * A jailer that was forked by `cove run` has a monitor at the other end of a socket, and the sandboxes send their
 * listeners there. A service has one that may be restarted. Its sandboxes send to the jailer, which keeps a duplicate
 * of each listener, hands it on, and hands all of them to the next monitor. While there is none, refused calls wait;
 * if none comes within LISTENER_RELAY_GRACE_NS the duplicates are closed, and the calls answer ENOSYS. */
#pragma once

#include "core/base/backoff.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "core/wire/chan.h"

#define LISTENER_RELAY_GRACE_NS (5 * NS_PER_S)

struct jailer;
struct spawner;

struct listener_relay {
    int sender_socket;        /* given to the spawners; 0 is none */
    struct ev_io receiver_io; /* service: what they send arrives here */
    struct chan monitor;
    bool connected;
    uint64_t lost_at;       /* since when there is no monitor */
    struct backoff backoff; /* of connecting to the monitor */
    struct ev_timer retry_timer;
};

int listener_relay_start(struct jailer *j, struct err *err);
void listener_relay_end(struct jailer *j);
/* Hands a new host's end of a socket to the monitor. MISSING: there is none, or none at the moment. */
int listener_relay_add_client(struct jailer *j, int sock, struct err *err);
/* A way for somebody less trusted to announce listeners: [0] is ours to read, [1] theirs. */
int listener_relay_pair(int sv[2], struct err *err);
/* Takes what was announced, for sandboxes of this spawner; NULL: of any. False: a lie, or nobody is left to say more.
 */
bool listener_relay_read(struct jailer *j, int sock, const struct spawner *of);
