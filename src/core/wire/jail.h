/* jail.h - the messages between the engine (in cove run or coved) and the jailer, over a SEQPACKET
 * socket that passes descriptors.
 *
 * Every request uses a new stream number, chosen by the engine, and gets exactly one reply on that
 * stream: J_OK, DONE, J_CREATED or J_ERROR. J_EVENT is sent on stream 0 without a request. Limits
 * are a plain counted array whose indices policy/limits.def defines, so that the wire does not
 * depend on policy. Decoders refuse an id that is not "sb" and 20 base32 characters, an unknown
 * kind, and missing or extra bytes. Encoders refuse the same with INVALID, and content that does
 * not fit with LIMIT. */
#pragma once

#include "core/base/err.h"
#include "core/base/id.h"
#include "core/base/pack.h"
#include "core/wire/frame.h"

#define JAIL_LIMITS_MAX 32
#define JAIL_MOUNTS_MAX 12
#define JAIL_DST_MAX 256
#define JAIL_NAME_MAX 64
#define JAIL_DENY_WORDS 8

struct jail_template {
    char name[JAIL_NAME_MAX];
    uint8_t driver;                 /* enum driver_id of policy/driver.h */
    uint8_t profile;                /* enum profile of policy/syscalls.h */
    uint32_t grants;                /* one bit per enum grant of policy/syscalls.h */
    uint64_t deny[JAIL_DENY_WORDS]; /* one bit per system call that the policy denies */
    uint8_t joinable;               /* interpreters may join sandboxes of this template: J_ZYGOTE, J_JOIN */
    uint8_t egress;                 /* its sandboxes have listeners of the egress proxy: E_LISTEN */
};

enum jail_mount_kind {
    JAIL_BIND_RO = 1, /* descriptor of a file or directory, mounted read-only at dst */
    /* descriptor of a directory, mounted read-write at /workspace, owned by the sandbox's user */
    JAIL_WORKSPACE = 2,
    JAIL_WORKSPACE_COW = 3 /* as JAIL_WORKSPACE, copy-on-write: the directory itself never changes */
};

struct jail_mount {
    uint8_t kind;
    uint8_t fd; /* index into the descriptors of the message */
    char dst[JAIL_DST_MAX];
};

struct jail_create {
    char id[ID_SIZE];
    char template[JAIL_NAME_MAX];
    char hostname[JAIL_NAME_MAX];
    /* the owner of the files of JAIL_WORKSPACE; inside, the sandbox's user owns these files */
    uint32_t owner_uid, owner_gid;
    uint64_t limits[JAIL_LIMITS_MAX];
    uint32_t nlimits;
    uint8_t network; /* enum network_mode of policy/network.h; 1 exactly if the template has `egress` */
    struct jail_mount mounts[JAIL_MOUNTS_MAX];
    uint32_t nmounts;
};

enum jail_enforced { JAIL_NONE = 0, JAIL_PARTIAL = 1, JAIL_ENFORCED = 2 };

/* Descriptors of J_CREATED, in this order: control stream, pidfd of PID 1; if `cpu_fd`, a file to
 * pread that starts with the CPU time used so far (see cpu_unit); if `oom_fd`, a file with a line
 * "oom_kill N". */
struct jail_created {
    uint32_t pid; /* of PID 1 in the jailer's pid namespace; 0 if unknown */
    uint32_t host_uid;
    uint32_t walls; /* JAIL_WALL_* bits in effect for this sandbox */
    uint8_t cpu_fd, oom_fd;
    uint8_t cpu_unit; /* 0: nanoseconds, a bare number (v1 cpuacct.usage); 1: microseconds after "usage_usec " (v2) */
    uint8_t egress_carrier;            /* enum egress_carrier of egress.h: how programs reach the proxy */
    char cgroup[16];                   /* "v1", "v2", "hybrid" or "none" */
    uint8_t enforced[JAIL_LIMITS_MAX]; /* enum jail_enforced for each limit */
    uint8_t why[JAIL_LIMITS_MAX];      /* for each limit, why it is not fully enforced: enum limit_reason */
    uint32_t nlimits;
};

#define JAIL_WALL_USER_NS 0x0001u
#define JAIL_WALL_MOUNT_NS 0x0002u
#define JAIL_WALL_PID_NS 0x0004u
#define JAIL_WALL_NET_NS 0x0008u
#define JAIL_WALL_IPC_NS 0x0010u
#define JAIL_WALL_UTS_NS 0x0020u
#define JAIL_WALL_CGROUP_NS 0x0040u
#define JAIL_WALL_ROOT 0x0080u /* fresh read-only root */
#define JAIL_WALL_PROC 0x0100u /* new /proc with masked files */
#define JAIL_WALL_CAPS 0x0200u
#define JAIL_WALL_SECCOMP 0x0400u
#define JAIL_WALL_KEYRING 0x0800u
#define JAIL_WALL_ROUTES 0x1000u /* only loopback; all other routes are prohibited */
#define JAIL_WALL_UNIQUE_UID 0x2000u
#define JAIL_ROOTLESS 0x80000000u /* not a wall: created without root, so JAIL_WALL_UNIQUE_UID is not possible */

struct jail_id { /* J_KILL, J_FREEZE, J_THAW, J_STATS, J_DESTROY, J_ADOPT, J_KEEP, J_JOIN, J_DENIALS, J_UNWATCH */
    char id[ID_SIZE];
};

