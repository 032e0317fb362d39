/* egress_control.h - the links of the proxy: jailers announce listeners, engines bind rules.
 *
 * A message that its sender may not send, or that is malformed, ends the link. */
#pragma once

#include "core/wire/unix_listener.h"
#include "host/egress/egress_proxy.h"

struct egress_control {
    struct egress_proxy *proxy;
    struct control_link *links;
    size_t nlinks;
    struct unix_listener listener; /* of a service */
    uid_t own_uid;                 /* before it dropped its privileges */
    struct ev_timer secrets_timer;
};

/* Opens the socket of a service, or takes the two sockets of one run. Must be called before the
 * process drops its privileges. The loop ends when a link of one run ends. */
int egress_control_init(struct egress_control *c, struct egress_proxy *p, struct err *err);
void egress_control_done(struct egress_control *c);
/* A link over a socket; takes it. For tests. */
int egress_control_add_link(struct egress_control *c, int sock, bool is_jailer, bool is_engine, struct err *err);
