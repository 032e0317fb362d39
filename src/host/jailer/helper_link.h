/* helper_link.h - the jailer's connection to a helper process that receives descriptors of
 * sandboxes: the monitor, or the egress proxy.
 *
 * A helper of `cove run` is given as a connected socket and lives as long as its client. A helper
 * of a service has a socket path and may be restarted: the jailer connects again, with back-off,
 * and then sends every descriptor again, of which it keeps duplicates. */
#pragma once

#include "core/base/backoff.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "core/wire/chan.h"

#define HELPER_LINK_GRACE_NS (5 * NS_PER_S) /* a helper that is restarted is back within this time */

struct jailer;
struct jailed_sandbox;

struct helper_link_ops {
    const char *loss; /* logged when the helper is lost: what its sandboxes meet until it is back */
    void (*announce)(struct jailed_sandbox *sandbox); /* sends what is kept of the sandbox */
    /* Called after every failed attempt to connect once the grace period is over, and at the end of
     * a given socket, which is not replaced. */
    void (*on_absent)(struct jailer *j);
};

struct helper_link {
    struct jailer *jailer; /* NULL: not started */
    const struct helper_link_ops *ops;
    const char *path; /* NULL: a given socket, which is not replaced */
    struct chan chan;
    bool connected;
    uint64_t lost_at;       /* when the helper was lost; valid unless connected */
    struct backoff backoff; /* between connection attempts */
    struct ev_timer retry_timer;
};

/* Connects to a socket path now, and again whenever the connection is lost. */
void helper_link_start(struct helper_link *l, struct jailer *j, const char *path, const struct helper_link_ops *ops);
/* Takes a connected socket, also on failure. */
int helper_link_start_with(struct helper_link *l, struct jailer *j, int sock, const struct helper_link_ops *ops,
                           struct err *err);
void helper_link_end(struct helper_link *l); /* a link that was not started is accepted */
/* Does nothing without a connection. */
void helper_link_send(struct helper_link *l, const struct frame *f, const int *fds, size_t nfds);
/* The helper is connected, or was lost so recently that it may be back in a moment. */
bool helper_link_expected(const struct helper_link *l);
