/* egress_net.h - the listeners through which a sandbox reaches the egress proxy.
 *
 * They are made in the sandbox's network and handed to the proxy, which is outside of it: a socket
 * belongs to the network in which it was made. The namespace still has no route, and no process in
 * it has a privilege or a descriptor of a listener. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define EGRESS_NET_ADDRESS 0xc6120001u /* 198.18.0.1 */
#define EGRESS_NET_PREFIX 15           /* all of 198.18.0.0/15 is local: the proxy gives these addresses to names */
#define EGRESS_NET_DNS_PORT 53         /* all listeners are on 127.0.0.1 */
#define EGRESS_NET_PROXY_PORT 3128
#define EGRESS_NET_ANY_PORT 1 /* low: not a port of user programs, and below the range of ephemeral ports */

enum egress_net_socket {
    EGRESS_NET_DNS_UDP,
    EGRESS_NET_DNS_TCP,
    EGRESS_NET_PROXY,
    EGRESS_NET_ANY, /* accepts connections to every port of 198.18.0.0/15; needs TPROXY in the kernel */
    EGRESS_NET_SOCKETS,
};

struct egress_net {
    int fds[EGRESS_NET_SOCKETS]; /* indexed by enum egress_net_socket; they do not block */
    size_t n;                    /* 0: none; EGRESS_NET_SOCKETS, or one less if the kernel has no TPROXY */
};

/* In the network namespace of the caller, after net_loopback_only: makes the listeners, and makes
 * connections to 198.18.0.0/15 arrive at EGRESS_NET_ANY. A kernel without TPROXY gets no address of
 * that range, so that connections to it are refused by the prohibit route. Allocates nothing. */
int egress_net_open(struct egress_net *ret, struct err *err);
void egress_net_close(struct egress_net *n);
