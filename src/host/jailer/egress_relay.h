/* egress_relay.h - gives the listeners of each sandbox with a network to the egress proxy, again to
 * a restarted one, and takes them back at the end of the sandbox.
 *
 * The jailer keeps a duplicate of each listener, so connections wait in the kernel while the
 * proxy is restarted. A network namespace lives as long as a socket of it, so at the end of a
 * sandbox both close the listeners. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/egress_net.h"

struct jailer;
struct jailed_sandbox;

int egress_relay_start(struct jailer *j, struct err *err);
/* ERR_NETWORK_UNAVAILABLE: no proxy is connected, nor expected back in a moment. */
int egress_relay_check(const struct jailer *j, struct err *err);
/* Takes the listeners and announces them. The sandbox must be in the list of the jailer. */
void egress_relay_add(struct jailed_sandbox *sandbox, const struct egress_net *listeners);
void egress_relay_remove(struct jailed_sandbox *sandbox); /* without listeners: does nothing */
