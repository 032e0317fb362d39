/* resolver.h - answers the DNS queries of a sandbox, by itself.
 *
 * An allowed name gets an invented address, which leads to the transparent listener; any other name
 * does not exist. No query goes anywhere, so a query carries nothing out. */
#pragma once

#include "host/egress/egress_sandbox.h"

/* Listener callbacks; arg is a struct egress_listener_source. */
void resolver_on_datagrams(void *arg, uint32_t events);
void resolver_on_connection(void *arg, uint32_t events);
void resolver_end_all(struct egress_sandbox *s); /* its connections */
/* The answer to one query. Returns its length; 0: send none. */
size_t resolver_answer(struct egress_sandbox *s, const uint8_t *data, size_t len, uint8_t *ret);
