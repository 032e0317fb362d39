/* zygote_protocol.h - what the jailer and a zygote say to each other, over a SEQPACKET socket: plain structs, since
 * both are of one build. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"

#define ZYGOTE_FD 3 /* of a zygote that was just started */

struct zygote_fork_order { /* a member for this sandbox; descriptors: pidfd, kernel, out, err, cgroup files, and a
                              monitor */
    uint64_t token;
    char id[ID_SIZE];
    struct limits limits;
    struct filter_spec calls;
    uint8_t rootless, has_monitor; /* watched: the last descriptor is a socket to who hears of refused calls */
    uint8_t nprocs;
};

enum zygote_event_kind {
    ZYGOTE_READY,   /* once: it can be forked */
    ZYGOTE_FAILED,  /* it cannot, and ends */
    ZYGOTE_JOINED,  /* the member exists */
    ZYGOTE_REFUSED, /* it does not */
};

struct zygote_event {
    enum zygote_event_kind kind;
    uint64_t token;
    struct err err;
};
