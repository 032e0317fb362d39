/* doctor_bait.h - objects that `cove doctor` plants on the host as targets of the attacks. */
#pragma once

#include "core/base/base.h"

struct doctor_bait {
    int port_fd, socket_fd;
    unsigned port;   /* listening port on the host's loopback; 0: none */
    char socket[32]; /* name of a listening abstract socket */
};
#define DOCTOR_BAIT_NONE               \
    {                                  \
        .port_fd = -1, .socket_fd = -1 \
    }

/* Call before the jailer is started, so that a leak would pass everything to it. */
void doctor_bait_create(struct doctor_bait *c);
/* Call after the jailer is forked: it would inherit the segment and live slightly longer
 * than this process. */
void doctor_bait_create_memory(void);
void doctor_bait_done(struct doctor_bait *c);
