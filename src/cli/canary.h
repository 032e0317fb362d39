/* canary.h - what `cove doctor` plants on the host for the attacks to look for. */
#pragma once

#include "base/base.h"

struct canary {
    int port_fd, socket_fd;
    unsigned port;   /* listens on the loopback of the host; 0 when it could not be had */
    char socket[32]; /* an abstract socket that listens */
};
#define CANARY_NONE                    \
    {                                  \
        .port_fd = -1, .socket_fd = -1 \
    }

/* Before the jailer is started, which would carry all of it along. */
void canary_plant(struct canary *c);
/* After the jailer was forked: it would hold the segment too, and live a moment longer than we do. */
void canary_plant_memory(void);
void canary_done(struct canary *c);
