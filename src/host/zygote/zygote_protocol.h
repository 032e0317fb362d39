/* zygote_protocol.h - messages between the jailer and a zygote over a SEQPACKET socket: plain
 * structs, because both are of the same build. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"

#define ZYGOTE_FD 3 /* socket of a started zygote */

/* Order to fork an interpreter into a sandbox. Descriptors: pidfd, kernel socket, stdout, stderr,
 * cgroup files, and the monitor's socket if has_monitor. */
struct zygote_fork_order {
    uint64_t token;
    char id[ID_SIZE];
    struct limits limits;
    struct filter_spec calls;
    uint8_t rootless, has_monitor; /* has_monitor: the last descriptor is a socket for the seccomp listener */
    uint8_t nprocs;
};

enum zygote_event_kind {
    ZYGOTE_READY,   /* once: it can be forked */
    ZYGOTE_FAILED,  /* it failed to start, and ends */
    ZYGOTE_JOINED,  /* the interpreter exists */
    ZYGOTE_REFUSED, /* the fork failed; see err */
};

struct zygote_event {
    enum zygote_event_kind kind;
    uint64_t token;
    struct err err;
};
