/* receipt.h - what an execution used, reached and changed, and why it ended. */
#pragma once

#include "core/base/base.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "core/wire/egress.h"
#include "policy/denial.h"
#include "policy/ended_by.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/network.h"

/* A figure that may be unknown: `why` is NULL when `v` is measured, else the reason why not. */
struct receipt_figure {
    uint64_t v;
    const char *why; /* static text */
};

struct receipt_change {
    char kind;      /* 'A' added, 'M' modified, 'D' deleted */
    char file_kind; /* 'f' 'd' 'l' ... */
    uint64_t size;
    char *path;
};

/* Connections of an execution through the egress proxy. All 0 with NETWORK_NONE. */
struct receipt_egress {
    uint8_t carrier; /* enum egress_carrier */
    uint64_t connections, refused, failed, received_bytes, sent_bytes;
    struct egress_destination *destinations; /* used since the last receipt of the sandbox */
    size_t ndestinations;
    uint64_t other_destinations; /* that did not fit into the list */
    const char *absent_why;      /* static text: why the figures are not known; NULL: they are */
};

#define RECEIPT_REQUEST_MAX 64

struct receipt {
    char sandbox[ID_SIZE];
    char execution[ID_SIZE];
    char request[RECEIPT_REQUEST_MAX + 1]; /* id of the server's request; "" without a request */
    bool final;
    enum ended_by ended_by;
    int exit_code; /* -1 unless it exited */
    int signal;    /* 0 unless a signal ended it */
    uint64_t started_real_ns;
    struct receipt_figure wall_ns, cpu_ns, memory_peak, read_bytes, write_bytes, tasks_started, pids_peak;
    struct receipt_figure pids_refused, oom_kills, throttled_ns;
    uint64_t stdout_bytes, stderr_bytes; /* bytes produced */
    uint64_t dropped_bytes;              /* bytes beyond the cap, of those produced */
    uint32_t full_filesystems;           /* RT_FULL_*: full file systems at the end */
    const char *full_filesystems_why;    /* NULL when that was checked */
    enum level level;
    char policy[64]; /* name of the policy; "" without a policy */
    char profile[16];
    char driver[16];
    struct network_policy network; /* the receipt owns its text */
    struct receipt_egress egress;
    char cgroup[16];
    uint32_t host_walls;   /* JAIL_WALL_*: attested by the driver */
    bool rootless;         /* the sandbox was made by an unprivileged user */
    uint32_t inside_walls; /* RT_WALL_*: verified by PID 1 */
    uint32_t landlock_abi;
    struct limits limits;
    uint8_t enforced[LIMIT_COUNT];     /* 0 not enforced, 1 in part, 2 enforced */
    uint8_t enforced_why[LIMIT_COUNT]; /* enum limit_reason, where the limit is not fully enforced */
    struct receipt_change *changes;
    size_t nchanges;
    uint64_t added, modified, deleted;
    bool changes_truncated;
    const char *changes_why;      /* NULL when the changes were measured */
    struct denial_count *denials; /* denied system calls, in the order of their first occurrence */
    size_t ndenials;
    uint64_t denials_more;   /* denials of kinds that did not fit into the list */
    const char *denials_why; /* NULL when denials were counted */
    const char *hint;        /* advice after a failure (hint.h); NULL: none; borrowed */
    bool context_reset;      /* the language kernel was restarted, so the variables of its context are lost */
};

/* Exit code of `cove run`: the program's own, 124, 123, 128+n or 125. */
int receipt_exit_code(const struct receipt *r);
void receipt_json(const struct receipt *r, struct jsonw *w);         /* writes one object */
void receipt_json_summary(const struct receipt *r, struct jsonw *w); /* the same members, but only the essential */
void receipt_json_end(const struct receipt *r, struct jsonw *w);     /* writes only exitCode, signal and endedBy */
void receipt_print(const struct receipt *r, struct buf *out);        /* a few lines for a person */
const char *receipt_network_carrier(uint8_t carrier);                /* "none", "proxy" or "tproxy" */
void receipt_done(struct receipt *r);
