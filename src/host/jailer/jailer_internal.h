/* jailer_internal.h - what the files of the jailer share, and nobody else sees. */
#pragma once

#include "core/base/backoff.h"
#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "host/isolate/cgroup.h"
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
#define QUEUED_FDS_MAX 64 /* descriptors that requests hold which wait for their turn */
#define FDS_PER_SANDBOX \
    4u /* that a cell holds for its life: pidfd, oom, listeners; and one more, control, if it is kept */
#define OTHER_FDS 1024u /* hosts, spawners, cgroup trees, what is being made or waits to be sent */

struct jailer_client { /* a host */
    struct jailer_client *next;
    struct jailer *jailer;
    uid_t uid; /* as the kernel told; 0 may do more */
    gid_t gid;
    struct chan chan;
    int *lent_fds; /* descriptors of the request that is being looked at; who takes one leaves -1 */
    size_t nlent_fds;
    struct ev_defer free_later;
};

struct jailer {
    struct ev *ev;
    const struct jailer_settings *settings;
    struct template_root_files files;
    int state_dir;
    bool rootless; /* root only in a user namespace of its own, in which 0 is the caller */
    struct cgroup_hierarchies cgroups;
    struct uids uids;
    struct spawner *spawners[TEMPLATES_MAX];
    size_t nspawners;
    struct ev_timer sweep_timer; /* leftovers of others are removed when our own work is under way */
    int sweep_count;
    struct backoff sweep_backoff; /* between sweeps that wait for locked uids */
    int held_sweep_count;
    bool only_held;                /* the last sweep left nothing but leaves whose uid another process has locked */
    struct spawner *spare_spawner; /* of no template yet; begun before it is needed */
    struct jailed_sandbox *sandboxes;
    size_t nsandboxes, nkept, fds_max;   /* fds_max: that cells may hold together */
    struct jailed_zygote *zygotes;       /* newest first */
    struct jailed_sandbox *create_queue; /* for their spawner to have done what it was asked before; oldest first */
    size_t nqueued_fds;                  /* descriptors that these hold */
    struct jailer_client *clients;
    struct kept_listeners
        *kept_listeners;                  /* doors to single sandboxes; NULL in a service, which has one door for all */
    struct listener_relay listener_relay; /* to a monitor that may be restarted */
    struct unix_listener listener;
    bool stopping;
    uint64_t last_token;
};

/* reply.c: nothing is sent when there is no connection or no stream to answer on. */
void reply_frame(struct jailer_client *c, uint32_t stream, uint8_t type, const void *data, int len);
void reply_ok(struct jailer_client *c, uint32_t stream);
void reply_error(struct jailer_client *c, uint32_t stream, const struct err *err);
void reply_stats(struct jailer_client *c, uint32_t stream, const struct cgroup_stats *s);
void reply_created(struct jailed_sandbox *cell,
                   uint32_t stream); /* with the descriptors that make the sandbox the owner's */
void reply_event(const struct jailed_sandbox *cell, enum jail_event_kind kind);

/* jailed_sandbox.c */
void jailed_sandbox_watch_memory(struct jailed_sandbox *cell);
void jailed_sandbox_kill(struct jailed_sandbox *cell); /* every process; jailed_sandbox_on_death follows */
void jailed_sandbox_on_death(struct jailed_sandbox *cell, int status); /* PID 1 was reaped */
void jailed_sandbox_destroy(struct jailed_sandbox *cell);              /* end it, then remove every trace */
void jailed_sandbox_remove(struct jailed_sandbox *cell); /* the last step: what the cell owned goes back */
int jailed_sandbox_freeze(struct jailed_sandbox *cell, uint32_t stream,
                          struct err *err); /* answers when all stand still */
/* Whether or not it was frozen: a host that takes over cannot know how far the one before it came. */
int jailed_sandbox_thaw(struct jailed_sandbox *cell, struct err *err);
void jailed_sandbox_set_lifetime(struct jailed_sandbox *cell, uint64_t lifetime_ms); /* from now on */
int jailed_sandbox_keep(struct jailed_sandbox *cell, int *control,
                        struct err *err); /* let it outlive its host, but not its lifetime */
int jailed_sandbox_check_room(const struct jailer *j, size_t fds, struct err *err); /* that one holds so many more */
void jailer_maybe_stop(struct jailer *j);
struct jailed_sandbox *jailed_sandbox_find(struct jailer *j, const char *id);

/* create.c */
extern const struct spawner_ops create_spawner_ops;
struct spawner *create_find_template(const struct jailer *j, const char *name);
int create_template(struct jailer_client *c, const struct frame *f, struct err *err);
/* Takes descriptors that it still needs, and leaves -1 in their place. */
int create_jailed_sandbox(struct jailer_client *c, const struct frame *f, int *fds, size_t nfds, struct err *err);
void create_dequeue(struct jailed_sandbox *cell); /* from those that wait; nothing when it does not */
