/* spawner.h - one process per template, which lives in the template's root and makes its sandboxes.
 *
 * It is PID 1 of its own pid namespace. All sandboxes of the template are below it, so if it dies
 * for any reason the kernel kills them; and it dies with the jailer. The jailer talks to it over a
 * socket and never waits. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "host/isolate/native.h"
#include "policy/driver.h"

struct spawner;

struct spawner_template { /* the template whose sandboxes it makes */
    char name[64];
    enum driver_id driver;
    struct filter_spec filter;
    uid_t owner; /* owner of the user namespaces; 0: not assigned yet, or rootless */
    bool joinable;
    bool egress; /* its sandboxes have listeners of the egress proxy */
};

struct spawner_ops {
    /* On failure pidfd is -1 and err is set; otherwise the callee owns pidfd and the listeners,
     * which only a template with egress has. pid is in the jailer's pid namespace; 0: unknown. */
    void (*on_spawned)(void *arg, uint64_t token, pid_t pid, int pidfd, struct egress_net *listeners,
                       const struct err *err);
    void (*on_ended)(void *arg, uint64_t token, int status); /* reaped: no process of it runs */
    void (*on_lost)(void *arg, struct spawner *s);           /* the spawner and all its sandboxes died */
};

/* Starts a process that builds the root at once: this is the longest step and the same for every
 * template, so the jailer starts it before the first request. monitor_fd receives the seccomp
 * listeners; 0: none. scratch is a directory on which the root is mounted, in the spawner's own
 * mount namespace. */
int spawner_new(struct ev *ev, bool rootless, const char *scratch, const struct template_root_files *files,
                int monitor_fd, const struct spawner_ops *ops, void *arg, struct spawner **ret, struct err *err);
/* Assigns a template, before the first spawner_order_sandbox. The spawner also holds uids_fd, so
 * that uid locks outlive the jailer for as long as its sandboxes live. */
int spawner_set_template(struct spawner *s, const struct spawner_template *kind, int uids_fd, struct err *err);
void spawner_free(struct spawner *s); /* ends it and all its sandboxes */
DEFINE_AUTO(spawner, spawner_free);
pid_t spawner_pid(const struct spawner *s);
const struct spawner_template *spawner_get_template(const struct spawner *s); /* as given to spawner_set_template */
/* True: it has as many orders as surely fit into its socket; further orders must wait for an
 * answer. */
bool spawner_is_full(const struct spawner *s);
/* Starts a zygote with `sock` as its descriptor 3. The zygote reports the result there; a failed
 * start closes it. */
int spawner_order_zygote(struct spawner *s, const char *language, const char *preload, int sock, struct err *err);
/* The kernel duplicates the descriptors in spec; the caller still owns them. */
int spawner_order_sandbox(struct spawner *s, uint64_t token, const struct native_spec *spec, struct err *err);
