/* spec.h - what a sandbox is to be: the request that the engine and its drivers share. Data only.
 */
#pragma once

#include "core/base/base.h"
#include "core/base/id.h"
#include "policy/driver.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/network.h"
#include "policy/syscalls.h"

enum sandbox_mount_kind { SANDBOX_MOUNT_BIND_RO, SANDBOX_MOUNT_WORKSPACE, SANDBOX_MOUNT_WORKSPACE_COW };
#define SANDBOX_MOUNT_DST_MAX 256
struct sandbox_mount {
    enum sandbox_mount_kind kind;
    int fd;          /* of the directory or file, borrowed for the call; -1: `reference` names it */
    const char *dst; /* target path, shorter than SANDBOX_MOUNT_DST_MAX; SANDBOX_MOUNT_BIND_RO only */
    /* The name of a volume or image that a driver of another machine finds by itself. NULL: none;
     * needs `mount_references` of the driver. */
    const char *reference;
};

struct zygote_spec { /* sandboxes with different zygote specs are of different kinds; each kind has its own zygote */
    const char *language;
    const char *preload; /* module names separated by commas; "" is none */
};

struct sandbox_secret { /* a value that only the egress proxy sees */
    const char *name;   /* of a secret rule of the network policy */
    const char *value;  /* shorter than EGRESS_SECRET_VALUE_MAX of core/wire/egress.h */
};

struct egress_share {         /* of the egress proxy, for one sandbox */
    uint32_t connections_max; /* open at the same time; 0: the proxy's default */
    uint32_t connection_rate; /* new ones each second; 0: the proxy's default */
    uint64_t bytes_max;       /* in both directions, over the life of the sandbox; 0: no limit */
};

struct sandbox_spec {
    const char *id; /* "sb..."; NULL: generate one */
    enum driver_id driver;
    enum level level;
    const char *policy; /* name of the policy, for the receipt; NULL: only the level applies */
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT: system call groups that are allowed in addition to the profile */
    uint64_t deny[FILTER_DENY_WORDS]; /* bit per system call: denied although the profile allows it */
    struct limits limits;
    struct network_policy network;
    /* With NETWORK_EGRESS: the values of the secrets that its rules name, borrowed for the call. */
    const struct sandbox_secret *secrets;
    size_t nsecrets;
    const char *tenant; /* whose shares of the egress proxy count; NULL: none */
    struct egress_share share;
    bool require_all_walls; /* fail if a wall is missing that only root can raise */
    /* Its interpreters may join the sandbox: engine_start_zygote,
     * sandbox_handle_join_interpreter. NULL: none. */
    const struct zygote_spec *zygote;
    uint64_t require_enforced; /* bit per limit: fail on a host that cannot enforce the limit completely */
    const char *hostname;      /* NULL is "cove" */
    const char *const *env;    /* added to the level's own environment; NULL-terminated or NULL */
    const struct sandbox_mount *mounts;
    size_t nmounts;
    uid_t owner_uid; /* owner of the files in a SANDBOX_MOUNT_WORKSPACE directory */
    gid_t owner_gid;
};

struct sandbox_kind { /* what all sandboxes that a driver makes from one template have in common */
    enum driver_id driver;
    struct filter_spec filter;
    char language[16]; /* language of its zygote; "": no zygote */
    uint64_t preload;  /* hash of the modules that the zygote loads */
    bool egress;       /* its sandboxes have listeners of the egress proxy */
};

bool sandbox_kind_equal(const struct sandbox_kind *a, const struct sandbox_kind *b);

/* totals since the sandbox was created, or current values; SANDBOX_USAGE_UNKNOWN where the host
 * cannot measure */
struct sandbox_handle_usage {
    uint64_t cpu_ns, throttled_ns;
    uint64_t memory, memory_peak, oom_kills;
    uint64_t pids, pids_peak, pids_refused;
    uint64_t io_read, io_write;
};
#define SANDBOX_USAGE_UNKNOWN UINT64_MAX

/* CPU time used since the sandbox was created, until `at`, a time of the event loop. A driver that
 * has to be asked reports it later, so a sample can be old. */
struct cpu_sample {
    uint64_t ns; /* SANDBOX_USAGE_UNKNOWN: nothing was measured */
    uint64_t at;
};
