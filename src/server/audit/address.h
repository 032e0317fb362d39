/* address.h - which addresses the server may connect to as a client.
 *
 * A user with permission to give the server an address (today a webhook URL) must not be able to
 * reach hosts that only the server reaches: the server itself, its private network, the metadata
 * service of its cloud. Therefore only addresses of the public internet are allowed; exceptions are
 * listed one by one. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/ip_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* "10.1.2.3", "10.0.0.0/8", "fd00::/8". Bits after the prefix are cleared. */
int address_net_parse(const char *text, struct ip_prefix *ret, struct err *err);

bool address_is_public(const struct sockaddr *addr);
/* Public, or in one of the networks. False for families other than IPv4 and IPv6. */
bool address_is_allowed(const struct sockaddr *addr, const struct ip_prefix *nets, size_t nnets);

/* Checks whether the host of a URL is an address: 1 with *ret filled, 0 for a name; -1 for text
 * that some programs parse as an address and others as a name: hexadecimal or octal numbers, fewer
 * than four parts, and the like. */
int address_literal(const char *host, struct sockaddr_storage *ret, struct err *err);
