/* native.h - the native driver: a sandbox made of the walls of the Linux kernel.
 *
 * A spawner with its own mount and pid namespace prepares a template once: its root and its filter.
 * Each sandbox is then one clone3. The child raises every wall itself and executes the runtime as
 * its last step, so an answer of the runtime proves that no wall is missing. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "host/isolate/cgroup.h"
#include "host/isolate/egress_net.h"
#include "host/isolate/template_root.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

#define NATIVE_UID 1000u             /* uid of the user inside */
#define NATIVE_UID_FIRST 1900000000u /* on the host: one per sandbox */
#define NATIVE_UID_COUNT 190000u
#define NATIVE_UID_IMAGE 1900199999u /* on the host: stands for uid 0 of an image's files; no process has it */
#define NATIVE_UID_OWNER 1900200000u /* on the host: owners of the user namespaces, one per template */
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
    struct native_filter filter; /* filter for `calls`; with a monitor, it sends denied calls to a listener */
    int monitor;                 /* socket to the monitor; -1: none */
    bool rootless;               /* the caller's own uid is the only one available on the host */
    uid_t owner;                 /* uid that owns the user namespaces */
    bool joinable;               /* the owner may enter its sandboxes and their networks */
    bool egress;                 /* its sandboxes have listeners of the egress proxy */
    bool net_ready;              /* the caller is in the network that the next sandbox gets */
    struct egress_net listeners; /* of that network; none if the template is joinable or has no egress */
    int boot_file;               /* for a runtime that raises the last walls itself: core/wire/boot_file.h */
};

struct native_spec {
    char id[ID_SIZE];
    uid_t host_uid; /* uid and gid; unique on this host */
    char hostname[64];
    struct limits limits;
    struct native_mount mounts[NATIVE_MOUNTS];
    size_t nmounts;
    struct cgroup_entry cgroup;
    int control; /* becomes descriptor 3 of the runtime */
    /* Called in the child to report a failure. Must not allocate. */
    void (*report_failure)(int control, const struct err *err);
    /* Called in the child to send the listener of its filter. If the kernel provides none, listener
     * is -1 and sys is the errno. Must not allocate. Returns -1 with errno. */
    int (*send_listener)(int monitor, const char *id, int listener, int sys);
};

struct native_process { /* a sandbox whose walls are being raised */
    pid_t pid;
    int pidfd;
    /* The end of a pipe, which does not block, with the messages of the program that makes the
     * namespaces, in case it fails. -1: the child reports its failure itself. */
    int messages;
    struct egress_net listeners; /* the caller owns them; none without egress */
};

/* Called by the spawner in its new namespaces: builds the root, which is the same for every
 * template. */
int native_prepare(struct native_template *t, bool rootless, const char *scratch,
                   const struct template_root_files *files, struct err *err);
/* Assigns the properties of one template. */
int native_set_template(struct native_template *t, const struct filter_spec *filter, uid_t owner, bool joinable,
                        bool egress, struct err *err);
/* Makes the network of the next sandbox, and its listeners, unless they exist: this is half of a
 * sandbox's cost in the kernel, so it is done while no request waits. The caller is in this network
 * until native_spawn hands it over. */
int native_prepare_netns(struct native_template *t, struct err *err);
/* Makes a network namespace for the spawner in another process, because this is the longest step.
 * Returns its descriptor, or -1; the spawner then makes its own and reports the error. The caller
 * must be root and stays in its own network. The spawner calls native_enter_netns instead of making
 * one. */
int native_new_netns(void);
int native_enter_netns(struct native_template *t, int network, struct err *err);
/* Sets up the network that the caller has just entered: loopback only. Allocates nothing. */
int native_setup_netns(const struct native_template *t, struct err *err);
/* Starts a sandbox. Returns when its id maps are written; the child continues alone. */
int native_spawn(struct native_template *t, const struct native_spec *spec, struct native_process *ret,
                 struct err *err);
/* clone3 refused new namespaces, or a process: sets err from errno and returns -1. */
int native_clone_failed(struct err *err);
/* Checks the target path of a bind: absolute, normalized, and not a path that cove itself needs.
 * Pure. */
int native_check_target(const char *dst, struct err *err);
