/* native.h - the native driver: a sandbox made of the kernel's own walls.
 *
 * A template is prepared once, by a spawner that lives in a mount and pid namespace of its own: its root and its
 * filter. Each sandbox is then one clone3. The child raises every wall itself and executes the runtime as its last act,
 * so a runtime that answers is the proof that no wall is missing. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "host/isolate/cgroup.h"
#include "host/isolate/template_root.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

#define NATIVE_UID 1000u             /* of the user inside */
#define NATIVE_UID_FIRST 1900000000u /* on the host: one for each sandbox */
#define NATIVE_UID_COUNT 190000u
#define NATIVE_UID_IMAGE 1900199999u /* what uid 0 of an image's files is on the host: nobody's */
#define NATIVE_UID_OWNER 1900200000u /* on the host: owners of the user namespaces, one for each template */
#define NATIVE_OWNER_COUNT 90000u

#define NATIVE_MOUNTS 12

enum native_mount_kind { NATIVE_BIND, NATIVE_WORKSPACE };

struct native_mount {
    enum native_mount_kind kind;
    int fd; /* a detached mount, ready to be attached */
    char dst[256];
};

struct native_filter {
    struct sock_filter prog[FILTER_MAX];
    size_t len; /* 0 until native_set_template */
};

struct native_template {
    struct template_root root;
    struct filter_spec calls;
    struct native_filter filter; /* of these calls; with a monitor the one that hands refused calls to a listener */
    int monitor;                 /* socket to who listens; -1: nobody */
    bool rootless;               /* the only id there is on the host is the caller's own */
    uid_t owner;                 /* of the user namespaces */
    bool joinable;               /* its owner may enter its sandboxes, networks included */
    bool net_ready;              /* the caller is in the network that the next sandbox gets */
};

struct native_spec {
    char id[ID_SIZE];
    uid_t host_uid; /* and gid: unique on this host */
    char hostname[64];
    struct limits limits;
    struct native_mount mounts[NATIVE_MOUNTS];
    size_t nmounts;
    struct cgroup_entry cgroup;
    int control; /* becomes descriptor 3 of the runtime */
    void (*report_failure)(int control,
                           const struct err *err); /* how the child tells what went wrong; must not allocate */
    /* How the child hands over the listener of its filter; listener is -1 where the kernel has none, and sys says why.
     * Must not allocate. -1 with errno. */
    int (*send_listener)(int monitor, const char *id, int listener, int sys);
};

/* Called by the spawner, in its new namespaces: the root, which is the same for every template. */
int native_prepare(struct native_template *t, bool rootless, const char *scratch,
                   const struct template_root_files *files, struct err *err);
/* What makes it a certain template. */
int native_set_template(struct native_template *t, const struct filter_spec *filter, uid_t owner, bool joinable,
                        struct err *err);
/* Makes the network of the next sandbox, unless it is there already: half of what a sandbox costs the kernel, so done
 * while nobody waits. The caller lives in it until native_spawn gives it away. */
int native_prepare_netns(struct native_template *t, struct err *err);
/* The longest part of it by somebody else: a new network as a descriptor, or -1, and then the spawner will find out
 * why. The caller stays in its own, which takes root. The spawner enters it instead of making one. */
int native_new_netns(void);
int native_enter_netns(struct native_template *t, int network, struct err *err);
/* In a network that the caller has just entered: loopback, and a wall. Allocates nothing. */
int native_setup_netns(const struct native_template *t, struct err *err);
/* Starts a sandbox. Returns when its id maps are written; the child goes on alone. */
int native_spawn(struct native_template *t, const struct native_spec *spec, pid_t *ret_pid, int *ret_pidfd,
                 struct err *err);
/* The path a bind may go to: absolute, plain, and not over what cove itself needs. Pure. */
int native_check_target(const char *dst, struct err *err);
