/* host_addresses.h - the addresses of this machine's interfaces, which no sandbox may reach. The
 * kernel reports changes on a netlink socket, so a new address is closed as soon as it exists. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/ip_address.h"

struct sockaddr;

struct host_addresses {
    int netlink; /* -1: the addresses are read again for every question */
    bool is_read;
    bool has_ipv6; /* an interface has a global IPv6 address */
    struct ip_address *list;
    size_t n;
};

int host_addresses_init(struct host_addresses *h, struct err *err);
void host_addresses_done(struct host_addresses *h);
bool host_addresses_has(struct host_addresses *h, const struct ip_address *a);
bool host_addresses_has_ipv6(struct host_addresses *h);
/* False for other families than IPv4 and IPv6. An IPv4 address in IPv6 form stays IPv6. */
bool host_address_from(const struct sockaddr *sa, struct ip_address *ret);
