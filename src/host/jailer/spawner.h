/* spawner.h - one process per template: it lives in the template's root and makes its sandboxes.
 *
 * It is PID 1 of a pid namespace of its own. All sandboxes of the template live below it, so when it dies, for whatever
 * reason, the kernel ends them; and it dies with the jailer. The jailer talks to it over a socket and never waits. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "host/isolate/native.h"

struct spawner;

struct spawner_template { /* the template whose sandboxes it makes */
    char name[64];
    struct filter_spec filter;
    uid_t owner; /* of the user namespaces; 0: not chosen, or rootless */
    bool joinable;
};

struct spawner_ops {
    /* pidfd is -1 and err set when it failed; otherwise the callee owns pidfd. pid is the jailer's number for it. */
    void (*on_spawned)(void *arg, uint64_t token, pid_t pid, int pidfd, const struct err *err);
    void (*on_ended)(void *arg, uint64_t token, int status); /* reaped: nothing of it runs any more */
    void (*on_lost)(void *arg, struct spawner *s);           /* the spawner died, and with it all it made */
};

/* Starts a process that builds the root at once: it is the longest part and the same for every template, so a jailer
 * may begin it before anybody has asked. monitor_fd is where listeners of refused calls go; 0 is none. scratch is a
 * directory to mount the root on, in a namespace of its own. */
int spawner_new(struct ev *ev, bool rootless, const char *scratch, const struct template_root_files *files,
                int monitor_fd, const struct spawner_ops *ops, void *arg, struct spawner **ret, struct err *err);
/* Makes it the spawner of a certain template, before the first spawner_order_sandbox. uids_fd is held there as well, so
 * that uid locks outlive the jailer for as long as sandboxes do. */
int spawner_set_template(struct spawner *s, const struct spawner_template *kind, int uids_fd, struct err *err);
void spawner_free(struct spawner *s); /* ends it and everything it made */
DEFINE_AUTO(spawner, spawner_free);
pid_t spawner_pid(const struct spawner *s);
const struct spawner_template *spawner_get_template(const struct spawner *s); /* what spawner_set_template was given */
/* It has as many orders as fit into its socket for sure; more must wait until one of them is answered. */
bool spawner_is_full(const struct spawner *s);
/* Starts a zygote with sock as its descriptor 3; how that went is told there, at the least by closing it. */
int spawner_order_zygote(struct spawner *s, const char *language, const char *preload, int sock, struct err *err);
/* Descriptors in spec are duplicated by the kernel; the caller still owns them. */
int spawner_order_sandbox(struct spawner *s, uint64_t token, const struct native_spec *spec, struct err *err);
