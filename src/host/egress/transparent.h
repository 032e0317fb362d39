/* transparent.h - connections of programs that ignore proxy variables. Their destination is the
 * address that they connected to, which the resolver has given to a name. */
#pragma once

#include "host/egress/egress_conn.h"

void transparent_start(struct egress_conn *c);
