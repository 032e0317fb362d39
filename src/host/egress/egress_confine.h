/* egress_confine.h - the privileges and resources that the proxy gives up before it reads a
 * byte. */
#pragma once

#include "core/base/base.h"

/* Raises the limit of descriptors; needs the privilege that egress_confine() drops. */
void egress_raise_descriptor_limit(void);
/* Becomes a user of its own if it was root; no capability, no new privileges, no core dump, no
 * child, and only the system calls of a proxy. `parent`: dies with it; 0: does not. -1 with
 * errno. */
int egress_confine(pid_t parent);
