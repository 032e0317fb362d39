/* inside.h - what the files of the jailer share, and nobody else sees. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "ev/ev.h"
#include "isolate/cgroup.h"
#include "jailer/cell.h"
#include "jailer/jailer.h"
#include "jailer/kept.h"
#include "jailer/relay.h"
#include "jailer/spawner.h"
#include "jailer/uids.h"
#include "wire/chan.h"
#include "wire/door.h"

#define TEMPLATES_MAX 64
#define CELLS_MAX 16384
#define CONNS_MAX 32
#define LENT_MAX 64 /* descriptors that requests hold which wait for their turn */
#define CELL_FDS 4u /* that a cell holds for its life: pidfd, oom, listeners; and one more, control, if it is kept */
#define OTHER_FDS 1024u /* hosts, spawners, cgroup trees, what is being made or waits to be sent */

struct conn { /* a host */
    struct conn *next;
    struct jailer *j;
    uid_t uid; /* as the kernel told; 0 may do more */
    gid_t gid;
    struct chan chan;
    int *lent; /* descriptors of the request that is being looked at; who takes one leaves -1 */
    size_t nlent;
    struct ev_defer free_later;
};

struct jailer {
    struct ev *ev;
    const struct jailer_settings *settings;
    struct root_files files;
    int state_dir;
    bool rootless; /* root only in a user namespace of its own, in which 0 is the caller */
    struct cgroup_forest forest;
    struct uids uids;
    struct spawner *spawners[TEMPLATES_MAX];
    size_t nspawners;
    struct ev_timer sweep; /* leftovers of others are removed when our own work is under way */
    int sweeps;
    struct spawner *spare; /* of no template yet; begun before it is needed */
    struct cell *cells;
    size_t ncells, nkept, fds_max; /* fds_max: that cells may hold together */
    struct zygote *zygotes;        /* newest first */
    struct cell *waiting;          /* for their spawner to have done what it was asked before; oldest first */
    size_t lent;                   /* descriptors that these hold */
    struct conn *conns;
    struct kept *kept;  /* doors to single sandboxes; NULL in a service, which has one door for all */
    struct relay relay; /* to a monitor that may be restarted */
    struct door door;
    bool stopping;
    uint64_t last_token;
};

/* reply.c: nothing is sent when there is no connection or no stream to answer on. */
void reply(struct conn *c, uint32_t stream, uint8_t type, const void *data, int len);
void reply_ok(struct conn *c, uint32_t stream);
void reply_error(struct conn *c, uint32_t stream, const struct err *err);
void reply_stats(struct conn *c, uint32_t stream, const struct cgroup_stats *s);
void reply_created(struct cell *cell, uint32_t stream); /* with the descriptors that make the sandbox the owner's */
void reply_event(const struct cell *cell, enum jail_event_kind kind);

/* cell.c */
void cell_watch_memory(struct cell *cell);
void cell_kill(struct cell *cell);                                    /* every process; cell_died follows */
void cell_died(struct cell *cell, int status);                        /* PID 1 was reaped */
void cell_destroy(struct cell *cell);                                 /* end it, then remove every trace */
void cell_remove(struct cell *cell);                                  /* the last step: what the cell owned goes back */
int cell_freeze(struct cell *cell, uint32_t stream, struct err *err); /* answers when all stand still */
/* Whether or not it was frozen: a host that takes over cannot know how far the one before it came. */
int cell_thaw(struct cell *cell, struct err *err);
void cell_extend(struct cell *cell, uint64_t lifetime_ms);          /* from now on */
int cell_keep(struct cell *cell, int *control, struct err *err);    /* let it outlive its host, but not its lifetime */
int cell_room(const struct jailer *j, size_t fds, struct err *err); /* that one holds so many more */
void jailer_maybe_stop(struct jailer *j);
struct cell *cell_find(struct jailer *j, const char *id);

/* create.c */
extern const struct spawner_ops create_spawner_ops;
struct spawner *create_find_template(const struct jailer *j, const char *name);
int create_template(struct conn *c, const struct frame *f, struct err *err);
/* Takes descriptors that it still needs, and leaves -1 in their place. */
int create_cell(struct conn *c, const struct frame *f, int *fds, size_t nfds, struct err *err);
void create_withdraw(struct cell *cell); /* from those that wait; nothing when it does not */
