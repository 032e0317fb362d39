/* egress_proxy.h - the state of the process cove-egress, and how it is started.
 *
 * Processes of the sandbox reach it through listeners that the jailer made in the sandbox's
 * network. It has no privilege and trusts neither them nor the servers that they reach. */
#pragma once

#include "core/ev/ev.h"
#include "host/egress/relay.h"
#include "host/egress/shares.h"
#include "host/egress/upstream.h"

#define EGRESS_UID 1900290001u /* on the host, next to the monitor's */
#define EGRESS_SANDBOXES_MAX 16384u
#define EGRESS_SANDBOX_BUCKETS 1024u

struct tls_authorities;

struct egress_settings {
    /* A service: the path of its socket, which belongs to root; `host_uid` may connect as well. */
    const char *socket;
    uid_t host_uid;
    pid_t parent; /* a service ends with it; 0: it does not */
    /* One run: the sockets of the jailer and of the engine; -1: a service. */
    int jailer_fd, engine_fd;
    struct upstream_settings upstream;
    const char *ca_file; /* of tls_authorities_new() */
    uint32_t sandbox_connections, tenant_connections;
};

struct egress_proxy {
    struct ev *ev;
    const struct egress_settings *settings;
    struct shares shares;
    struct upstream upstream;
    struct relay_shared relays;
    struct tls_authorities *authorities;
    struct egress_sandbox *sandboxes[EGRESS_SANDBOX_BUCKETS];
    size_t nsandboxes, nlisteners;
    size_t descriptors_max; /* of this process */
    /* Secrets of the sandbox were used. */
    void (*on_secret_used)(void *arg, struct egress_sandbox *s);
    void *arg;
};

int egress_proxy_init(struct egress_proxy *p, struct ev *ev, const struct egress_settings *settings, struct err *err);
void egress_proxy_done(struct egress_proxy *p);
/* Listeners and connections share the descriptors; a listener that comes leaves less for
 * connections. */
void egress_proxy_count_listeners(struct egress_proxy *p, int change);
