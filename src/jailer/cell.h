/* cell.h - the jailer's record of one sandbox, from request to last trace removed. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "ev/ev.h"
#include "isolate/cgroup.h"
#include "jailer/uids.h"
#include "wire/jail.h"

enum cell_state {
    CELL_MAKING, /* the spawner was asked */
    CELL_LIVE,
    CELL_FROZEN,
    CELL_ENDING, /* SIGKILL is on its way to everything in it */
    CELL_DEAD,   /* reaped; its cgroups and uid are still ours */
    CELL_STATES,
};

#define CELL_LISTENERS 2 /* of its first process and of a member */

struct jailer;
struct conn; /* a host's connection, jailer.c */
struct spawner;

struct cell {
    struct cell *next;
    struct jailer *j;
    char id[ID_SIZE];
    enum cell_state state;
    uint64_t token;
    uid_t uid;
    struct spawner *spawner;
    struct conn *owner;       /* NULL when nobody holds it */
    uid_t host;               /* whose process asked for it */
    struct jail_created made; /* what J_CREATED said, repeated at adoption */
    struct limits limits;
    int pidfd;
    int control;     /* the host's end: until it has it, and of one that is kept, for a host that comes back */
    int runtime_end; /* the runtime's end, until the spawner has it */
    int oom;
    int listeners[CELL_LISTENERS]; /* of its refused calls, kept for a monitor that comes after this one */
    uint32_t awaited;              /* listeners of members that a zygote was asked for */
    struct ev_io oom_io;
    struct ev_timer timer; /* next round of killing, freezing or removing */
    struct ev_timer lifetime;
    int rounds;
    bool kept;
    bool destroy;                                                       /* remove it as soon as it is dead */
    uint32_t create_stream, kill_stream, freeze_stream, destroy_stream; /* whom to answer; 0 is nobody */
    int status;                                                         /* of PID 1, once dead */
    struct cell *behind;                                                /* MAKING: the next that waits */
    uint8_t *request;                                                   /* MAKING: J_CREATE, while it waits */
    uint32_t request_len;
    int lent[FD_PASS_MAX]; /* the descriptors that came with it */
    size_t nlent;
    struct cgroup_stats last; /* read when nothing ran any more */
};
