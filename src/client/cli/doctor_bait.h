/* doctor_bait.h - what `cove doctor` plants on the host for the attacks to look for. */
#pragma once

#include "core/base/base.h"

struct doctor_bait {
    int port_fd, socket_fd;
    unsigned port;   /* listens on the loopback of the host; 0 when it could not be had */
    char socket[32]; /* an abstract socket that listens */
};
#define DOCTOR_BAIT_NONE               \
    {                                  \
        .port_fd = -1, .socket_fd = -1 \
    }

/* Before the jailer is started, which would carry all of it along. */
void doctor_bait_create(struct doctor_bait *c);
/* After the jailer was forked: it would hold the segment too, and live a moment longer than we
 * do. */
void doctor_bait_create_memory(void);
void doctor_bait_done(struct doctor_bait *c);
