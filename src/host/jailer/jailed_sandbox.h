/* jailed_sandbox.h - the jailer's record of one sandbox, from the request until everything of it is
 * removed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/ev/ev.h"
#include "host/isolate/cgroup.h"
#include "host/isolate/egress_net.h"
#include "host/jailer/uids.h"
#include "core/wire/jail.h"

enum jailed_sandbox_state {
    JAILED_SANDBOX_MAKING, /* queued, or the spawner has the order */
    JAILED_SANDBOX_LIVE,
    JAILED_SANDBOX_FROZEN,
    JAILED_SANDBOX_ENDING, /* SIGKILL was sent to all its processes */
    JAILED_SANDBOX_DEAD,   /* reaped; the jailer still holds its cgroups and uid */
    JAILED_SANDBOX_STATES,
};

#define JAILED_SANDBOX_LISTENERS 2 /* one of PID 1 and one of an interpreter */

struct jailer;
struct jailer_client; /* connection of a client, jailer.c */
struct spawner;

struct jailed_sandbox {
    struct jailed_sandbox *next;
    struct jailer *jailer;
    char id[ID_SIZE];
    enum jailed_sandbox_state state;
    uint64_t token;
    uid_t uid;
    struct spawner *spawner;
    struct jailer_client *owner; /* NULL: no client holds it */
    uid_t host_uid;              /* uid of the client that requested it */
    struct jail_created created; /* content of J_CREATED, sent again at adoption */
    struct limits limits;
    int pidfd;
    int control; /* client's end, until it is sent; a kept sandbox keeps a duplicate for later clients; -1: none */
    int runtime_socket; /* runtime's end, until the spawner has it */
    int oom_fd;
    int listeners[JAILED_SANDBOX_LISTENERS]; /* seccomp listeners, kept for the next monitor; -1: none */
    bool has_egress;                         /* counts for the descriptors of its listeners from the start */
    struct egress_net egress;                /* listeners, kept for the next egress proxy; none before LIVE */
    uint32_t awaited_listeners;              /* interpreters requested from a zygote whose listener has not arrived */
    struct ev_io oom_io;
    struct ev_timer step_timer; /* next round of killing, freezing or removal */
    struct ev_timer lifetime_timer;
    int rounds;
    bool kept;
    bool destroy_requested;                                             /* remove it as soon as it is dead */
    uint32_t create_stream, kill_stream, freeze_stream, destroy_stream; /* streams to answer on; 0: none */
    int status;                                                         /* wait status of PID 1; valid when DEAD */
    struct jailed_sandbox *next_waiting;                                /* MAKING: next in the creation queue */
    uint8_t *request; /* MAKING: payload of J_CREATE while queued; else NULL */
    uint32_t request_len;
    int lent_fds[FD_PASS_MAX]; /* descriptors that came with the request */
    size_t nlent_fds;
    struct cgroup_stats final_stats; /* read after the last process ended */
};
