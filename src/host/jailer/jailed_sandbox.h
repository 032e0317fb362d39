/* jailed_sandbox.h - the jailer's record of one sandbox, from request to last trace removed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/ev/ev.h"
#include "host/isolate/cgroup.h"
#include "host/jailer/uids.h"
#include "core/wire/jail.h"

enum jailed_sandbox_state {
    JAILED_SANDBOX_MAKING, /* the spawner was asked */
    JAILED_SANDBOX_LIVE,
    JAILED_SANDBOX_FROZEN,
    JAILED_SANDBOX_ENDING, /* SIGKILL is on its way to everything in it */
    JAILED_SANDBOX_DEAD,   /* reaped; its cgroups and uid are still ours */
    JAILED_SANDBOX_STATES,
};

#define JAILED_SANDBOX_LISTENERS 2 /* of its first process and of a member */

struct jailer;
struct jailer_client; /* a host's connection, jailer.c */
struct spawner;

struct jailed_sandbox {
    struct jailed_sandbox *next;
    struct jailer *jailer;
    char id[ID_SIZE];
    enum jailed_sandbox_state state;
    uint64_t token;
    uid_t uid;
    struct spawner *spawner;
    struct jailer_client *owner; /* NULL when nobody holds it */
    uid_t host_uid;              /* whose process asked for it */
    struct jail_created created; /* what J_CREATED said, repeated at adoption */
    struct limits limits;
    int pidfd;
    int control;        /* the host's end: until it has it, and of one that is kept, for a host that comes back */
    int runtime_socket; /* the runtime's end, until the spawner has it */
    int oom_fd;
    int listeners[JAILED_SANDBOX_LISTENERS]; /* of its refused calls, kept for a monitor that comes after this one */
    uint32_t awaited_listeners;              /* listeners of members that a zygote was asked for */
    struct ev_io oom_io;
    struct ev_timer step_timer; /* next round of killing, freezing or removing */
    struct ev_timer lifetime_timer;
    int rounds;
    bool kept;
    bool destroy_requested;                                             /* remove it as soon as it is dead */
    uint32_t create_stream, kill_stream, freeze_stream, destroy_stream; /* whom to answer; 0 is nobody */
    int status;                                                         /* of PID 1, once dead */
    struct jailed_sandbox *next_waiting;                                /* MAKING: the next that waits */
    uint8_t *request;                                                   /* MAKING: J_CREATE, while it waits */
    uint32_t request_len;
    int lent_fds[FD_PASS_MAX]; /* the descriptors that came with it */
    size_t nlent_fds;
    struct cgroup_stats final_stats; /* read when nothing ran any more */
};
