/* jailer_internal.h - declarations that only the files of the jailer share. */
#pragma once

#include "core/base/backoff.h"
#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "host/isolate/cgroup.h"
#include "host/jailer/egress_relay.h"
#include "host/jailer/helper_link.h"
#include "host/jailer/jailed_sandbox.h"
#include "host/jailer/jailer.h"
#include "host/jailer/kept_listeners.h"
#include "host/jailer/listener_relay.h"
#include "host/jailer/spawner.h"
#include "host/jailer/uids.h"
#include "core/wire/chan.h"
#include "core/wire/unix_listener.h"

#define TEMPLATES_MAX 64
#define JAILED_SANDBOXES_MAX 16384
#define JAILER_CLIENTS_MAX 32
#define QUEUED_FDS_MAX 64 /* descriptors that all queued requests hold together */
/* Held for its life: pidfd, oom, 2 seccomp listeners; with egress also its listeners, and a kept
 * sandbox also holds control. */
#define FDS_PER_SANDBOX 4u
#define OTHER_FDS 1024u /* clients, spawners, cgroup trees, sandboxes in creation, queued messages */

struct jailer_client { /* a connected client */
    struct jailer_client *next;
    struct jailer *jailer;
    uid_t uid; /* from SO_PEERCRED; 0 (root) may do more */
    gid_t gid;
    struct chan chan;
    int *lent_fds; /* descriptors of the current request; a function that takes one sets it to -1 */
    size_t nlent_fds;
    struct ev_defer free_later;
};

struct jailer {
    struct ev *ev;
    const struct jailer_settings *settings;
    struct template_root_files files;
    int state_dir;
    bool rootless; /* root only in its own user namespace, in which 0 is the caller */
    struct cgroup_hierarchies cgroups;
    struct uids uids;
    struct spawner *spawners[TEMPLATES_MAX];
    size_t nspawners;
    struct ev_timer sweep_timer; /* removes leftovers of dead jailers, after our own first work */
    int sweep_count;
    struct backoff sweep_backoff; /* between sweeps that wait for locked uids */
    int held_sweep_count;
    bool only_held;                /* the last sweep left only leaves whose uid another process has locked */
    struct spawner *spare_spawner; /* has no template yet; started before it is needed */
    struct jailed_sandbox *sandboxes;
    size_t nsandboxes, nkept, negress;
    size_t fds_max;                      /* descriptors that all sandboxes may hold together */
    struct jailed_zygote *zygotes;       /* newest first */
    struct jailed_sandbox *create_queue; /* sandboxes whose spawner is full; oldest first */
    size_t nqueued_fds;                  /* descriptors that the queue holds */
    struct jailer_client *clients;
    /* One socket for each kept sandbox. NULL in a service, which has one socket for all. */
    struct kept_listeners *kept_listeners;
    struct listener_relay listener_relay; /* to a monitor that may be restarted */
    struct helper_link egress;            /* to an egress proxy that may be restarted */
    struct unix_listener listener;
    bool stopping;
    uint64_t last_token;
};

/* reply.c: nothing is sent without a connection or a stream to answer on. */
void reply_frame(struct jailer_client *c, uint32_t stream, uint8_t type, const void *data, int len);
void reply_ok(struct jailer_client *c, uint32_t stream);
void reply_error(struct jailer_client *c, uint32_t stream, const struct err *err);
void reply_stats(struct jailer_client *c, uint32_t stream, const struct cgroup_stats *s);
/* Sends J_CREATED with the descriptors that give the owner control of the sandbox. */
void reply_created(struct jailed_sandbox *sandbox, uint32_t stream);
void reply_event(const struct jailed_sandbox *sandbox, enum jail_event_kind kind);

/* jailed_sandbox.c */
void jailed_sandbox_watch_memory(struct jailed_sandbox *sandbox);
void jailed_sandbox_kill(struct jailed_sandbox *sandbox); /* kills every process; jailed_sandbox_on_death follows */
void jailed_sandbox_on_death(struct jailed_sandbox *sandbox, int status); /* PID 1 was reaped */
void jailed_sandbox_destroy(struct jailed_sandbox *sandbox);              /* kills it, then removes everything of it */
void jailed_sandbox_remove(struct jailed_sandbox *sandbox);               /* last step: releases everything it owns */
/* Answers on `stream` when every process is frozen. */
int jailed_sandbox_freeze(struct jailed_sandbox *sandbox, uint32_t stream, struct err *err);
/* Works whether or not the sandbox is frozen: a client that adopts it cannot know whether the
 * previous client's freeze completed. */
int jailed_sandbox_thaw(struct jailed_sandbox *sandbox, struct err *err);
void jailed_sandbox_set_lifetime(struct jailed_sandbox *sandbox, uint64_t lifetime_ms); /* counts from now */
/* Lets the sandbox outlive its client, but not its lifetime. */
int jailed_sandbox_keep(struct jailed_sandbox *sandbox, int *control, struct err *err);
/* Fails unless there is room for `fds` more descriptors of sandboxes. */
int jailed_sandbox_check_room(const struct jailer *j, size_t fds, struct err *err);
void jailer_maybe_stop(struct jailer *j);
struct jailed_sandbox *jailed_sandbox_find(struct jailer *j, const char *id);

/* create.c */
extern const struct spawner_ops create_spawner_ops;
struct spawner *create_find_template(const struct jailer *j, const char *name);
int create_template(struct jailer_client *c, const struct frame *f, struct err *err);
/* Takes the descriptors that it still needs and sets them to -1 in `fds`. */
int create_jailed_sandbox(struct jailer_client *c, const struct frame *f, int *fds, size_t nfds, struct err *err);
void create_dequeue(struct jailed_sandbox *sandbox); /* removes it from the creation queue, if it is queued */
