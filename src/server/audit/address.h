/* address.h - which addresses the server may talk to of its own accord.
 *
 * Whoever can name an address to the server (a webhook, one day an import) must not reach through it what only the
 * server can reach: itself, its neighbours, the metadata service of its cloud. So only addresses of the public internet
 * are allowed, and exceptions are named one by one. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <netinet/in.h>
#include <sys/socket.h>

struct address_net { /* IPv4 as mapped into IPv6 */
    struct in6_addr addr;
    unsigned bits;
};

/* "10.1.2.3", "10.0.0.0/8", "fd00::/8". */
int address_net_parse(const char *text, struct address_net *ret, struct err *err);

bool address_is_public(const struct sockaddr *addr);
/* Public, or in one of the networks. Families other than IPv4 and IPv6 never are. */
bool address_is_allowed(const struct sockaddr *addr, const struct address_net *nets, size_t nnets);

/* The host of a URL is an address and not a name: 1 with *ret filled, 0 for a name; -1 for what one program would take
 * for an address and another for a name: numbers in hexadecimal or octal, with fewer than four parts, and the like. */
int address_literal(const char *host, struct sockaddr_storage *ret, struct err *err);
