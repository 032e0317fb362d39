/* tunnel.h - passes the bytes of a connection on, after CONNECT or by the transparent listener.
 *
 * The destination was allowed by name and port. If the client speaks TLS, the name in its first
 * message must be the same name, so that the connection does not serve to reach another site of the
 * same server; on port 443 it must speak TLS. If it speaks HTTP, http_front takes the
 * connection. */
#pragma once

#include "host/egress/egress_conn.h"

/* Takes the connection, whose target is set and allowed. `is_connect`: the client waits for the
 * answer to its CONNECT. `first` are bytes of the client that were read already. */
void tunnel_start(struct egress_conn *c, bool is_connect, const void *first, size_t nfirst);
/* The same over an open connection, without looking at the bytes: after an upgrade. Takes the
 * descriptor. */
void tunnel_start_upgraded(struct egress_conn *c, int server, const void *first, size_t nfirst);