#define JAIL_PRELOAD_MAX 512
struct jail_zygote { /* J_ZYGOTE */
    char template[JAIL_NAME_MAX];
    /* its /.cove/kernels/LANGUAGE/zygote is started; if language and preload are "", the zygote is
     * removed */
    char language[16];
    char preload[JAIL_PRELOAD_MAX]; /* its only argument: modules to load before the first fork */
};

struct jail_set_limits { /* J_SET_LIMITS */
    char id[ID_SIZE];
    uint64_t lifetime_ms;             /* from now on, in milliseconds */
    uint64_t memory, swap, cpu, pids; /* as in J_CREATE, but pids cannot be raised; memory 0: all four stay */
};

struct jail_stats { /* DONE; JAIL_UNKNOWN where this host has no such counter */
    uint64_t cpu_ns;
    uint64_t memory, memory_peak;
    uint64_t oom_kills;
    uint64_t pids, pids_peak;
    uint64_t pids_refused;
    uint64_t throttled_ns;      /* time spent waiting because of the CPU quota */
    uint64_t io_read, io_write; /* bytes from and to block devices */
};
#define JAIL_UNKNOWN UINT64_MAX

#define JAIL_LIST_MAX 1024 /* ids in one reply; the payload of J_LIST is empty or a jail_id */
struct jail_list {
    uint32_t n;
    char ids[JAIL_LIST_MAX][ID_SIZE];
};

enum jail_event_kind { JAIL_EVENT_ENDED = 1, JAIL_EVENT_OOM = 2 };
struct jail_event {
    char id[ID_SIZE];
    uint8_t kind;
    int32_t status; /* ENDED: wait status of PID 1 */
};

/* The monitor. */

struct jail_watch {
    char id[ID_SIZE];
    int32_t sys; /* 0 with a listener; else the errno that explains why there is no listener */
};

#define JAIL_DENIALS_MAX 64
#define JAIL_DENIAL_ARGS 4
struct jail_denial {
    uint32_t nr;
    uint32_t args[JAIL_DENIAL_ARGS]; /* the arguments that identify the operation; the others are 0 */
    uint64_t count;
};

enum jail_watched { JAIL_UNWATCHED = 0, JAIL_WATCHED = 1, JAIL_UNWATCHABLE = 2 };
struct jail_denial_notice {
    char id[ID_SIZE];
    uint8_t watched; /* enum jail_watched */
    uint8_t refused; /* 1: there are denials since the last J_DENIALS */
};

struct jail_denied {
    uint8_t watched; /* UNWATCHED: the monitor does not know this sandbox; UNWATCHABLE: the kernel has no listener */
    int32_t sys;     /* UNWATCHABLE: the errno; else 0 */
    uint64_t overflow_count;                      /* denials that did not fit into entries */
    struct jail_denial entries[JAIL_DENIALS_MAX]; /* in the order of their first occurrence */
    uint32_t n;
};

int jail_template_encode(const struct jail_template *m, uint8_t *out, struct err *err);
int jail_template_decode(const struct frame *f, struct jail_template *ret, struct err *err);
int jail_create_encode(const struct jail_create *m, uint8_t *out, struct err *err);
int jail_create_decode(const struct frame *f, struct jail_create *ret, struct err *err);
int jail_created_encode(const struct jail_created *m, uint8_t *out, struct err *err);
int jail_created_decode(const struct frame *f, struct jail_created *ret, struct err *err);
int jail_id_encode(const struct jail_id *m, uint8_t *out, struct err *err);
int jail_id_decode(const struct frame *f, struct jail_id *ret, struct err *err);
int jail_stats_encode(const struct jail_stats *m, uint8_t *out, struct err *err);
int jail_stats_decode(const struct frame *f, struct jail_stats *ret, struct err *err);
int jail_set_limits_encode(const struct jail_set_limits *m, uint8_t *out, struct err *err);
int jail_set_limits_decode(const struct frame *f, struct jail_set_limits *ret, struct err *err);
int jail_zygote_encode(const struct jail_zygote *m, uint8_t *out, struct err *err);
int jail_zygote_decode(const struct frame *f, struct jail_zygote *ret, struct err *err);
int jail_list_encode(const struct jail_list *m, uint8_t *out, struct err *err);
int jail_list_decode(const struct frame *f, struct jail_list *ret, struct err *err);
int jail_event_encode(const struct jail_event *m, uint8_t *out, struct err *err);
int jail_event_decode(const struct frame *f, struct jail_event *ret, struct err *err);
int jail_watch_encode(const struct jail_watch *m, uint8_t *out, struct err *err);
int jail_watch_decode(const struct frame *f, struct jail_watch *ret, struct err *err);
int jail_denial_notice_encode(const struct jail_denial_notice *m, uint8_t *out, struct err *err);
int jail_denial_notice_decode(const struct frame *f, struct jail_denial_notice *ret, struct err *err);
int jail_denied_encode(const struct jail_denied *m, uint8_t *out, struct err *err);
int jail_denied_decode(const struct frame *f, struct jail_denied *ret, struct err *err);
/* J_ERROR has the payload of ERROR: struct rt_error. J_OK has no payload. J_TEMPLATE, J_KILL, ...
 * are answered by J_OK. */
