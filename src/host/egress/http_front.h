/* http_front.h - forwards HTTP requests of a connection, one after the other.
 *
 * Every request is decided on its own, also on a kept connection: by the target of a request to the
 * proxy, or by the destination to which the connection is bound. Requests and responses are parsed
 * and written again, so that both sides find the same ends, and what is for one connection only
 * goes no further. Bodies pass as they arrive. */
#pragma once

#include "host/egress/egress_conn.h"

enum http_front_mode {
    HTTP_FRONT_PROXY, /* requests name their target; CONNECT is possible */
    HTTP_FRONT_BOUND, /* the connection has one destination, and every request must agree */
};

/* Takes the connection. `host`: of a bound connection, whose address and port are set in `c`; "" is
 * an address. */
void http_front_start(struct egress_conn *c, enum http_front_mode mode, const char *host);
/* The same for a connection that is bound to its target, of which bytes were read already. */
void http_front_continue(struct egress_conn *c, const void *first, size_t nfirst);
